package bulk

import (
	"context"
	"net"
	"time"
)

// Conn is a connection to a peer. One goroutine reads it and one writes to it; any goroutine may close it.
type Conn interface {
	// Read fails once limit has passed without a byte. Write fails once limit has passed before the peer has
	// taken all bytes. 0 = no limit.
	Read(p []byte, limit time.Duration) (int, error)
	Write(p []byte, limit time.Duration) (int, error)
	// EndWith closes the connection when ctx ends, unless stop was called before.
	EndWith(ctx context.Context) (stop func() bool)
	Close() error
}

// NetConn is a Conn over a network.
func NetConn(c net.Conn) Conn { return netConn{c} }

type netConn struct{ c net.Conn }

func deadline(limit time.Duration) time.Time {
	if limit == 0 {
		return time.Time{}
	}
	return time.Now().Add(limit)
}

// Read implements Conn.
func (c netConn) Read(p []byte, limit time.Duration) (int, error) {
	if err := c.c.SetReadDeadline(deadline(limit)); err != nil {
		return 0, err
	}
	return c.c.Read(p)
}

// Write implements Conn.
func (c netConn) Write(p []byte, limit time.Duration) (int, error) {
	if err := c.c.SetWriteDeadline(deadline(limit)); err != nil {
		return 0, err
	}
	return c.c.Write(p)
}

// EndWith implements Conn.
func (c netConn) EndWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.c.Close() })
}

// Close implements Conn.
func (c netConn) Close() error { return c.c.Close() }
