package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
)

var errLost = errors.New("the connection to mysqld was lost")

// operate executes one operation.
func (a *agent) operate(ctx context.Context, e role.Effect) (incarnation uint64, err error) {
	if e.Term != 0 && e.Kind != role.Settle {
		if r := a.loop.role; !r.Leading || r.Term != e.Term {
			return 0, fmt.Errorf("this node does not lead in term %d (any more)", e.Term)
		}
	}
	if e.Kind == role.Judge || e.Kind == role.Replicate {
		var cancel context.CancelFunc
		ctx, cancel = a.life.WithTimeout(ctx, promotionTimeout)
		defer cancel()
	}
	switch e.Kind {
	case role.StartMysqld:
		return a.startMysqld(ctx, e.ReplicaBinlog)
	case role.Judge:
		return 0, a.judge(ctx, e.Promote)
	case role.Replicate:
		return 0, a.replicate(ctx)
	case role.CatchUp:
		return 0, a.catchUp(ctx)
	case role.OpenTap:
		return 0, a.openTap(ctx, e.Term)
	case role.CommitEpoch:
		return 0, a.commitEpoch(ctx, e.Term)
	case role.OpenWrites:
		return 0, a.openWrites(ctx, e.Term)
	case role.CloseWrites:
		return 0, a.closeWrites(ctx)
	case role.Settle:
		return 0, a.settlePrimary(ctx, e.Term)
	case role.AwaitTarget:
		return 0, a.awaitTarget(ctx, e)
	case role.StopMysqld:
		a.stopMysqld()
		return 0, nil
	case role.KillMysqld:
		a.killMysqld()
		return 0, nil
	}
	return 0, fmt.Errorf("unknown effect %s", e)
}

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

func (a *agent) startMysqld(ctx context.Context, replicaBinlog bool) (uint64, error) {
	a.setMysqld(cluster.MysqldStarting)
	if err := a.life.Wait(ctx, startMin+around(a.n.rng, startSpread)+a.n.startDelay, nil); err != nil {
		return 0, fmt.Errorf("start mysqld: %w", err)
	}
	p := a.n.spawn(replicaBinlog)
	a.process = p
	a.life.start(func() { a.watchProcess(p) })
	if err := a.life.Wait(ctx, around(a.n.rng, startSpread), p.exited.next()); err != nil || p.dead {
		a.killMysqld()
		return 0, fmt.Errorf("wait for mysqld: %w", errors.Join(err, errLost))
	}
	p.ready = true
	a.setMysqld(cluster.MysqldRunning)
	return p.incarnation, nil
}

func (a *agent) setMysqld(state cluster.MysqldState) {
	a.board.Update(func(s *cluster.NodeStatus) { s.Mysqld = state })
}

// watchProcess tells the role machine when a mysqld has ended.
func (a *agent) watchProcess(p *mysqld) {
	for !p.gone {
		a.life.await(0, &p.exited)
	}
	p.ready = false
	a.setMysqld(cluster.MysqldStopped)
	a.input(role.MysqldExited{Incarnation: p.incarnation, Reason: p.reason})
}

// killMysqld kills mysqld, if there is one, and waits until it is gone.
func (a *agent) killMysqld() {
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

// stopMysqld stops a mysqld of which closeWrites has proven that no session
// waits for an ACK.
func (a *agent) stopMysqld() {
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

// judge decides whether mysqld may replicate or, with promote, serve (I3).
func (a *agent) judge(ctx context.Context, promote bool) error {
	return primary.Judge{
		Server: localServer{a}, Log: barrierLog{a.committedLog(), &a.loop}, Durable: a.durable,
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

// replicate points mysqld to its own agent's feed.
func (a *agent) replicate(ctx context.Context) error {
	return primary.Replicate{
		Server: localServer{a}, Committed: a.committedGTIDs,
		WasPrimary: a.process != nil && a.openedIncarnation == a.process.incarnation, Tidied: func() { a.openedIncarnation = 0 },
	}.Run(ctx)
}

// catchUp waits until mysqld has everything that is committed, then stops its
// replication.
func (a *agent) catchUp(ctx context.Context) error {
	_, err := primary.CatchUp{
		Server: localServer{a}, Log: barrierLog{a.committedLog(), &a.loop}, MayOpen: a.mayOpen, Clock: a.life,
		Progressed: func() { a.input(role.Progress{}) }, Slow: func(string) {},
	}.Run(ctx)
	return err
}

// openWrites makes mysqld writable and looks again whether it may be.
func (a *agent) openWrites(ctx context.Context, term uint64) error {
	p := a.process
	if p == nil {
		return primary.ErrNoMysqld
	}
	a.lagBound.SetOpen(true)
	a.openedIncarnation = p.incarnation
	err := primary.OpenWrites(ctx, localServer{a}, term, func() bool {
		return a.loop.role.Leading && a.loop.role.Term == term && a.epochOf(term) != nil
	})
	if err != nil {
		return err
	}
	p.strayACK()
	a.w.happened(pointOpened, a.n)
	return nil
}

// closeWrites makes mysqld read-only, within the limit of an operator's plan if there is one.
func (a *agent) closeWrites(ctx context.Context) error {
	a.lagBound.SetOpen(false)
	switch {
	case a.moving != nil:
		return a.moving.plan(a).CloseWrites(ctx)
	case a.process == nil:
		return nil
	}
	return primary.CloseWrites(ctx, localServer{a}, a.life)
}
