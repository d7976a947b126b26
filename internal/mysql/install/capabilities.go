package install

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// WithoutNetCapabilities starts a child that does not inherit CAP_NET_ADMIN and CAP_NET_RAW. An
// agent that is not root has them as ambient capabilities, for the fence of mysqld's own port and
// for a hook that moves an address: mysqld must not. Other ambient capabilities are the
// operator's, such as CAP_SYS_NICE for resource groups.
func WithoutNetCapabilities(start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The agent itself keeps them. An error is a kernel before 4.3, which has none.
	for _, c := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW} {
		_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, c, 0, 0)
	}
	return start()
}
