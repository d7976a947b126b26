package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

// These values are as in package agent.
const (
	entryBytesMax = 60 << 20
	tapServerID   = 1 << 29
)

// epoch is the tap of an epoch, over a tapConn, with what the checkers see of it.
type epoch struct {
	primary.Epoch // as it was when it began
	a             *agent
	process       *mysqld
	tap           *mysqlwire.Tap
	conn          *tapConn
	begun         map[entry.StageID]time.Duration // when the stages were begun that are not proposed yet
	over          bool                            // it had to be closed, whether the product has closed it or not
}

// ownEpoch describes this node, for the entry of its epoch. One time in 25 the node first gives its leadership
// up, so it leads in another term when the epoch's entry is proposed.
func (a *agent) ownEpoch() entry.Epoch {
	if chance(a.n.rng, 4) {
		term := a.epoch.Term
		a.n.log("linger", "and resigns meanwhile")
		a.Raft.Resign(context.Background(), term)
		a.life.sleep(around(a.n.rng, 200*time.Millisecond))
	}
	return entry.Epoch{Primary: a.n.member.Name, ServerUUID: a.n.uuid}
}

// Incarnation implements primary.TapServer.
func (s localServer) Incarnation() uint64 { return s.p.incarnation }

// ConnectTap implements primary.TapServer. One of ten batches is left to the proposer by the reader.
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

// holds tells whether the product's slot still has the epoch.
func (e *epoch) holds() bool {
	tap, _, _ := e.a.Slot.Tap(e.Term)
	return tap == e.tap
}

// ends notes that the epoch, if there is one, has to be closed.
func (e *epoch) ends() {
	if e != nil {
		e.over = true
	}
}

// Received, Proposed and Acknowledged implement primary.TapObserver.
func (e *epoch) Received(mysqlwire.Batch) {}

// Proposed looks at what was proposed.
func (e *epoch) Proposed(b mysqlwire.Batch, err error) {
	e.a.pacing.batches++
	e.a.n.log("propose", "term %d number %d, %d transactions: %v", e.Term, b.Number, len(b.GTIDs), err)
	if b.Staged != nil && err == nil {
		e.a.w.staged++
		e.a.n.check.names(e.a, *b.Staged, e.begun[*b.Staged])
		delete(e.begun, *b.Staged)
	}
}

// Acknowledged needs nothing here: tapConn.Write sees what is acknowledged.
func (e *epoch) Acknowledged(uint64) {}

// Majority implements primary.TapObserver.
func (e *epoch) Majority(uint64) {}

// Settled makes the checker look at what is let go.
func (e *epoch) Settled(number uint64) { e.a.n.check.settles(e.a, e, number) }

// proposer is consensus, as the primary calls it.
type proposer struct {
	*consensus.Runner
	a *agent
}

// Propose implements primary.Raft.
func (p proposer) Propose(ctx context.Context, data []byte) error {
	if chance(p.a.n.rng, 10) {
		p.a.linger()
	}
	return p.Runner.Propose(ctx, data)
}

// linger makes a goroutine that is about to propose lose its processor, one time in fifty: its epoch may be
// over when it goes on.
func (a *agent) linger() {
	if chance(a.n.rng, 2) {
		a.life.sleep(around(a.n.rng, 2*time.Second))
	}
}
