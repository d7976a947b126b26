package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
)

var errLost = errors.New("the connection to mysqld was lost")

// steps are what the role machine asks for, with the mysqld that runs. It implements primary.Service and
// primary.Steps.
type steps struct{ *agent }

// sql is the time that a statement takes on the current mysqld.
func (a *agent) sql(ctx context.Context) (*mysqld, error) {
	p := a.process
	if p == nil {
		return nil, primary.ErrNoMysqld
	}
	if err := a.life.Wait(ctx, sqlMin+around(a.n.rng, sqlSpread), nil); err != nil {
		return nil, err
	}
	if p.dead {
		return nil, errLost
	}
	return p, nil
}

// StartMysqld implements primary.Steps.
func (a steps) StartMysqld(ctx context.Context, replicaBinlog bool) (uint64, error) {
	a.setMysqld(status.MysqldStarting)
	if err := a.life.Wait(ctx, startMin+around(a.n.rng, startSpread)+a.n.startDelay, nil); err != nil {
		return 0, fmt.Errorf("start mysqld: %w", err)
	}
	p := a.n.spawn(replicaBinlog)
	a.process = p
	a.life.start(func() { a.watchProcess(p) })
	if err := a.life.Wait(ctx, around(a.n.rng, startSpread), p.exited.next()); err != nil || p.dead {
		a.KillMysqld(ctx)
		return 0, fmt.Errorf("wait for mysqld: %w", errors.Join(err, errLost))
	}
	p.ready = true
	a.setMysqld(status.MysqldRunning)
	return p.incarnation, nil
}

func (a *agent) setMysqld(state status.MysqldState) {
	a.board.Update(func(s *status.Node) { s.Mysqld = state })
}

// watchProcess tells the role machine when a mysqld has ended.
func (a *agent) watchProcess(p *mysqld) {
	for !p.gone {
		a.life.await(0, &p.exited)
	}
	p.ready = false
	a.setMysqld(status.MysqldStopped)
	a.input(role.MysqldExited{Incarnation: p.incarnation, Reason: p.reason})
}

// SignalKill implements primary.Steps.
func (a steps) SignalKill() {
	if a.process != nil {
		a.process.kill("killed by its agent")
	}
}

// KillMysqld kills mysqld, if there is one, and waits until it is gone.
func (a steps) KillMysqld(context.Context) {
	p := a.process
	if p == nil {
		return
	}
	p.kill("killed by its agent")
	for !p.gone {
		a.life.await(0, &p.exited)
	}
	a.process = nil
}

// StopMysqld stops a mysqld of which CloseWrites has proven that no session
// waits for an ACK.
func (a steps) StopMysqld() {
	p := a.process
	if p == nil {
		return
	}
	a.life.sleep(10*time.Millisecond + around(a.n.rng, 50*time.Millisecond))
	if p.Waiting()+p.Queued() > 0 && !p.Writing() { // what super_read_only passes: StopGracefully looks
		p.kill("a session waits")
	} else {
		a.n.check.stopping(p)
		p.stopGracefully("stopped by its agent")
	}
	for !p.gone {
		a.life.await(0, &p.exited)
	}
	a.process = nil
}

// Judge decides whether mysqld may replicate or, with promote, serve (I3).
func (a steps) Judge(ctx context.Context, promote bool) error {
	return primary.Judge{
		Server: localServer{a.agent}, Log: barrierLog{a.committedLog(), &a.loop}, Durable: a.durable,
		Dir: "mysql", Judged: a.judged,
	}.Run(ctx, promote)
}

func (a *agent) judged(v replay.Verdict) {
	if v.Refused != "" {
		a.n.check.refused(a.n, v)
		return
	}
	a.n.log("judge", "mysqld holds the log up to %d, no-ops %s", v.Index, v.Done)
	if !v.Again.IsEmpty() {
		a.marker.UsesXA()
	}
}

// barrierLog is the committed log, and how it is waited for.
type barrierLog struct {
	committedLog
	loop *loop
}

// Barrier and GTIDs implement primary.Committed.
func (l barrierLog) Barrier(ctx context.Context) error { return l.loop.barriers.Wait(ctx) }
func (l barrierLog) GTIDs() *gtid.Set                  { return l.group.Committed().GTIDs() }

// Replicate points mysqld to its own agent's feed.
func (a steps) Replicate(ctx context.Context) error {
	return primary.Replicate{
		Server: localServer{a.agent}, Committed: a.committedGTIDs,
		WasPrimary: a.process != nil && a.openedIncarnation == a.process.incarnation, Tidied: func() { a.openedIncarnation = 0 },
	}.Run(ctx)
}

// CatchUp waits until mysqld has everything that is committed, then stops its
// replication.
func (a steps) CatchUp(ctx context.Context) error {
	_, err := primary.CatchUp{
		Server: localServer{a.agent}, Log: barrierLog{a.committedLog(), &a.loop}, MayOpen: a.mayOpen, Clock: a.life,
		Progressed: func() { a.input(role.Progress{}) }, Slow: func(string) {},
	}.Run(ctx)
	return err
}

// OpenWrites makes mysqld writable and looks again whether it may be.
func (a steps) OpenWrites(ctx context.Context, term uint64) error {
	a.lagBound.SetOpen(true)
	p := a.process
	if p == nil {
		return primary.ErrNoMysqld
	}
	a.openedIncarnation = p.incarnation
	err := primary.OpenWrites(ctx, localServer{a.agent}, term, func() bool {
		_, _, there := a.epochs.Tap(term)
		return a.loop.role.Leads(term) && there
	})
	if err != nil {
		return err
	}
	p.strayACK()
	a.w.happened(pointOpened, a.n)
	return nil
}

// CloseWrites makes mysqld read-only, within the limit of an operator's plan if there is one.
func (a steps) CloseWrites(ctx context.Context) error {
	a.lagBound.SetOpen(false)
	if o := a.orders.Now(); o != nil {
		return a.plan(o).CloseWrites(ctx)
	}
	if a.process == nil {
		return nil
	}
	return primary.CloseWrites(ctx, localServer{a.agent}, a.life)
}
