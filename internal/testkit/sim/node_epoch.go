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
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

// What package agent has.
const (
	entryBytesMax = 60 << 20
	tapServerID   = 1 << 29
)

// epoch is one tenure of the local mysqld as primary: a tap of package mysqlwire over a
// tapConn.
type epoch struct {
	primary.Epoch
	a       *agent
	process *mysqld
	tap     *mysqlwire.Tap
	conn    *tapConn
	ctx     context.Context
	end     context.CancelFunc
	closed  bool
	uploads bulk.Uploads
	begun   map[entry.StageID]time.Duration // when the stages were that are not proposed
}

func (a *agent) epochOf(term uint64) *epoch {
	if !a.epoch.rules().Of(term) {
		return nil
	}
	return a.epoch
}

// rules is what decides about the epoch, or nil.
func (e *epoch) rules() *primary.Epoch {
	if e == nil {
		return nil
	}
	return &e.Epoch
}

// closeEpoch ends all acknowledging: nothing is sent after it.
func (a *agent) closeEpoch() {
	e := a.epoch
	if e == nil {
		return
	}
	a.n.log("tap", "closed, term %d", e.Term)
	a.epoch = nil
	e.closed = true
	e.end()
	e.tap.Close()
}

// OpenTap connects the tap of a new epoch and checks that mysqld waits for it.
func (a steps) OpenTap(ctx context.Context, term uint64) error {
	p, err := a.sql(ctx)
	if err != nil {
		return err
	}
	exclude := a.committedGTIDs()
	dump, err := p.OpenDump(exclude)
	if err != nil {
		return fmt.Errorf("connect tap: %w", err)
	}
	e := &epoch{Epoch: primary.Epoch{Term: term, Incarnation: p.incarnation}, a: a.agent, process: p, begun: map[entry.StageID]time.Duration{}}
	e.ctx, e.end = context.WithCancel(context.Background())
	e.conn = &tapConn{e: e, dump: dump}
	p.dumped = e.conn.news.fire
	e.tap, err = mysqlwire.StartTap(ctx, e.conn, mysqlwire.TapConfig{
		Term: term, Exclude: exclude, EntryBytesMax: entryBytesMax, StageBytesMin: stageBytesMin,
		ServerID: tapServerID, ReplicaUUID: a.n.uuid.String(), Tasks: a.life, Logger: slog.New(slog.DiscardHandler),
		OpenStage: func(ctx context.Context, id entry.StageID) (mysqlwire.StageWriter, error) {
			e.begun[id] = a.w.sched.now
			return e.uploads.Open(ctx, a.stages.Bulk, id)
		},
		ProposeNow: e.proposeNow,
	})
	if err != nil {
		_ = e.conn.Close()
		return fmt.Errorf("connect tap: %w", err)
	}
	a.life.sleep(socketMin + around(a.n.rng, socketMean))
	a.closeEpoch()
	a.epoch = e
	if r := a.loop.role; ctx.Err() != nil || !r.Leading || r.Term != term {
		a.closeEpoch()
		return fmt.Errorf("the promotion in term %d ended", term)
	}
	return primary.AwaitTap(ctx, localServer{a.agent}.SemiSyncStatus, a.life)
}

// CommitEpoch opens the epoch in the log.
func (a steps) CommitEpoch(ctx context.Context, term uint64) error {
	e := a.epochOf(term)
	if e == nil {
		return fmt.Errorf("open epoch %d: its tap is gone", term)
	}
	if chance(a.n.rng, 4) { // it leads again, in another term, when the proposal comes
		a.n.log("linger", "and resigns meanwhile")
		a.loop.control(func(time.Duration) { a.group.Resign(term) })
		a.life.sleep(around(a.n.rng, 200*time.Millisecond))
	}
	err := primary.Open(ctx, entry.Epoch{
		Term: term, Primary: a.n.member.Name, ServerUUID: a.n.uuid, FormatDescription: e.tap.FormatDescription(),
	}, a.loop.propose, a.group.Committed().EpochChanged, a.life)
	if err != nil {
		return err
	}
	a.w.epochs++
	a.w.happened(pointEpoch, a.n)
	e.run()
	return nil
}

// run begins the tap: its end, unless we ended it, is a doubt about mysqld.
func (e *epoch) run() {
	e.a.life.start(func() {
		defer e.uploads.Close()
		if err := e.tap.Run(e.ctx, e.propose); e.ctx.Err() == nil {
			e.a.inbox.Doubt(e.Incarnation, fmt.Sprintf("the tap ended: %v", err))
		}
	})
}

// proposeNow proposes a batch from the reader: one that has nothing to wait for. One of ten
// is left to propose all the same.
func (e *epoch) proposeNow(b mysqlwire.Batch) bool {
	pass := func() bool { return e.a.loop.inbox.Propose(b.Data) }
	if b.Staged != nil || chance(e.a.n.rng, 10) || !e.a.lagBound.TryPass(uint64(b.Bytes), pass) {
		return false
	}
	e.logBatch(b)
	e.a.loop.wake()
	return true
}

func (e *epoch) logBatch(b mysqlwire.Batch) {
	e.a.pacing.batches++
	e.a.n.log("propose", "term %d number %d, %d transactions", e.Term, b.Number, len(b.GTIDs))
}

// propose hands a batch to consensus: what proposeNow did not.
func (e *epoch) propose(ctx context.Context, b mysqlwire.Batch) error {
	if err := e.a.lagBound.Wait(ctx, uint64(b.Bytes)); err != nil {
		return err
	}
	e.logBatch(b)
	return e.uploads.Propose(b.Staged, func() error {
		if b.Staged != nil {
			e.a.w.staged++
			e.a.n.check.names(e.a, *b.Staged, e.begun[*b.Staged])
			delete(e.begun, *b.Staged)
		}
		if chance(e.a.n.rng, 10) {
			e.a.linger()
		}
		return e.a.loop.propose(ctx, b.Data)
	})
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
