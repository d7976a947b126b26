package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
)

// What a member does for a node that joins: it says what to copy, and carries the copy
// of its mysqld's data. The other side is join.go. See package join.

// The requests of a node that joins.
const (
	seedPlanRequest = "seed.plan"
	seedDataRequest = "seed.data"
)

// controlSeedPlan answers a node that joins.
func (a *Agent) controlSeedPlan(ctx context.Context, r control.Request) (operate.Done, error) {
	p, err := a.AsMember(func(joiner string) string { return a.copies.Begin(joiner, time.Now()) }).Plan(ctx, r.From)
	if err != nil {
		return operate.Done{}, control.Errorf(control.CodeFailed, "%v", err)
	}
	return operate.Done{Result: p}, nil
}

// joins tells whether a node is a member without a vote in the committed state: only such a
// node may copy. changed is closed once that may be different.
func (a *Agent) joins(node string) (ok bool, changed <-chan struct{}) {
	p, changed := a.Raft.Committed().StateChanged()
	m, err := p.State.Member(node)
	return node != "" && err == nil && !m.Votes(), changed
}

// controlSeedData answers a request for the copy of mysqld's data: what follows on
// the stream is between the two servers (serveSeedData).
func (a *Agent) controlSeedData(_ context.Context, r control.Request) (operate.Done, error) {
	switch ok, _ := a.joins(r.From); {
	case !ok:
		return operate.Done{}, control.Errorf(control.CodeInvalid, "data are copied only to a node that joins")
	case a.currentProcess() == nil:
		return operate.Done{}, primary.ErrNoMysqld
	}
	return operate.Done{}, nil
}

// serveSeedData connects another node's mysqld to this one's socket, as the account for copies
// and no other. It carries the bytes until either side ends, the node may no longer copy, or
// its next copy begins.
func (a *Agent) serveSeedData(ctx context.Context, r control.Request, conn net.Conn) {
	c, leave, err := a.copies.Enter(r.From, time.Now())
	if err != nil {
		a.logger.Warn("seed a node", "node", r.From, "error", err)
		return
	}
	defer func() { leave(time.Now()) }()
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		defer cancel()
		a.awaitSeeded(ctx, r.From, c)
	})
	door := mysqlwire.Door{
		Socket: a.local.Server().Socket(), Version: a.local.Installed.Load().Version.String(),
		User: mysqld.CloneUser, Password: a.secrets.Clone(), ClientPassword: c.Password,
	}
	local, err := door.Open(ctx, conn)
	if err != nil {
		if ctx.Err() == nil {
			a.logger.Warn("seed a node", "node", r.From, "error", err)
		}
		return
	}
	if err := splice(ctx, conn, local); errors.Is(err, mysqlwire.ErrNoCopy) {
		a.logger.Warn("seed a node", "node", r.From, "error", err)
	}
}

// awaitSeeded returns once the connections of a copy are to end.
func (a *Agent) awaitSeeded(ctx context.Context, node string, c *join.DataCopy) {
	for {
		ok, changed := a.joins(node)
		if !ok {
			return
		}
		select {
		case <-changed:
		case <-c.Ended():
			return
		case <-ctx.Done():
			return
		}
	}
}

// splice copies both ways until one connection ends, or ctx does, and closes both. It returns why they ended.
func splice(ctx context.Context, x, y net.Conn) error {
	shut := sync.OnceFunc(func() { _ = errors.Join(x.Close(), y.Close()) })
	stop := context.AfterFunc(ctx, shut)
	defer stop()
	var both sync.WaitGroup
	var errs [2]error
	for i, way := range [][2]net.Conn{{x, y}, {y, x}} {
		both.Go(func() {
			defer shut()
			_, errs[i] = io.Copy(way[0], way[1])
		})
	}
	both.Wait()
	return errors.Join(errs[:]...)
}
