package nowait

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// piecesMax is how many pieces one system call takes (IOV_MAX).
const piecesMax = 1024

// Raw returns what Write needs of a connection; nil: it is none of the kernel's, and all
// writes go the other way.
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

// Write writes the beginning of pieces and returns how many bytes that is: 0 also where the
// connection is closed or broken, which the next write that waits will find. Nobody else
// may write meanwhile: the connection's own Write would hold it up.
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
		return true // whatever came of it: do not wait
	})
	return written
}
