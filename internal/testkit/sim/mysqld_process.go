package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/role"
)

var errLost = errors.New("the connection to mysqld was lost")

// mysqldProcess starts and ends the local mysqld. It implements primary.Process.
type mysqldProcess struct{ *agent }

// StartMysqld implements primary.Process.
func (a mysqldProcess) StartMysqld(ctx context.Context, replicaBinlog bool) (uint64, error) {
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
	p.ready, a.reads.polled = true, nil
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

// SignalKill implements primary.Process.
func (a mysqldProcess) SignalKill() {
	if a.process != nil {
		a.process.kill("killed by its agent")
	}
}

// KillMysqld kills mysqld, if there is one, and waits until it is gone.
func (a mysqldProcess) KillMysqld(context.Context) {
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

// StopMysqld stops a mysqld. CloseWrites has proven before that no session waits for an ACK.
func (a mysqldProcess) StopMysqld() {
	p := a.process
	if p == nil {
		return
	}
	a.life.sleep(10*time.Millisecond + around(a.n.rng, 50*time.Millisecond))
	// A statement that super_read_only lets pass may wait: StopGracefully of the product looks for that.
	if p.Waiting()+p.Queued() > 0 && !p.Writing() {
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
