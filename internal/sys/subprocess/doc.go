// Package subprocess starts processes that do not outlive this one, for the clusters and
// servers of demo, tests and lab. Package mysqld starts the mysqld of an agent itself: that one
// also has a lock, privileges to drop, and files to inherit.
//
// # Owns
//
// Of each child its pidfd, which names it whatever becomes of its id, and a goroutine,
// locked to its thread until the child was reaped: the kernel sends the parent-death
// signal of a child (prctl(2)) when the thread ends that started it.
package subprocess
