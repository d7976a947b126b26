// Package subprocess starts processes that do not outlive this one, for the clusters and
// servers of demo, tests, benchmarks and lab. (mysqld's own process is package mysqld's:
// it is identified again after a crash; a namespace's is lab/netlab's.)
//
// It owns nothing. Start has one goroutine for each child, locked to its thread until
// the child was reaped: the kernel sends the parent-death signal of a child
// (SysProcAttr.Pdeathsig, prctl(2)) when the thread ends that started it.
package subprocess
