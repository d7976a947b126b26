package sim

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quorate/quorate/internal/mysqlwire"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/seglog"
	"github.com/quorate/quorate/internal/sim/fakemysqld"
)

const (
	// connectRetry is SOURCE_CONNECT_RETRY.
	connectRetry = time.Second
	feedServerID = 1 << 30
	// applierWorkers is how many transactions the replica applies at the same time.
	applierWorkers = 4
	// feedHeartbeat is how often an idle feed says that it is there.
	feedHeartbeat = time.Second
	// piecesAtOnce is how many pieces go to the replica before others have a turn.
	piecesAtOnce = 4
	// packetHeaderBytes come before each packet of MySQL's protocol. None here is full.
	packetHeaderBytes = 4
)

// feedSession is one replication connection of the local mysqld to its agent's
// feed: who gives what a replay.Cursor brings to a mysqlwire.DumpWriter, and when.
type feedSession struct {
	a      *agent
	p      *mysqld
	cursor *replay.Cursor
	out    *mysqlwire.DumpWriter
	due    bool
	ended  bool
}

// startReplica is START REPLICA: the I/O thread connects soon.
func (a *agent) startReplica(p *mysqld) {
	p.StartReplica()
	a.connectFeed(p, time.Millisecond)
	p.applySoon()
}

func (a *agent) connectFeed(p *mysqld, after time.Duration) {
	if a.feed != nil {
		a.feed.end()
	}
	s := &feedSession{a: a, p: p}
	a.feed = s
	a.life.after(after+around(a.n.rng, 2*time.Millisecond), s.begin)
}

// stopReplica is STOP REPLICA.
func (a *agent) stopReplica(p *mysqld) {
	if a.feed != nil {
		a.feed.end()
	}
	p.StopReplica()
	p.inside = applying{}
}

func (s *feedSession) end() {
	s.ended = true
	if s.a.feed == s {
		s.a.feed = nil
	}
	if !s.p.dead {
		s.p.Disconnect()
	}
}

// begin asks mysqld what it has, and finds its place in the log.
func (s *feedSession) begin() {
	if s.ended || s.p.dead {
		return
	}
	prefix, err := replay.FindPrefix(s.a.committedLog(), s.p.GTIDExecuted(), s.a.durable())
	if err == nil {
		s.cursor, err = replay.NewCursor(s.a.committedLog(), prefix)
	}
	if err != nil {
		s.a.n.log("feed", "cannot start: %v", err)
		s.a.connectFeed(s.p, connectRetry)
		return
	}
	index, skip := s.cursor.Position()
	s.a.n.log("feed", "begins at %d, skips %d", index, skip)
	s.out = mysqlwire.NewDumpWriter(&feedConn{p: s.p}, &s.a.feedCounters, feedServerID, applierWorkers)
	s.wake()
	s.beat()
}

func (s *feedSession) wake() {
	if !s.due && s.cursor != nil && !s.ended {
		s.due = true
		s.a.life.after(socketMin+around(s.a.n.rng, socketMean), s.pump)
	}
}

func (s *feedSession) pump() {
	s.due = false
	if s.ended || s.p.dead {
		return
	}
	more, err := s.pieces()
	if err == nil {
		err = s.out.Flush()
	}
	if err != nil {
		s.a.n.log("feed", "ends: %v", err)
		s.end()
		return
	}
	s.p.applySoon()
	if more {
		s.wake()
	}
}

// pieces sends what the log has; more: others have a turn before it goes on.
func (s *feedSession) pieces() (more bool, err error) {
	for range piecesAtOnce {
		p, ok, err := s.cursor.Next()
		if err != nil || !ok {
			return false, err
		}
		out := mysqlwire.Piece{FormatDescription: p.FormatDescription, Events: p.Events}
		if p.Staged != nil {
			r, err := s.a.log.OpenStage(p.Staged.ID)
			if err != nil {
				return false, err
			}
			out.Stage = stageEvents{r, s.a.n}
		}
		if _, err := s.out.Piece(out); err != nil {
			return false, err
		}
	}
	return true, nil
}

// beat sends the heartbeats of an idle feed.
func (s *feedSession) beat() {
	s.a.life.after(feedHeartbeat, func() {
		if s.ended || s.p.dead {
			return
		}
		if !s.due {
			if err := s.out.Heartbeat(); err != nil {
				s.a.n.log("feed", "heartbeat: %v", err)
				s.end()
				return
			}
		}
		s.beat()
	})
}

// stageEvents is a staged transaction for the feed.
type stageEvents struct {
	*seglog.StageReader
	n *node
}

// Size implements mysqlwire.StageEvents.
func (e stageEvents) Size() int64 {
	n, _ := e.Bytes()
	return n
}

// Damaged implements mysqlwire.StageEvents: nothing damages a stage here.
func (e stageEvents) Damaged(err error) { e.n.w.fail("sim", "n%d sends a stage: %v", e.n.id, err) }

// feedConn is the connection to the replica: it takes the events out of their packets.
type feedConn struct {
	net.Conn // none: only what is below is called
	p        *mysqld
	buf      []byte
	sequence byte
}

// Write implements net.Conn.
func (c *feedConn) Write(b []byte) (int, error) {
	c.buf = append(c.buf, b...)
	for len(c.buf) >= packetHeaderBytes {
		n := int(c.buf[0]) | int(c.buf[1])<<8 | int(c.buf[2])<<16
		if len(c.buf) < packetHeaderBytes+n {
			break
		}
		packet := c.buf[packetHeaderBytes : packetHeaderBytes+n]
		if n == 0 || packet[0] != 0 || c.buf[3] != c.sequence {
			return 0, fmt.Errorf("packet %d of %d bytes, expected %d", c.buf[3], n, c.sequence)
		}
		if err := c.p.Receive(packet[1:]); err != nil {
			if !errors.Is(err, fakemysqld.ErrNotReplicating) {
				c.p.n.w.fail("feed", "n%d is sent what a replica does not take: %v", c.p.n.id, err)
			}
			return 0, err
		}
		c.sequence++
		c.buf = c.buf[packetHeaderBytes+n:]
	}
	return len(b), nil
}

// SetWriteDeadline implements net.Conn.
func (c *feedConn) SetWriteDeadline(time.Time) error { return nil }
