// Package large puts transactions of 1 to 4 GiB through clusters whose agents
// have little memory, and adopts, backs up and restores tens of GiB: `make large`.
// Its tests have the build tag "large", because they need much time and some
// 60 GiB of disk.
//
// Each case of TestLarge is a cluster of its own (package devcluster) whose agents' caches are
// full, one large transaction beside one writer of small ones, and what must hold
// afterwards:
//
//   - every node has the same rows;
//   - term and leader are what they were: heartbeats passed;
//   - no node has a stage left beside its log;
//   - no agent's resident memory was ever above 256 MiB.
//
// The agents run with GOMEMLIMIT=200MiB, as an operator would set it in a
// container of 256 MiB, and are held to the peak that the kernel kept for the
// process (VmHWM, proc_pid_status(5)). It is not a control group's limit that is
// tested: there the page cache of the log's files counts, too, and the kernel
// takes it back before it kills.
//
// TestData is one cluster after the other, of one node each. It prints what each
// stage took, for each GiB, too, and what the agent and the command had in memory.
// The agent has the bound of above, each command 128 MiB and no limit of Go's.
// QUORATE_LARGE_GIB says how much data there are (20); they need 2.7 times that on
// the disk: themselves, the backup's copy beside them, and the backup.
//
// A case's files are removed before the next begins, and at its end whatever
// came of it, but for the agents' logs of one that failed. QUORATE_LARGE_DIR
// names the directory for them (default: the system's temporary one).
package large
