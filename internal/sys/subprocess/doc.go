// Package subprocess starts processes that do not outlive this one, for the clusters and
// servers of demo, tests and lab. Package mysqld itself starts the mysqld of an agent: that mysqld
// also has a lock, privileges to drop, and files to inherit.
//
// # Owns
//
// The package owns two things of each child: its pidfd, which names the child even if another process gets its id,
// and a goroutine that is locked to its thread until the child was reaped: the kernel sends the parent-death
// signal of a child (prctl(2)) when the thread that started it ends.
package subprocess
