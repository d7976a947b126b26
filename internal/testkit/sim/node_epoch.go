package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

// What package agent has.
const (
	entryBytesMax = 60 << 20
	tapServerID   = 1 << 29
)

// epoch is the tap of one, over a tapConn: what the checkers see of it.
type epoch struct {
	primary.Epoch // as it began
	a             *agent
	process       *mysqld
	tap           *mysqlwire.Tap
	conn          *tapConn
	begun         map[entry.StageID]time.Duration // when the stages were that are not proposed
	over          bool                            // it was to be closed, whatever the product has done
}

// newSlot holds the epoch of which this node is the primary.
func (a *agent) newSlot() *primary.Slot {
	return primary.NewSlot(primary.SlotConfig{
		Local: a.local, Own: a.ownEpoch,
		Raft: func() primary.Raft { return proposer{a} }, Bulk: func() *bulk.Bulk { return a.stages.Bulk },
		Clients: clients{a}, Pace: a.lagBound, Inbox: a.inbox, Clock: a.life, Logger: slog.New(slog.DiscardHandler),
	})
}

// ownEpoch is this node, as its epoch names it. In one of 25 times it leads again, in another term,
// when the epoch's entry is proposed.
func (a *agent) ownEpoch() entry.Epoch {
	if chance(a.n.rng, 4) {
		term := a.epoch.Term
		a.n.log("linger", "and resigns meanwhile")
		a.loop.control(func(time.Duration) { a.group.Resign(term) })
		a.life.sleep(around(a.n.rng, 200*time.Millisecond))
	}
	return entry.Epoch{Primary: a.n.member.Name, ServerUUID: a.n.uuid}
}

// Incarnation implements primary.TapServer.
func (s localServer) Incarnation() uint64 { return s.p.incarnation }

// ConnectTap implements primary.TapServer. One of ten batches the reader leaves to the proposer.
func (s localServer) ConnectTap(ctx context.Context, of primary.Epoch, cfg mysqlwire.TapConfig) (*mysqlwire.Tap, primary.TapObserver, error) {
	a := s.a
	p := s.p
	dump, err := ask(ctx, s, func(p *mysqld) (*fakemysqld.Dump, error) { return p.OpenDump(cfg.Exclude) })
	if err != nil {
		return nil, nil, fmt.Errorf("connect tap: %w", err)
	}
	e := &epoch{Epoch: of, a: a, process: p, begun: map[entry.StageID]time.Duration{}}
	e.conn = &tapConn{e: e, dump: dump}
	p.dumped = e.conn.news.fire
	cfg.EntryBytesMax, cfg.StageBytesMin, cfg.ServerID, cfg.ReplicaUUID = entryBytesMax, stageBytesMin, tapServerID, a.n.uuid.String()
	open, now := cfg.OpenStage, cfg.ProposeNow
	cfg.OpenStage = func(ctx context.Context, id entry.StageID) (mysqlwire.StageWriter, error) {
		e.begun[id] = a.w.sched.now
		return open(ctx, id)
	}
	cfg.ProposeNow = func(b mysqlwire.Batch) bool { return !chance(a.n.rng, 10) && now(b) }
	e.tap, err = mysqlwire.StartTap(ctx, e.conn, cfg)
	if err != nil {
		_ = e.conn.Close()
		return nil, nil, fmt.Errorf("connect tap: %w", err)
	}
	a.life.sleep(socketMin + around(a.n.rng, socketMean))
	a.epoch = e
	return e.tap, e, nil
}

// closed tells whether the epoch has ended, or should have.
func (e *epoch) closed() bool { return e.over || !e.holds() }

// holds tells whether the product's slot has the epoch.
func (e *epoch) holds() bool {
	tap, _, _ := e.a.slot.Tap(e.Term)
	return tap == e.tap
}

// ends takes it that the epoch is to be closed, if there is one.
func (e *epoch) ends() {
	if e != nil {
		e.over = true
	}
}

// Received, Proposed and Acknowledged implement primary.TapObserver.
func (e *epoch) Received(mysqlwire.Batch) {}

// Proposed looks at what is proposed.
func (e *epoch) Proposed(b mysqlwire.Batch, err error) {
	e.a.pacing.batches++
	e.a.n.log("propose", "term %d number %d, %d transactions: %v", e.Term, b.Number, len(b.GTIDs), err)
	if b.Staged != nil && err == nil {
		e.a.w.staged++
		e.a.n.check.names(e.a, *b.Staged, e.begun[*b.Staged])
		delete(e.begun, *b.Staged)
	}
}

// Acknowledged lets the connection say what is: see tapConn.Write.
func (e *epoch) Acknowledged(uint64) {}

// Settled lets the checker look at what is let go.
func (e *epoch) Settled(number uint64) { e.a.n.check.settles(e.a, e, number) }

// proposer is consensus, as the primary asks it.
type proposer struct{ *agent }

// Role and what follows implement primary.Raft.
func (p proposer) Role() consensus.RoleState       { return p.loop.driver.Role() }
func (p proposer) Leads() bool                     { return p.loop.driver.LeadsAt(p.n.now(), p.n.wall()) }
func (p proposer) Committed() *consensus.Committed { return p.group.Committed() }
func (p proposer) TryPropose(data []byte) bool     { return p.loop.inbox.Propose(data) }
func (p proposer) Work()                           { p.loop.wake() }
func (p proposer) Propose(ctx context.Context, data []byte) error {
	if chance(p.n.rng, 10) {
		p.linger()
	}
	return p.loop.propose(ctx, data)
}

func (p proposer) Barrier(ctx context.Context) error { return p.loop.barriers.Wait(ctx) }
func (p proposer) Resign(ctx context.Context, term uint64) {
	p.loop.do(ctx, func(time.Duration) { p.group.Resign(term) })
}
func (p proposer) TransferTo(ctx context.Context, term uint64, to cluster.NodeID) {
	p.loop.do(ctx, func(time.Duration) { p.group.TransferTo(term, to) })
}

// linger has a goroutine that is about to propose lose its processor, in one of
// fifty times: its epoch may be over when it goes on.
func (a *agent) linger() {
	if chance(a.n.rng, 2) {
		a.life.sleep(around(a.n.rng, 2*time.Second))
	}
}

// tapConn is mysqld's end of the tap's connection, behind the request for the dump.
type tapConn struct {
	net.Conn // none: only what is below is called
	e        *epoch
	dump     *fakemysqld.Dump
	news     signal
	in       []byte
	sequence byte
	// sent are the events that the tap may not have taken in; taken counts the others.
	sent   [][]byte
	taken  uint64
	beatAt time.Duration // by the machine's clock
	closed bool
}

// Read implements net.Conn: what is at hand, some of the time not all of it. mysqld's heartbeat
// comes as often as its agent asks for, also where the connection is not idle.
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

// Write implements net.Conn: an acknowledgement. What was written before a close still
// arrives.
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
