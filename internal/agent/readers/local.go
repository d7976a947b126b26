package readers

import (
	"context"
	"errors"
	"net"
	"sync"
)

// ErrNoSQL refuses SQL at a node whose mysqld is neither the primary's nor a replica's now.
var ErrNoSQL = errors.New("this node is neither the primary nor a replica now")

// Local has the connections of readers with SQL to the local mysqld.
type Local struct {
	// Serves tells whether mysqld may be asked now. Socket is where mysqld listens.
	Serves func() bool
	Socket func() string

	mu    sync.Mutex
	conns map[*localConn]struct{}
}

// Dial connects to mysqld.
func (l *Local) Dial(ctx context.Context) (net.Conn, error) {
	if !l.Serves() {
		return nil, ErrNoSQL
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", l.Socket())
	if err != nil {
		return nil, err
	}
	c := &localConn{Conn: conn, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = map[*localConn]struct{}{}
	}
	l.conns[c] = struct{}{}
	if !l.Serves() { // that has changed, and End may have been called
		delete(l.conns, c)
		_ = conn.Close()
		return nil, ErrNoSQL
	}
	return c, nil
}

// End closes all connections: what a tool has locked must not hold up a primary that is about to take writes.
func (l *Local) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Conn.Close()
	}
	clear(l.conns)
}

// localConn is a connection that its Local knows.
type localConn struct {
	net.Conn
	of *Local
}

func (c *localConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
