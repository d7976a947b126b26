package deadhosttest

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Die lets the kernel drop all that comes for a connection, so that it acknowledges nothing any more. It needs no privileges.
func Die(t *testing.T, c syscall.Conn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	var refused error
	if err := raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	}); err != nil || refused != nil {
		t.Fatal(err, refused)
	}
}
