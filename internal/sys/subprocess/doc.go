// Package subprocess starts processes that do not outlive this one, for the clusters and
// servers of demo, tests and lab. (mysqld's own process is package mysqld's: it is
// identified again after a crash.)
//
// # Owns
//
// Of each child its pidfd, which names it whatever becomes of its id, and a goroutine,
// locked to its thread until the child was reaped: the kernel sends the parent-death
// signal of a child (prctl(2)) when the thread ends that started it.
package subprocess
