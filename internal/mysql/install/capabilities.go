package install

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// WithoutNetAdmin starts a child that does not inherit CAP_NET_ADMIN. An agent that is not
// root has it as an ambient capability, for the fence of mysqld's own port: mysqld must not.
// Other ambient capabilities are the operator's, such as CAP_SYS_NICE for resource groups.
func WithoutNetAdmin(start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The agent itself keeps it. An error is a kernel before 4.3, which has none.
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, unix.CAP_NET_ADMIN, 0, 0)
	return start()
}
