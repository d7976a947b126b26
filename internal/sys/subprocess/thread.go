package subprocess

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs f on an OS thread of its own that ends when f returns: what f does to the
// thread (its namespace, its priority) changes no other goroutine. OnThread does not wait for f.
//
// If a goroutine ends while it is locked, its thread ends, too. Only the first thread of the process does not end:
// it would stay as f left it, and /proc/self would show that. So f never runs on the first thread.
func OnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			f()
		}()
		<-locked
		runtime.UnlockOSThread()
	}()
}
