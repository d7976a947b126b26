package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/sys/clock"
)

// What a member does for a node that joins: it says from where on, and carries the
// copy of its mysqld's data. The other side is join.go. See package join.

// The requests of a node that joins.
const (
	seedPlanRequest = "seed.plan"
	seedDataRequest = "seed.data"
)

// asMember is this node to one that joins.
func (a *Agent) asMember() join.Member {
	return join.Member{
		Name: a.self.Name, Clock: clock.Machine{}, Barrier: a.node.Barrier, Committed: a.node.Committed(), Log: a.log,
		Nodes: a.nodes, Own: a.ownStatus, StateNeed: a.stateNeed, RunsMysqld: a.runsMysqld(), Durable: a.durable, Password: a.secrets.Clone,
	}
}

// controlSeedPlan answers a node that joins.
func (a *Agent) controlSeedPlan(ctx context.Context, r control.Request) (operate.Done, error) {
	p, err := a.asMember().Plan(ctx, r.From)
	if err != nil {
		return operate.Done{}, control.Errorf(control.CodeFailed, "%v", err)
	}
	return operate.Done{Result: p}, nil
}

// controlSeedData answers a request for the copy of mysqld's data: what follows on
// the stream is between the two servers (serveSeedData).
func (a *Agent) controlSeedData(_ context.Context, r control.Request) (operate.Done, error) {
	m, err := a.node.Committed().State().State.Member(r.From)
	switch {
	case r.From == "" || err != nil || m.Votes():
		return operate.Done{}, control.Errorf(control.CodeInvalid, "only a node that joins is seeded")
	case a.currentProcess() == nil:
		return operate.Done{}, primary.ErrNoMysqld
	}
	return operate.Done{}, nil
}

// serveSeedData carries the bytes between another node's mysqld and this one's
// socket until either has had enough.
func (a *Agent) serveSeedData(ctx context.Context, conn net.Conn) {
	local, err := new(net.Dialer).DialContext(ctx, "unix", a.server.Socket())
	if err != nil {
		a.logger.Warn("seed a node: connect to mysqld", "error", err)
		return
	}
	splice(ctx, conn, local)
}

// splice copies both ways until one ends, or ctx does, and closes both.
func splice(ctx context.Context, x, y net.Conn) {
	shut := sync.OnceFunc(func() { _ = errors.Join(x.Close(), y.Close()) })
	stop := context.AfterFunc(ctx, shut)
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{x, y}, {y, x}} {
		both.Go(func() {
			defer shut()
			_, _ = io.Copy(way[0], way[1])
		})
	}
	both.Wait()
}
