package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
)

// What a member does for a node that joins: it says from where on, and carries the
// copy of its mysqld's data. The other side is join.go. See package join.

// The requests of a node that joins.
const (
	seedPlanRequest = "seed.plan"
	seedDataRequest = "seed.data"
)

const (
	// seedConnectionsMax bounds the connections of one copy: mysqld opens five, and new ones
	// for those that were cut off.
	seedConnectionsMax = 8
	// seedIdleMax is how long a copy's password is good without a connection.
	seedIdleMax = 10 * time.Minute
	// seedingsMax bounds the copies: a cluster has at most 9 members. A removed node may have left a copy behind.
	seedingsMax = 9
)

var errNotSeeded = errors.New("the joining node has no plan for the copy: it must ask for one first")

// seedings are the copies of this node's mysqld that other nodes may make now.
type seedings struct {
	mu sync.Mutex
	of map[string]*seeding // by the node that joins
}

// seeding is one copy, by one node.
type seeding struct {
	// password lets in as mysqld.CloneUser, here and for this copy only.
	password string
	open     int
	used     time.Time     // when the password was told, or the last connection ended
	ended    chan struct{} // closed when its connections are to end
}

// begin ends the copy that a node may have made so far, and returns the password of the
// next one.
func (s *seedings) begin(node string, now time.Time) (password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.of[node]; old != nil {
		close(old.ended)
	}
	delete(s.of, node)
	s.forget(now)
	if s.of == nil {
		s.of = map[string]*seeding{}
	}
	g := &seeding{password: rand.Text(), used: now, ended: make(chan struct{})}
	s.of[node] = g
	return g.password
}

// forget drops the copies whose password is not good any more, and then, until there is room, the one without
// connections that was used longest ago. Copies with connections are of members that join (awaitSeeded), and so
// fewer than members. s.mu is held.
func (s *seedings) forget(now time.Time) {
	for {
		oldest := ""
		for node, g := range s.of {
			if g.open == 0 && (oldest == "" || g.used.Before(s.of[oldest].used)) {
				oldest = node
			}
		}
		if oldest == "" || len(s.of) < seedingsMax && now.Sub(s.of[oldest].used) <= seedIdleMax {
			return
		}
		delete(s.of, oldest)
	}
}

// enter counts a connection of a node's copy in. leave counts it out.
func (s *seedings) enter(node string, now time.Time) (g *seeding, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g = s.of[node]
	switch {
	case g == nil || g.open == 0 && now.Sub(g.used) > seedIdleMax:
		return nil, nil, errNotSeeded
	case g.open >= seedConnectionsMax:
		return nil, nil, errors.New("the copy has as many connections as it may have")
	}
	g.open++
	return g, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		g.open--
		g.used = time.Now()
	}, nil
}

// controlSeedPlan answers a node that joins.
func (a *Agent) controlSeedPlan(ctx context.Context, r control.Request) (operate.Done, error) {
	p, err := a.AsMember(func(joiner string) string { return a.seedings.begin(joiner, time.Now()) }).Plan(ctx, r.From)
	if err != nil {
		return operate.Done{}, control.Errorf(control.CodeFailed, "%v", err)
	}
	return operate.Done{Result: p}, nil
}

// joins tells whether a node is one that may copy, by the committed state; changed is
// closed once that may be otherwise.
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

// serveSeedData lets another node's mysqld into this one's socket, as the account that
// copies and no other, and carries the bytes until either has had enough, the node is no
// longer one that joins, or its next copy begins.
func (a *Agent) serveSeedData(ctx context.Context, r control.Request, conn net.Conn) {
	g, leave, err := a.seedings.enter(r.From, time.Now())
	if err != nil {
		a.logger.Warn("seed a node", "node", r.From, "error", err)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		defer cancel()
		a.awaitSeeded(ctx, r.From, g)
	})
	door := mysqlwire.Door{
		Socket: a.server.Socket(), Version: a.install.Load().Version.String(),
		User: mysqld.CloneUser, Password: a.secrets.Clone(), ClientPassword: g.password,
	}
	local, err := door.Open(ctx, conn)
	if err != nil {
		if ctx.Err() == nil {
			a.logger.Warn("seed a node", "node", r.From, "error", err)
		}
		return
	}
	splice(ctx, conn, local)
}

// awaitSeeded returns once the connections of a copy are to end.
func (a *Agent) awaitSeeded(ctx context.Context, node string, g *seeding) {
	for {
		ok, changed := a.joins(node)
		if !ok {
			return
		}
		select {
		case <-changed:
		case <-g.ended:
			return
		case <-ctx.Done():
			return
		}
	}
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
