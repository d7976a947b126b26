package primary

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
)

// Duties carry out what the role machine asks for, with the mysqld that runs. They implement Service and
// Steps. One goroutine at a time uses their state, as operations run one at a time.
type Duties struct {
	Process
	*Slot
	Host   Host
	Orders *Orders
	// Dir is where mysqld's data are.
	Dir string
	// ElectionTimeout bounds the wait for a turn of consensus.
	ElectionTimeout time.Duration

	// opened is the newest incarnation that was opened for writes, until it is made a replica. settled is
	// the incarnation that was settled, until it replicates.
	opened, settled uint64
	kept, killed    atomic.Uint64
}

// Process starts and ends mysqld.
type Process interface {
	// StartMysqld brings up a new incarnation.
	StartMysqld(ctx context.Context, replicaBinlog bool) (incarnation uint64, err error)
	// StopMysqld stops a mysqld of which CloseWrites has proven that no session waits for an ACK.
	StopMysqld()
	// SignalKill sends the signal, KillMysqld returns once mysqld is gone.
	SignalKill()
	KillMysqld(ctx context.Context)
}

// Local is the mysqld that runs, as the operations ask it.
type Local interface {
	TapServer
	TargetServer
	Server
	JudgedServer
	Replica
	Replicating
	PlanServer
	Polled
	Probes
}

// Clients are the clients of the local mysqld, and the ways into it.
type Clients interface {
	// Wake has the router ask again: another node serves, or clients are no longer held. It must not block.
	Wake()
	// Hold: new clients are held from here on.
	Hold()
	// CloseAll closes the router's connections to the local mysqld.
	CloseAll()
	// OwnPort tells whether clients can reach mysqld past the router. ClosePort returns once no client reaches
	// it there that may not. AwaitPort also waits for that; if it fails, it waits until what is open has run out.
	OwnPort() bool
	ClosePort(ctx context.Context) error
	AwaitPort()
	// EndReads ends the sessions that have come to read from a replica, and lets nobody in to read until this
	// node is a replica again. It returns once no such session can write.
	EndReads(ctx context.Context) error
	// AwaitAnswers waits, not for long, until clients have the answers that they wait for.
	AwaitAnswers(ctx context.Context)
}

// Log is a reader of the committed log.
type Log interface {
	replay.CommittedLog
	Close()
}

// Host is the node around its mysqld.
type Host interface {
	Role() status.Role
	// Log opens the committed log.
	Log() Log
	Durable() replay.Mark
	// WaitIndex waits until the log is committed up to an index.
	WaitIndex(ctx context.Context, index uint64) error
	// MayOpen returns why this node must not become the primary, or nil.
	MayOpen() error
	// AskTarget asks another node to follow (Duties.Follow), for an order.
	AskTarget(ctx context.Context, to cluster.NodeID, o *Order, index, term uint64) error
	// Judged is told what was found when mysqld's gtid_executed was compared with the log. CatchingUp is told
	// the state of a catch-up that takes long, and "" at its end; CaughtUp how many transactions mysqld lacked
	// at first; Settled the last number of the epoch that was settled.
	Judged(replay.Verdict)
	CatchingUp(text string)
	CaughtUp(lacked int64, took time.Duration)
	Settled(term, number uint64, acknowledged int, took time.Duration)
}

// committed implements Committed.
type committed struct{ Raft }

// GTIDs implements Committed.
func (c committed) GTIDs() *gtid.Set { return c.Committed().GTIDs() }

// Kept counts the deposed primaries that kept their mysqld, Killed those whose mysqld was killed after a try to
// keep it.
func (d *Duties) Kept() uint64   { return d.kept.Load() }
func (d *Duties) Killed() uint64 { return d.killed.Load() }

// CloseTap implements Service.
func (d *Duties) CloseTap() { d.Close() }

// Closing implements Service.
func (d *Duties) Closing() {
	if d.Orders.Closing() {
		d.cfg.Clients.Hold()
	}
}

// PlanEnded implements Service.
func (d *Duties) PlanEnded(reason string) {
	if d.Orders.Ended(reason) {
		d.cfg.Clients.Wake()
	}
}

// Transfer implements Service.
func (d *Duties) Transfer(ctx context.Context, term uint64, to cluster.NodeID) {
	d.Unserve()
	d.cfg.Clients.AwaitPort()
	ctx, cancel := d.cfg.Clock.WithTimeout(ctx, d.ElectionTimeout)
	defer cancel()
	d.cfg.Raft().TransferTo(ctx, term, to)
}

// Resign implements Service.
func (d *Duties) Resign(ctx context.Context, term uint64) {
	if d.cfg.Clients.OwnPort() {
		d.Unserve()
		d.cfg.Clients.AwaitPort()
	}
	ctx, cancel := d.cfg.Clock.WithTimeout(ctx, d.ElectionTimeout)
	defer cancel()
	d.cfg.Raft().Resign(ctx, term)
}

// Judge decides whether mysqld may replicate or, with promote, serve (I3).
func (d *Duties) Judge(ctx context.Context, promote bool) error {
	s, err := d.cfg.Local()
	if err != nil {
		return err
	}
	log := d.Host.Log()
	defer log.Close()
	against := struct {
		Committed
		replay.CommittedLog
	}{committed{d.cfg.Raft()}, log}
	return Judge{Server: s, Log: against, Durable: d.Host.Durable, Dir: d.Dir, Judged: d.Host.Judged}.Run(ctx, promote)
}

// Replicate points mysqld to its own agent's feed.
func (d *Duties) Replicate(ctx context.Context) error {
	s, err := d.cfg.Local()
	if err != nil {
		return err
	}
	err = Replicate{
		Server: s, Committed: committed{d.cfg.Raft()}.GTIDs, WasPrimary: d.opened == s.Incarnation(), Tidied: func() { d.opened = 0 },
	}.Run(ctx)
	if err == nil && d.settled == s.Incarnation() { // nothing is left that could still have killed it
		d.settled = 0
		d.kept.Add(1)
	}
	return err
}

// endReadsTimeout bounds the end of the sessions that only read, which takes milliseconds.
const endReadsTimeout = 2 * time.Second

// CatchUp waits until mysqld has everything that is committed, then stops its replication, and ends the
// sessions that only read. That may still fail here: mysqld is read-only, and replicates again.
func (d *Duties) CatchUp(ctx context.Context) error {
	s, err := d.cfg.Local()
	if err != nil {
		return err
	}
	began := d.cfg.Clock.Now()
	lacked, err := CatchUp{
		Server: s, Log: committed{d.cfg.Raft()}, MayOpen: d.Host.MayOpen, Clock: d.cfg.Clock,
		Progressed: func() { d.cfg.Inbox.Put(ctx, role.Progress{}) }, Slow: d.Host.CatchingUp,
	}.Run(ctx)
	if err != nil {
		return err
	}
	d.Host.CaughtUp(lacked, d.cfg.Clock.Now()-began)
	ctx, cancel := d.cfg.Clock.WithTimeout(ctx, endReadsTimeout)
	defer cancel()
	if err := d.cfg.Clients.EndReads(ctx); err != nil {
		return fmt.Errorf("end the sessions that only read: %w", err)
	}
	return nil
}

// OpenWrites makes mysqld writable and looks again whether it may be writable.
func (d *Duties) OpenWrites(ctx context.Context, term uint64) error {
	d.cfg.Pace.SetOpen(true)
	d.cfg.Clients.AwaitPort()
	s, err := d.cfg.Local()
	if err != nil {
		return err
	}
	d.opened = s.Incarnation()
	return OpenWrites(ctx, s, term, func() bool { return d.cfg.Raft().Role().Leads(term) && d.of(term) != nil })
}

// CloseWrites makes mysqld read-only, within the limit of an operator's plan if there is one.
func (d *Duties) CloseWrites(ctx context.Context) error {
	d.cfg.Pace.SetOpen(false)
	s, err := d.cfg.Local()
	o := d.Orders.Now()
	switch {
	case o != nil && err == nil:
		return d.plan(s, o).CloseWrites(ctx)
	case o != nil:
		return err
	case err != nil:
		return nil // nothing can be written
	}
	return CloseWrites(ctx, s, d.cfg.Clock)
}

// plan is an order, to be carried out on the mysqld that runs.
func (d *Duties) plan(s Local, o *Order) Plan {
	return Plan{Server: s, Moves: o.Moves, Limit: o.Limit, Left: o.Left(), Clock: d.cfg.Clock}
}

// AwaitTarget waits until the other node has everything: writes are closed, so
// what is committed here is all there is.
func (d *Duties) AwaitTarget(ctx context.Context, to cluster.NodeID, term uint64) error {
	o := d.Orders.Now()
	if o == nil {
		return errors.New("the switchover was cancelled")
	}
	s, err := d.cfg.Local()
	if err != nil {
		return err
	}
	return d.plan(s, o).AwaitTarget(ctx, func(ctx context.Context) error {
		return d.Host.AskTarget(ctx, to, o, d.cfg.Raft().Committed().Mark().Index, term)
	})
}

// Follow is what AskTarget asks of another node: see Target.Follow.
func (d *Duties) Follow(ctx context.Context, index, term uint64) error {
	return Target{
		Role: d.Host.Role, Local: func() (TargetServer, error) { return d.cfg.Local() },
		WaitIndex: d.Host.WaitIndex, Committed: committed{d.cfg.Raft()}.GTIDs,
		Chosen: func(term uint64) { d.cfg.Inbox.Put(ctx, role.Chosen{Term: term}) },
	}.Follow(ctx, index, term)
}

// Settle settles the primary of a term: its mysqld is to become a replica without
// being killed. After an error the caller kills it: mysqld may have more than what
// was committed.
func (d *Duties) Settle(ctx context.Context, term uint64) (err error) {
	began := d.cfg.Clock.Now()
	defer func() {
		if err != nil {
			d.killed.Add(1)
		}
	}()
	s, err := d.cfg.Local()
	t := d.of(term)
	if err != nil || t == nil || s.Incarnation() != t.Incarnation {
		return errors.New("its tap is closed")
	}
	d.cfg.Pace.SetOpen(false)
	if err := d.cfg.Clients.ClosePort(ctx); err != nil { // no more requests
		return fmt.Errorf("close mysqld's own port to requests: %w", err)
	}
	number, acknowledged, err := Settling{
		Term: term, Server: s, Tap: t, Log: d.cfg.Raft().Committed(), AcksAreCommits: d.acksAreCommits, Clock: d.cfg.Clock,
	}.Run(ctx)
	if err != nil {
		return err
	}
	d.cfg.Clients.AwaitAnswers(ctx)
	d.settled = t.Incarnation
	d.Host.Settled(term, number, acknowledged, d.cfg.Clock.Now()-began)
	return nil
}

var (
	_ Service = (*Duties)(nil)
	_ Steps   = (*Duties)(nil)
)
