package nowait

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// piecesMax is how many pieces one system call takes (IOV_MAX).
const piecesMax = 1024

// Raw returns what Write needs of a connection; nil = the connection is no socket of the kernel, so Write
// cannot write to it.
func Raw(conn net.Conn) syscall.RawConn {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// Write writes as much of pieces as the kernel takes at once, and returns the number of bytes. It returns 0
// also if the connection is closed or broken: the next write that waits will find that. No other goroutine
// may write meanwhile: the connection's own Write would block this one.
func Write(raw syscall.RawConn, pieces ...[]byte) (written int) {
	if raw == nil || len(pieces) == 0 {
		return 0
	}
	pieces = pieces[:min(len(pieces), piecesMax)]
	_ = raw.Write(func(fd uintptr) bool {
		var n int
		var err error
		if len(pieces) == 1 {
			n, err = unix.Write(int(fd), pieces[0])
		} else {
			n, err = unix.Writev(int(fd), pieces)
		}
		if err == nil {
			written = n
		}
		return true // whatever the result: do not wait
	})
	return written
}
