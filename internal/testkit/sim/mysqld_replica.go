package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

const (
	// connectRetry is SOURCE_CONNECT_RETRY.
	connectRetry = time.Second
	feedServerID = 1 << 30
	// applierWorkers is how many transactions the replica applies at the same time.
	applierWorkers = 4
	// feedHeartbeat is how often an idle feed says that it is there.
	feedHeartbeat = time.Second
	// packetHeaderBytes come before each packet of MySQL's protocol. None here is full.
	packetHeaderBytes = 4
)

// feedSession is one replication connection of the local mysqld to its agent's
// feed: a dump of package mysqlwire, from a source of package feed.
type feedSession struct {
	net.Conn // nil: only the methods below are called
	a        *agent
	p        *mysqld
	ctx      context.Context
	cancel   context.CancelFunc
	buf      []byte
	sequence byte
}

// startReplica is START REPLICA: the I/O thread connects soon.
func (a *agent) startReplica(p *mysqld) {
	p.StartReplica()
	p.follows = true
	a.connectFeed(p, time.Millisecond)
	p.applySoon()
}

func (a *agent) connectFeed(p *mysqld, after time.Duration) {
	if a.feed != nil {
		a.feed.end()
	}
	s := &feedSession{a: a, p: p}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	a.feed = s
	a.life.after(after+around(a.n.rng, 2*time.Millisecond), func() { a.life.start(s.run) })
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
	s.cancel()
	if s.a.feed == s {
		s.a.feed = nil
	}
	if !s.p.dead {
		s.p.Disconnect()
	}
}

// run is the dump, as the feed makes it once the replica has asked.
func (s *feedSession) run() {
	if s.ctx.Err() != nil || s.p.dead {
		return
	}
	a := s.a
	source := feed.Source{
		Log: func() feed.Log { return a.committedLog() }, Changed: a.Raft.Committed().Changed, Durable: a.durable,
		Executed: func(context.Context) (*gtid.Set, error) { return s.p.GTIDExecuted(), nil },
		Open: func(id entry.StageID) (mysqlwire.StageEvents, error) {
			return feed.Open(a.log, id, a.committedLog().Damaged)
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	cursor, err := source.Start(s.ctx, nil)
	if err != nil {
		a.n.log("feed", "cannot start: %v", err)
		a.connectFeed(s.p, connectRetry)
		return
	}
	a.n.log("feed", "begins")
	out := mysqlwire.NewDumpWriter(s, &a.feedCounters, feedServerID, applierWorkers)
	err = out.Stream(s.ctx, a.life, cursor, feedHeartbeat)
	if s.ctx.Err() == nil {
		a.n.log("feed", "ends: %v", err)
		s.end()
	}
}

// Write implements net.Conn: it takes the events out of their packets. The replica has them once they have come
// through the socket.
func (s *feedSession) Write(b []byte) (int, error) {
	if err := s.a.life.Wait(s.ctx, socketMin+around(s.a.n.rng, socketMean), nil); err != nil {
		return 0, err
	}
	if s.p.dead {
		return 0, net.ErrClosed
	}
	s.buf = append(s.buf, b...)
	for len(s.buf) >= packetHeaderBytes {
		n := int(s.buf[0]) | int(s.buf[1])<<8 | int(s.buf[2])<<16
		if len(s.buf) < packetHeaderBytes+n {
			break
		}
		packet := s.buf[packetHeaderBytes : packetHeaderBytes+n]
		if n == 0 || packet[0] != 0 || s.buf[3] != s.sequence {
			return 0, fmt.Errorf("packet %d of %d bytes, expected %d", s.buf[3], n, s.sequence)
		}
		if err := s.p.Receive(packet[1:]); err != nil {
			if !errors.Is(err, fakemysqld.ErrNotReplicating) {
				s.a.w.fail("feed", "n%d is sent what a replica does not take: %v", s.a.n.id, err)
			}
			return 0, err
		}
		s.sequence++
		s.buf = s.buf[packetHeaderBytes+n:]
	}
	s.p.applySoon()
	return len(b), nil
}

// SetWriteDeadline implements net.Conn.
func (s *feedSession) SetWriteDeadline(time.Time) error { return nil }
