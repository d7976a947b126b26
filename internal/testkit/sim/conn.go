package sim

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/transport"
)

// retransmitAfter is when a segment that the network lost is sent again.
const retransmitAfter = 100 * time.Millisecond

// conn is one end of a connection for copies, as TCP makes it of the network: lost segments are sent again,
// early ones wait. It implements bulk.Conn.
type conn struct {
	n    *node
	life *life // of its process; nil: no process has accepted it yet
	far  *conn
	ctx  context.Context
	// sent and taken count segments. early has the segments that came before their turn.
	sent, taken uint64
	early       map[uint64]func(c *conn)
	in          []byte
	err         error // of reads after in, and of writes unless it is io.EOF
	asked       bool  // the other end dialled
	changed     signal
}

// dial opens a connection to a peer's agent. Only later it shows whether the peer accepts it.
func (n *node) dial(l *life, id cluster.NodeID) *conn {
	near, far := &conn{n: n, life: l}, &conn{n: n.w.node(id)}
	for _, c := range []*conn{near, far} {
		c.ctx, c.early = context.Background(), map[uint64]func(*conn){}
	}
	near.far, far.far = far, near
	near.send((*conn).accept)
	return near
}

// accept makes the agent serve a new connection.
func (c *conn) accept() {
	a := c.n.agent
	c.asked = true
	c.life.start(func() { a.Bulk.Serve(context.Background(), c.far.n.id, c) })
}

// send brings something to the other end, after everything that was sent before.
func (c *conn) send(deliver func(far *conn)) {
	c.transmit(c.sent, deliver, c.life.Now()+silenceMax)
	c.sent++
}

func (c *conn) transmit(at uint64, deliver func(far *conn), until time.Duration) {
	switch {
	case c.n.w.net.send(c.n.id, c.far.n.id, func() { c.far.arrive(at, deliver) }):
	case c.life.Now() > until:
		c.fail(os.ErrDeadlineExceeded)
	default:
		c.life.after(retransmitAfter, func() { c.transmit(at, deliver, until) })
	}
}

// arrive takes one segment, and the early segments that follow it.
func (c *conn) arrive(at uint64, deliver func(c *conn)) {
	reason := error(syscall.ECONNRESET)
	if a := c.n.agent; c.life == nil && a != nil {
		if r := admits(a.host, c.far.n, false); r != nil {
			reason = r
		} else {
			c.life = a.life
		}
	}
	if c.life == nil || c.life.ended {
		if c.n.powered {
			c.n.w.net.send(c.n.id, c.far.n.id, func() { c.far.life.run(func() { c.far.refused(reason) }) })
		}
		return
	}
	c.life.run(func() {
		if at >= c.taken {
			c.early[at] = deliver
		}
		for next := c.early[c.taken]; next != nil; next = c.early[c.taken] {
			delete(c.early, c.taken)
			c.taken++
			next(c)
		}
		c.changed.fire()
	})
}

// refused: no process takes what comes from here.
func (c *conn) refused(reason error) {
	var r *transport.RejectedError
	if j := c.n.joiner; j != nil && j.life == c.life && errors.As(reason, &r) {
		j.Rejected(c.far.n.member.Name, r)
	}
	c.fail(reason)
}

func (c *conn) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.changed.fire()
}

// Read implements bulk.Conn.
func (c *conn) Read(p []byte, limit time.Duration) (int, error) {
	until := c.life.Now() + limit
	for len(c.in) == 0 || errors.Is(c.err, net.ErrClosed) {
		left := until - c.life.Now()
		switch {
		case c.err != nil:
			return 0, c.err
		case limit == 0:
			left = 0
		case left <= 0:
			return 0, os.ErrDeadlineExceeded
		}
		if err := c.life.Wait(c.ctx, left, c.changed.next()); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

// Write implements bulk.Conn. If the other end dialled, this node's disk does something before it answers.
func (c *conn) Write(p []byte, _ time.Duration) (int, error) {
	wait := socketMin + around(c.n.rng, socketMean)
	if c.asked {
		wait = c.n.disk.appendTime(c.n.w.sched.now)
	}
	if err := c.life.Wait(c.ctx, wait, nil); err != nil {
		return 0, err
	}
	if c.err != nil && !errors.Is(c.err, io.EOF) {
		return 0, c.err
	}
	p = slices.Clone(p)
	c.send(func(far *conn) { far.in = append(far.in, p...) })
	return len(p), nil
}

// EndWith implements bulk.Conn: a task that waits here sees ctx end, and closes.
func (c *conn) EndWith(ctx context.Context) (stop func() bool) {
	c.ctx = ctx
	return func() bool { return true }
}

// Close implements bulk.Conn.
func (c *conn) Close() error {
	if !errors.Is(c.err, net.ErrClosed) {
		c.send(func(far *conn) { far.fail(io.EOF) })
		c.err = net.ErrClosed
		c.changed.fire()
	}
	return nil
}

var _ bulk.Conn = (*conn)(nil)
