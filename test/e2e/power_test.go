package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/faultmount"
)

// TestPowerLoss takes the power away: bytes that a log or a mysqld has written and not
// synced are lost from its disk. Killing a process does not do that.
func TestPowerLoss(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.think = busy
	p := &power{fixture: f, dirs: []string{"log", "mysql"}}
	for _, dir := range p.dirs {
		p.disks = append(p.disks, f.faultDisks(t, dir))
	}
	f.scenario(t, "All", func(t *testing.T, ctx context.Context) {
		f.heal(t, ctx)
		p.lose(t, ctx, 0, 1, 2)
	})
	f.scenario(t, "Primary", func(t *testing.T, ctx context.Context) {
		p.lose(t, ctx, f.heal(t, ctx))
	})
	f.scenario(t, "FollowersCannotWrite", p.followersCannotWrite)
}

// power is a cluster of which each node's disks can lose their power.
type power struct {
	*fixture
	dirs  []string
	disks [][]*faultmount.Mount // by directory, then node
}

// lose cuts the power of some nodes at once, under load, and gives it back.
func (p *power) lose(t *testing.T, ctx context.Context, nodes ...int) {
	before := p.dataIdentity(t, ctx)
	l := p.start(t, 6)
	l.awaitAcks(t, ctx, 200)
	l.ResetGap()
	p.cut(t, nodes...)
	if len(nodes) < p.Len() {
		p.takenOver(t, ctx, nodes[0])
		l.awaitAcks(t, ctx, 200)
	}
	p.restore(t, ctx, nodes...)
	p.heal(t, ctx)
	l.awaitAcks(t, ctx, 200)
	t.Logf("write gap %v", l.Gap())
	l.stop(t)
	p.check(t, ctx)
	p.mustNotBeRebuilt(t, ctx, before)
	p.verifyLogs(t, ctx)
}

func (p *power) cut(t *testing.T, nodes ...int) {
	t.Helper()
	atOnce(t, nodes, func(i int) error {
		var errs []error
		for _, disks := range p.disks {
			errs = append(errs, disks[i].CutPower())
		}
		return errors.Join(errs...)
	})
	// An agent may have seen its disk fail, and ended, before it is killed.
	atOnce(t, nodes, func(i int) error {
		if err := p.KillBoth(i); p.AgentPID(i) != 0 {
			return err
		}
		return nil
	})
}

// restore mounts what is left on the disks of some nodes.
func (p *power) restore(t *testing.T, ctx context.Context, nodes ...int) {
	t.Helper()
	for d, dir := range p.dirs {
		for _, i := range nodes {
			at := filepath.Join(p.DataDir(i), dir)
			if err := p.disks[d][i].Close(); err != nil {
				t.Fatal(err)
			}
			m, err := faultmount.Start(ctx, at+".disk", at)
			if err != nil {
				t.Fatal(err)
			}
			p.disks[d][i] = m
		}
	}
}

// followersCannotWrite: the followers receive the primary's transactions and cannot
// write them. Nobody gets OK, so these transactions may be lost when all nodes lose their power.
func (p *power) followersCannotWrite(t *testing.T, ctx context.Context) {
	primary := p.heal(t, ctx)
	logs := p.disks[0]
	for _, i := range p.others(primary) {
		p.setFaults(t, logs[i], faultmount.Fault{Ops: faultmount.Write, Hold: true})
	}
	l := p.start(t, 4, primary)
	p.awaitWaiting(t, ctx, primary)
	for _, i := range p.others(primary) {
		if err := devcluster.Poll(ctx, "a follower has received something", func(context.Context) (bool, string, error) {
			s, err := logs[i].Status()
			return s.Held > 0, "it writes nothing", err
		}); err != nil {
			t.Fatal(err)
		}
	}
	p.cut(t, 0, 1, 2)
	l.mustHaveNoOK(t)
	p.restore(t, ctx, 0, 1, 2)
	p.heal(t, ctx)
	p.check(t, ctx)
}
