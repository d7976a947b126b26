package install

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// WithoutNetCapabilities starts a child that does not inherit CAP_NET_ADMIN and CAP_NET_RAW. An
// agent that is not root has them as ambient capabilities, for the fence of mysqld's own port and
// for a hook that moves an address. mysqld must not have them. Other ambient capabilities are
// passed on, because the operator chose them, such as CAP_SYS_NICE for resource groups.
//
// Ambient capabilities belong to a thread. The thread gets them back before the Go runtime may
// use it again: a hook, or a new thread, may be started from it.
func WithoutNetCapabilities(start func() error) error {
	runtime.LockOSThread()
	lost := false
	defer func() {
		if !lost { // else the thread stays locked to this goroutine, and ends with it
			runtime.UnlockOSThread()
		}
	}()
	for _, c := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW} {
		if had, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, c, 0, 0); err != nil || had == 0 {
			continue // an error means a kernel before 4.3, which has no ambient capabilities
		}
		_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, c, 0, 0)
		defer func() { lost = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0) != nil || lost }()
	}
	return start()
}
