package subprocess

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs f on an OS thread of its own that ends when f returns: what f does to the
// thread (its namespace, its priority) touches no other goroutine. It does not wait for f.
//
// A goroutine that ends while it is locked takes its thread with it, but for the process's
// first thread, which would stay as f left it, and be what /proc/self shows. f never runs
// there.
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
