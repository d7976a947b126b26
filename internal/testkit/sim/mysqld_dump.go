package sim

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

// tapConn is mysqld's end of the tap's connection, after the request for the dump.
type tapConn struct {
	net.Conn // nil: only the methods below are called
	e        *epoch
	dump     *fakemysqld.Dump
	news     signal
	in       []byte
	sequence byte
	// sent are the events that the tap may not have processed; taken counts the others.
	sent   [][]byte
	taken  uint64
	beatAt time.Duration // by the machine's clock
	closed bool
}

// Read implements net.Conn: it returns what is at hand, sometimes only a part. mysqld's heartbeat comes as
// often as its agent asks for, even if the connection is not idle.
func (c *tapConn) Read(p []byte) (int, error) {
	n := c.e.a.n
	for len(c.in) == 0 {
		c.e.a.life.sleep(socketMin + around(n.rng, socketMean))
		if c.closed || c.e.process.dead {
			return 0, io.EOF
		}
		for burst := 1 + n.rng.IntN(64); burst > 0 && c.frame(c.dump.Next()); burst-- {
		}
		if n.now() >= c.beatAt {
			c.beatAt = n.now() + n.timing.election
			event := c.dump.Heartbeat()
			c.frame(event, event != nil)
		}
		if len(c.in) == 0 {
			c.e.a.life.await(max(1, c.beatAt-n.now()), &c.news)
		}
	}
	k := copy(p, c.in)
	c.in = c.in[k:]
	return k, nil
}

// frame makes a packet of an event, if there is one.
func (c *tapConn) frame(event []byte, ok bool) bool {
	if !ok {
		return false
	}
	if binlog.Event(event).Type() == binlog.TypeRotate {
		c.e.a.w.happened(pointRotated, c.e.a.n)
	}
	const semiSync = "\x00\xef\x00"
	size := len(semiSync) + len(event)
	c.in = append(c.in, byte(size), byte(size>>8), byte(size>>16), c.sequence)
	c.in = append(append(c.in, semiSync...), event...)
	c.sequence++
	c.sent = append(c.sent, slices.Clone(event))
	return true
}

// Write implements net.Conn: it takes an acknowledgement. What was written before a close still arrives.
func (c *tapConn) Write(b []byte) (int, error) {
	e, n := c.e, c.e.a.n
	e.a.life.sleep(n.hiccup())
	if c.closed || e.process.dead {
		return 0, net.ErrClosed
	}
	p := tap.Position{Offset: binary.LittleEndian.Uint64(b[packetHeaderBytes+1:]), File: string(b[packetHeaderBytes+1+8:])}
	n.log("ack", "%v", p)
	n.check.acked(e, p)
	n.lastACK.incarnation, n.lastACK.at = e.Incarnation, p
	e.process.life.after(socketMin+around(n.rng, socketMean), func() {
		e.process.ack(p.File, p.Offset)
		e.a.w.happened(pointAcked, n)
	})
	return len(b), nil
}

// Close implements net.Conn.
func (c *tapConn) Close() error {
	c.closed = true
	c.news.fire()
	if !c.e.process.dead {
		c.e.process.dumped = nil
		c.dump.Close()
	}
	return nil
}
