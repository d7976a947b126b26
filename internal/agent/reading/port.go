package reading

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/agent/freshness"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/router"
)

// readsEvery is how often the Port looks which nodes may be read, beside each change that matters.
const readsEvery = 200 * time.Millisecond

// Config is what a Port looks at, and whom it asks. All fields are required.
type Config struct {
	Self   cluster.NodeID
	Clocks freshness.Clocks
	// Policy says which nodes may be read. Grace is for how long sessions stay at a node that may be read no more.
	Policy status.Reads
	Grace  time.Duration
	// Nodes returns all nodes, this one as it is now. Replica tells whether this one is a replica. Changes returns
	// a channel that is closed when that may be different.
	Nodes   func() []status.Node
	Replica func() bool
	Changes func() <-chan struct{}
	// EndReaders ends the sessions in this node's mysqld that only read.
	EndReaders func(context.Context) error
	// DialLocal connects to this node's mysqld, DialRead to that of another node as a replica, DialPrimary to the primary.
	DialLocal   func(context.Context) (net.Conn, error)
	DialRead    func(context.Context, cluster.NodeID) (net.Conn, error)
	DialPrimary func(context.Context, cluster.NodeID) (net.Conn, error)
}

// Port is the read-only port: which nodes its clients read. It implements router.Backend.
type Port struct {
	cfg    Config
	router *router.Router // nil: there is no such port
	turn   atomic.Uint64
	// open: this node is a replica, so its mysqld takes no writes.
	open atomic.Bool
	// fresh is until when its data are as recent as Policy and Grace say, by the last look that found that it may be read.
	fresh atomic.Pointer[freshness.Window]

	mu sync.Mutex
	// served: clients have come to this node's mysqld to read since their sessions were ended last.
	served  bool
	leaving leaving
	changed chan struct{}
}

// New returns the port. at is how it is served; nil = this node has no such port.
func New(cfg Config, at *router.Config) *Port {
	r := &Port{cfg: cfg, leaving: leaving{grace: cfg.Grace}, changed: make(chan struct{})}
	r.fresh.Store(&freshness.Window{})
	if at != nil {
		r.router = router.New(*at, r)
	}
	return r
}

// Router serves the port; nil: there is none here.
func (r *Port) Router() *router.Router { return r.router }

// Listen opens the port, if there is one.
func (r *Port) Listen() error {
	if r.router == nil {
		return nil
	}
	return r.router.Listen()
}

// Unlisten closes it.
func (r *Port) Unlisten() {
	if r.router != nil {
		r.router.Unlisten()
	}
}

// Run serves the port until ctx ends.
func (r *Port) Run(ctx context.Context) error {
	if r.router == nil {
		return nil
	}
	var look sync.WaitGroup
	defer look.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	look.Go(func() { r.watch(ctx) })
	return r.router.Run(ctx)
}

// Handle takes a client that another node has sent here to read.
func (r *Port) Handle(conn net.Conn, from cluster.NodeID) {
	if r.router == nil {
		_ = conn.Close()
		return
	}
	r.router.HandleRouted(conn, from)
}

// watch follows which nodes may be read, and tells the router of changes.
func (r *Port) watch(ctx context.Context) {
	ticker := time.NewTicker(readsEvery)
	defer ticker.Stop()
	for {
		changed := r.cfg.Changes() // before the look, so that no change is missed
		r.Look(time.Now())
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// nodes returns all nodes, and notes until when this one is fresh.
func (r *Port) nodes() []status.Node {
	now := freshness.WindowOf(r.cfg.Clocks, 0) // first: this agent may stand still at any point
	nodes := r.cfg.Nodes()
	for _, n := range nodes {
		if n.ID == r.cfg.Self && n.Unreadable(r.cfg.Policy.LagMax) == "" {
			left := r.cfg.Policy.LagMax - n.DataAge() + r.cfg.Grace
			r.fresh.Store(&freshness.Window{Boot: now.Boot + left, Wall: now.Wall + left})
		}
	}
	return nodes
}

// Look notes which nodes may be read now.
func (r *Port) Look(now time.Time) {
	nodes := r.nodes()
	r.mu.Lock()
	defer r.mu.Unlock()
	// Hold the lock: a concurrent End must run after this check.
	replica := r.cfg.Replica()
	opened := r.open.Swap(replica) != replica
	if r.leaving.look(nodes, r.cfg.Policy, now) || opened {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// End lets nobody read this node from here on, until it is a replica again, and ends the sessions, in mysqld, too.
func (r *Port) End(ctx context.Context) error {
	if r.router == nil {
		return nil
	}
	r.mu.Lock()
	served := r.served
	r.open.Store(false)
	r.served = false
	r.mu.Unlock()
	r.router.CloseAll()
	if !served {
		return nil
	}
	if err := r.cfg.EndReaders(ctx); err != nil {
		r.mu.Lock()
		r.served = true
		r.mu.Unlock()
		return err
	}
	return nil
}

// Choose and what follows implement router.Backend.
func (r *Port) Choose(sessions func(cluster.NodeID) int, tried []cluster.NodeID) (router.Target, bool) {
	nodes := r.nodes()
	id, ok := r.cfg.Policy.Choose(r.cfg.Self, nodes, sessions, tried, r.turn.Add(1))
	// A primary takes clients of this port like those of its read-write port, where its lease is looked at.
	return router.Target{Node: id, Local: id == r.cfg.Self && !isPrimary(nodes, id)}, ok
}

// Takes looks again at everything: this node may have been promoted meanwhile.
func (r *Port) Takes(t router.Target) bool {
	id := t.Node
	if t.Local {
		id = r.cfg.Self
	}
	nodes := r.nodes()
	i := slices.IndexFunc(nodes, func(n status.Node) bool { return n.ID == id })
	return i >= 0 && r.cfg.Policy.May(nodes[i]) && (!t.Local || r.open.Load())
}

// Leaves tells whether a node may not be read for longer than the grace.
func (r *Port) Leaves(t router.Target) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Local {
		t.Node = r.cfg.Self
	}
	return r.leaving.over[t.Node]
}

// Changed implements router.Backend.
func (r *Port) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// ErrTakesWrites refuses a client that reads at a mysqld that takes writes, or is about to.
var ErrTakesWrites = errors.New("this node's mysqld is not a replica any more")

// DialLocal implements router.Backend. A client that is let in is noted under the lock, before End looks; all others
// come too late.
func (r *Port) DialLocal(ctx context.Context) (net.Conn, error) {
	r.mu.Lock()
	open := r.open.Load()
	r.served = r.served || open
	r.mu.Unlock()
	if !open {
		return nil, ErrTakesWrites
	}
	return r.cfg.DialLocal(ctx)
}

// DialPeer implements router.Backend.
func (r *Port) DialPeer(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	if isPrimary(r.cfg.Nodes(), id) {
		return r.cfg.DialPrimary(ctx, id)
	}
	return r.cfg.DialRead(ctx, id)
}

// Serving implements router.Backend. An agent that stood still has not looked: so it asks for the time, too.
func (r *Port) Serving() bool { return r.open.Load() && r.fresh.Load().Lasted(r.cfg.Clocks, 0) }

// Answering implements router.Backend: what a replica answers needs no promise.
func (r *Port) Answering() bool { return false }

func isPrimary(nodes []status.Node, id cluster.NodeID) bool {
	return slices.ContainsFunc(nodes, func(n status.Node) bool { return n.ID == id && n.Role == status.RolePrimary })
}
