// Package hooks tells the operator's program, after each change, what this node's role is and who
// the primary is.
//
//	board ──► Look ──► Teller.Run: differs from what was told? ──► note ──► run ──► note
//
// It owns what was told last: hook.json in the data directory, and the program while it runs.
//
// # What is promised
//
//   - At least once: the newest state is told until the program has ended with exit code 0. That is noted
//     durably before it runs, and after it. If the agent is killed in between, the hook is told the
//     current state after the restart, even if it has not changed. A disk that takes no note (it is full) keeps no
//     program from running: it is told again and again then. If the agent ends before the disk takes a note, its next
//     start does not tell a state that was the last one noted.
//   - The newest state: a state that came and went while the program ran is not told.
//   - One at a time, each with a time limit, after which the program and what it has started are killed.
//   - Nothing waits for it but the agent's end, which waits no longer than stopWait.
//
// # Bounds
//
// One state waits, the newest. outputBytesMax of the output are kept for the log; the rest is read
// and forgotten. After a failure the hook is tried again after a second, then after twice as long each
// time, up to retryMax. A newer state is told at once.
//
// # Goroutines
//
// Run is one. The program's output is read by one more while it runs (os/exec).
package hooks
