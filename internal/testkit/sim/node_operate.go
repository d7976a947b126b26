package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/replay"
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

// StopMysqld stops a mysqld of which CloseWrites has proven that no session
// waits for an ACK.
func (a mysqldProcess) StopMysqld() {
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

// mysqldHost is a node around its mysqld. It implements member.Host.
type mysqldHost struct{ *agent }

// Durable and what follows implement member.Host.
func (h mysqldHost) Durable() replay.Mark          { return h.durable() }
func (h mysqldHost) CatchingUp(string)             {}
func (h mysqldHost) CaughtUp(int64, time.Duration) {}

// Judged implements member.Host.
func (h mysqldHost) Judged(v replay.Verdict) {
	if v.Refused != "" {
		h.n.check.refused(h.n, v)
		return
	}
	h.n.log("judge", "mysqld holds the log up to %d, no-ops %s", v.Index, v.Done)
}

// Settled implements member.Host.
func (h mysqldHost) Settled(term, _ uint64, acknowledged int, _ time.Duration) {
	h.n.check.settled(h.agent, h.epoch)
	h.w.settles.Kept++
	if acknowledged > 0 {
		h.w.settles.Late++
	}
	h.n.log("settled", "term %d: %d acknowledged", term, acknowledged)
}

// AskTarget implements member.Host.
func (h mysqldHost) AskTarget(ctx context.Context, to cluster.NodeID, o *primary.Order, index, term uint64) error {
	within := o.Left()
	_, err := callAgent(ctx, h.life, h.known, h.w.node(to), func(b *agent) (struct{}, error) {
		ctx, cancel := b.life.WithTimeout(context.Background(), within)
		defer cancel()
		return struct{}{}, b.Duties.Follow(ctx, index, term)
	})
	return err
}

// WaitIndex implements member.Host.
func (h mysqldHost) WaitIndex(ctx context.Context, index uint64) error {
	for {
		mark, changed := h.Raft.Committed().Changed()
		if mark.Index >= index {
			return nil
		}
		if err := h.life.Wait(ctx, 0, changed); err != nil {
			return err
		}
	}
}

// MayOpen says whether maintenance lets this node open.
func (h mysqldHost) MayOpen() error {
	if h.w.held && h.w.heldFor != h.n.id {
		return errors.New("maintenance is on")
	}
	return nil
}

// clients are those of a node's mysqld. It implements primary.Clients.
type clients struct{ *agent }

// Hold and what follows implement primary.Clients. All come by the router.
func (c clients) Hold()                           {}
func (c clients) CloseAll()                       { c.w.load.closeSessions(c.n) }
func (c clients) OwnPort() bool                   { return false }
func (c clients) ClosePort(context.Context) error { return nil }
func (c clients) AwaitPort()                      {}
func (c clients) EndReads(context.Context) error  { return nil }
func (c clients) AwaitAnswers(context.Context)    {}

// Wake has the router look soon which of its connections it closes.
func (c clients) Wake() {
	c.board.Wake()
	c.life.after(c.n.hiccup(), func() {
		if !c.Slot.Serving() && !c.Slot.Answering() {
			c.CloseAll()
		}
	})
}
