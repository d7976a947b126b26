package agent

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/router"
)

// readsEvery is how often it is looked which nodes may be read, beside each change that matters.
const readsEvery = 200 * time.Millisecond

// reads is the read-only port: which nodes its clients read. It implements router.Backend.
type reads struct {
	a      *Agent
	router *router.Router // nil: there is no such port
	policy status.Reads
	turn   atomic.Uint64
	// open: mysqld here is a replica's, which takes no writes.
	open atomic.Bool

	mu sync.Mutex
	// served: clients have come to this node's mysqld to read since their sessions were ended last.
	served  bool
	leaving leaving
	changed chan struct{}
}

func (a *Agent) buildReads() {
	c := a.cfg.Router
	a.reads = &reads{
		a: a, policy: status.Reads{LagMax: c.ReadMaxLag, Primary: c.ReadPrimary, Here: !c.Forward},
		leaving: leaving{grace: c.ReadGrace}, changed: make(chan struct{}),
	}
	if c.ReadOnly != "" {
		a.reads.router = router.New(router.Config{
			Listen: c.ReadOnly, ReadOnly: true, HoldTimeout: c.HoldTimeout, HoldMax: c.HoldMax, Refuse: !c.Forward,
			Name: a.board.Name, Allow: c.Allow, Logger: a.logger.With("port", "read_only"),
		}, a.reads)
	}
}

// listen opens the port, if there is one.
func (r *reads) listen() error {
	if r.router == nil {
		return nil
	}
	return r.router.Listen()
}

func (r *reads) unlisten() {
	if r.router != nil {
		r.router.Unlisten()
	}
}

// Run serves the port until ctx ends.
func (r *reads) Run(ctx context.Context) error {
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

// handle takes a client that another node has sent here to read.
func (r *reads) handle(conn net.Conn) {
	if r.router == nil {
		_ = conn.Close()
		return
	}
	r.router.HandleRouted(conn)
}

// watch follows which nodes may be read, and tells the router of changes.
func (r *reads) watch(ctx context.Context) {
	ticker := time.NewTicker(readsEvery)
	defer ticker.Stop()
	for {
		changed := r.a.board.Changes() // before the look, so that no change is missed
		r.look(time.Now())
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// look notes who may be read now.
func (r *reads) look(now time.Time) {
	nodes := r.nodes()
	r.mu.Lock()
	defer r.mu.Unlock()
	// Under the lock: whoever shuts the port after its node was a replica does that later.
	replica := r.a.board.Own().Role == status.RoleReplica
	opened := r.open.Swap(replica) != replica
	if r.leaving.look(nodes, r.policy, now) || opened {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// end lets nobody read this node from here on, until it is a replica again, and ends the sessions, in mysqld, too.
func (r *reads) end(ctx context.Context) error {
	if r.router == nil {
		return nil
	}
	r.mu.Lock()
	served := r.served
	r.open.Store(false)
	r.served = false
	r.mu.Unlock()
	r.router.CloseAll()
	p := r.a.currentProcess()
	if p == nil || !served {
		return nil
	}
	if err := p.Admin().EndReaders(ctx); err != nil {
		r.mu.Lock()
		r.served = true
		r.mu.Unlock()
		return err
	}
	return nil
}

// nodes are all of them, this one as it is now.
func (r *reads) nodes() []status.Node {
	own := r.a.board.Own()
	r.a.lagStatus(&own)
	return r.a.board.NodesWith(own)
}

// Choose and what follows implement router.Backend.
func (r *reads) Choose(sessions func(cluster.NodeID) int, tried []cluster.NodeID) (router.Target, bool) {
	nodes := r.nodes()
	id, ok := r.policy.Choose(r.a.self.ID, nodes, sessions, tried, r.turn.Add(1))
	// A primary takes clients of this port as it takes those of the other one, its lease is looked at there.
	return router.Target{Node: id, Local: id == r.a.self.ID && !isPrimary(nodes, id)}, ok
}

// Takes looks again at everything: this node may have been promoted meanwhile.
func (r *reads) Takes(t router.Target) bool {
	id := t.Node
	if t.Local {
		id = r.a.self.ID
	}
	nodes := r.nodes()
	i := slices.IndexFunc(nodes, func(n status.Node) bool { return n.ID == id })
	return i >= 0 && r.policy.May(nodes[i]) && (!t.Local || r.open.Load())
}

// Leaves tells whether a node may not be read for longer than the grace.
func (r *reads) Leaves(t router.Target) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Local {
		t.Node = r.a.self.ID
	}
	return r.leaving.over[t.Node]
}

// Changed implements router.Backend.
func (r *reads) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// errTakesWrites refuses a client that reads at a mysqld that takes writes, or is about to.
var errTakesWrites = errors.New("mysqld is no replica's any more")

// DialLocal implements router.Backend. Who is let in under the lock is noted before end looks; all others come too late.
func (r *reads) DialLocal(ctx context.Context) (net.Conn, error) {
	r.mu.Lock()
	open := r.open.Load()
	r.served = r.served || open
	r.mu.Unlock()
	if !open {
		return nil, errTakesWrites
	}
	return routeBackend{r.a}.DialLocal(ctx)
}

// DialPeer implements router.Backend.
func (r *reads) DialPeer(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	switch {
	case !isPrimary(r.nodes(), id):
		return r.a.peers.DialRead(ctx, id)
	case id != r.a.self.ID:
		return r.a.peers.DialRoute(ctx, id)
	}
	near, far := net.Pipe()
	r.a.work.Go(func() { r.a.router.HandleRouted(far) }) // a refusal is written here, and read by the caller
	return near, nil
}

// Serving implements router.Backend.
func (r *reads) Serving() bool { return r.open.Load() }

// Answering implements router.Backend: what a replica answers needs no promise.
func (r *reads) Answering() bool { return false }

func isPrimary(nodes []status.Node, id cluster.NodeID) bool {
	return slices.ContainsFunc(nodes, func(n status.Node) bool { return n.ID == id && n.Role == status.RolePrimary })
}

// leaving knows which nodes sessions have to leave, because they may not be read for longer than the grace.
type leaving struct {
	grace time.Duration
	since map[cluster.NodeID]time.Time
	over  map[cluster.NodeID]bool
}

// look takes the nodes as they are, and tells whether a node may be read no more or again, or its grace is over.
func (l *leaving) look(nodes []status.Node, policy status.Reads, now time.Time) (news bool) {
	since, over := map[cluster.NodeID]time.Time{}, map[cluster.NodeID]bool{}
	for _, n := range nodes {
		if policy.May(n) {
			continue
		}
		at, known := l.since[n.ID]
		if !known {
			at = now
		}
		since[n.ID], over[n.ID] = at, now.Sub(at) >= l.grace
		news = news || !known || over[n.ID] != l.over[n.ID]
	}
	for id := range l.since {
		_, still := since[id]
		news = news || !still
	}
	l.since, l.over = since, over
	return news
}
