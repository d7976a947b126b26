package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/core"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/recovery"
)

// board holds what is known of this node and what its peers say of themselves.
type board struct {
	mu      sync.Mutex
	members []cluster.Member // as the cluster state has them
	state   cluster.State
	// named is members for who may hold no lock.
	named atomic.Pointer[[]cluster.Member]
	self  cluster.NodeStatus
	peers map[cluster.NodeID]peerReport
	// met tells with which data directory each peer was here last, and heardOf takes
	// it from others (dataDir.met).
	met     func() map[cluster.NodeID]string
	heardOf func(map[cluster.NodeID]string) error
	// dialError says why this node cannot connect to a peer; "" = it can.
	dialError func(cluster.NodeID) string
	// troubles are shown as the reason where the role has none: by what they
	// are about, a peer's name or "replication".
	troubles map[string]string
	changed  chan struct{}
	// last is the newest sign of a primary, another node or this one.
	last primarySeen
	// ledAt is when a leader was lost that was known; zero = there was none.
	ledAt time.Time
}

type peerReport struct {
	status cluster.NodeStatus
	at     time.Time
	up     bool      // our connection to it stands
	upAt   time.Time // since when that is so, or not
	// refusal is why it and this node did not talk, refusedAt when that was last so.
	refusal   *cluster.Refusal
	refusedAt time.Time
}

// refusedFor is how long a refusal is shown: the transport dials again every 5 s.
const refusedFor = 15 * time.Second

func (b *board) init(cfg config.Config, self cluster.Member, version string) {
	b.state = cluster.NewState(cfg.ClusterMembers())
	b.members = b.state.Members
	b.named.Store(new(b.state.Members))
	b.self = cluster.NodeStatus{
		ID: self.ID, Name: self.Name, Kind: self.Kind, Weight: self.Weight, Peer: self.Peer, Reachable: true,
		StateVersion: new(uint64), StateFormat: cluster.StateFormat, Role: cluster.RoleStarting, Mysqld: cluster.MysqldStopped,
		Router: cfg.Router.ReadWrite, AgentVersion: version,
		Heartbeat: cfg.Raft.Heartbeat, ElectionTimeout: cfg.Raft.ElectionTimeout,
	}
	if self.Kind == cluster.KindLogger {
		b.self.Role, b.self.Mysqld = cluster.RoleLogger, cluster.MysqldNone
	}
	b.peers = map[cluster.NodeID]peerReport{}
	b.met = func() map[cluster.NodeID]string { return nil }
	b.dialError = func(cluster.NodeID) string { return "" }
	b.heardOf = func(map[cluster.NodeID]string) error { return nil }
	b.troubles = map[string]string{}
	b.changed = make(chan struct{})
}

// name returns a member's name, or "none".
func (b *board) name(id cluster.NodeID) string {
	for _, m := range *b.named.Load() {
		if m.ID == id {
			return m.Name
		}
	}
	return "none"
}

// list returns the members as the cluster state has them. Nobody changes it.
func (b *board) list() []cluster.Member { return *b.named.Load() }

// update changes this node's own status and wakes whoever waits if the change
// matters to routing or to peers.
func (b *board) update(f func(s *cluster.NodeStatus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.self
	f(&b.self)
	if before.Role != b.self.Role || before.Term != b.self.Term || before.Leader != b.self.Leader ||
		before.Mysqld != b.self.Mysqld || before.Reason != b.self.Reason || before.LogState != b.self.LogState {
		b.wake()
	}
}

func (b *board) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// routeChanged wakes whoever waits for another primary.
func (b *board) routeChanged() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake()
}

// changes returns a channel that is closed at the next change that matters.
func (b *board) changes() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *board) setRole(r cluster.Role, reason string) {
	b.update(func(s *cluster.NodeStatus) { s.Role, s.Reason = r, cmp.Or(reason, b.trouble()) })
}

// setTrouble notes what ails the node beside its role; "" = nothing (any more). It
// tells whether that is news.
func (b *board) setTrouble(about, text string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news = b.troubles[about] != text
	if text == "" {
		delete(b.troubles, about)
	} else {
		b.troubles[about] = text
	}
	return news
}

// troubleOf returns what was noted about something; "" = nothing.
func (b *board) troubleOf(about string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.troubles[about]
}

// trouble joins the troubles in a stable order. b.mu is held.
func (b *board) trouble() string {
	var texts []string
	for _, about := range slices.Sorted(maps.Keys(b.troubles)) {
		texts = append(texts, b.troubles[about])
	}
	return strings.Join(texts, "; ")
}

func (b *board) setRaft(r consensus.RoleState) {
	b.update(func(s *cluster.NodeStatus) {
		if s.Leader != 0 {
			b.ledAt = time.Now()
		}
		s.Term, s.Leader = r.Term, r.Leader
	})
}

// sinceLeader is how long ago this node had a leader, itself maybe; 0 = it has one.
func (b *board) sinceLeader() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.self.Leader != 0:
		return 0
	case b.ledAt.IsZero():
		return recovery.NeverLed
	}
	return max(1, time.Since(b.ledAt))
}

// setState takes a cluster state, unless it knows a newer one.
func (b *board) setState(s cluster.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Version < b.state.Version {
		return // what the log says is older than what another node has told
	}
	b.state = s.Clone()
	b.members = b.state.Members
	b.named.Store(new(b.state.Members))
	b.self.StateVersion = new(s.Version)
	maps.DeleteFunc(b.peers, func(id cluster.NodeID, _ peerReport) bool {
		return !slices.ContainsFunc(b.members, func(m cluster.Member) bool { return m.ID == id })
	})
	for _, m := range b.members {
		if m.ID == b.self.ID {
			b.self.Kind, b.self.Weight, b.self.Site, b.self.RequireAck = m.Kind, m.Weight, m.Site, m.Degrade()
			b.self.Source = m.Source
		}
	}
	b.wake()
}

// clusterState returns the newest cluster state.
func (b *board) clusterState() cluster.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.Clone()
}

// own returns this node's status.
func (b *board) own() cluster.NodeStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.self
}

// received takes a peer's status blob.
func (b *board) received(from cluster.NodeID, blob []byte) error {
	var s cluster.NodeStatus
	if err := json.Unmarshal(blob, &s); err != nil {
		return fmt.Errorf("decode status of node %s: %w", b.name(from), err)
	}
	if s.ID != from {
		return fmt.Errorf("node %s sent the status of node %q", b.name(from), s.Name)
	}
	// First: whoever was heard lets this node purge.
	if err := b.heardOf(s.Joined); err != nil {
		return fmt.Errorf("note which nodes have begun anew: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[from]
	matters := p.status.Role != s.Role || p.status.Term != s.Term || p.status.LogState != s.LogState
	was := p.status.Role
	p.status, p.at = s, time.Now()
	if from == b.last.id && !b.last.lost && was == cluster.RolePrimary && s.Role != cluster.RolePrimary && s.Term == b.last.status.Term {
		b.last.at = p.at // it was until now
	}
	if s.Role == cluster.RolePrimary && (from == b.last.id || s.Term >= b.last.status.Term) {
		b.last = primarySeen{id: from, name: s.Name, at: p.at, status: s}
	}
	b.peers[from] = p
	if matters {
		b.wake()
	}
	return nil
}

func (b *board) peerUp(id cluster.NodeID, up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[id]
	p.up, p.upAt, p.refusal = up, time.Now(), nil
	b.peers[id] = p
	b.last.lost = b.last.lost || !up && id == b.last.id
	b.wake()
}

// refused notes that a peer answers, and why the two do not talk.
func (b *board) refused(id cluster.NodeID, r cluster.Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[id]
	p.refusal, p.refusedAt = &r, time.Now()
	b.peers[id] = p
}

func (p peerReport) live(now time.Time) bool { return p.up && now.Sub(p.at) < peerLiveFor }

// joinsBlind tells whether this node joins, and knows no state of the cluster so far.
func (b *board) joinsBlind() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.self.Role == cluster.RoleJoining && b.state.Version == 0
}

// lives tells whether a peer is there.
func (b *board) lives(id cluster.NodeID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peers[id].live(time.Now())
}

// forCore returns the nodes as core wants them; own is this node's whole status.
func (b *board) forCore(own cluster.NodeStatus) core.Peers {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var in core.Peers
	for _, m := range b.members {
		if m.ID == b.self.ID {
			in.Own = forCore(m, own, true)
		} else {
			in.Peers = append(in.Peers, forCore(m, b.peers[m.ID].status, b.peers[m.ID].live(now)))
		}
	}
	if m := b.state.Maintenance; m != nil {
		in.Held = true
		if held, err := b.state.Member(m.Primary); err == nil {
			in.HeldFor = held.ID
		}
	}
	slices.SortFunc(in.Peers, func(a, b core.Peer) int { return cmp.Compare(a.ID, b.ID) })
	return in
}

func forCore(m cluster.Member, s cluster.NodeStatus, live bool) core.Peer {
	return core.Peer{
		ID: m.ID, Name: m.Name, Kind: m.Kind, Weight: m.Weight, Live: live, Role: s.Role,
		Applied: s.Applied, Lag: time.Duration(s.LagSeconds * float64(time.Second)), LogLast: s.LogLast,
		LogBad: s.LogState != "" && s.LogState != cluster.LogOK, Stopped: s.ApplierStopped != "",
	}
}

// primary returns the live peer that says that it is primary, of the highest term.
func (b *board) primary() (cluster.NodeID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var id cluster.NodeID
	var term uint64
	for i, p := range b.peers {
		if p.status.Role == cluster.RolePrimary && p.live(now) && p.status.Term > term {
			id, term = i, p.status.Term
		}
	}
	return id, id != 0
}

// unreached says that this node hears of a member and cannot connect to it, or that
// nobody connects to this one, which listens elsewhere than they think. A member that has
// just ended was heard, too. b.mu is held.
func (b *board) unreached(m cluster.Member, listens string, now time.Time) string {
	if m.ID != b.self.ID {
		if p := b.peers[m.ID]; p.up || now.Sub(p.at) >= peerLiveFor || p.at.Sub(p.upAt) < 2*gossipInterval {
			return ""
		}
		if why := b.dialError(m.ID); why != "" {
			return m.UnreachedBy(b.self.Name, listens, why)
		}
		return ""
	}
	silent := false // that one is connected to which tells this one nothing
	for _, p := range b.peers {
		if p.live(now) {
			return ""
		}
		silent = silent || p.up && now.Sub(p.upAt) >= peerLiveFor
	}
	if !silent || listens == m.Peer {
		return ""
	}
	return m.UnreachedByAll(listens)
}

// all returns the status of every member, this node's first-hand.
func (b *board) all() []cluster.NodeStatus {
	met := b.met()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	nodes := make([]cluster.NodeStatus, 0, len(b.members))
	for _, m := range b.members {
		s, p := cluster.NodeStatus{ID: m.ID, Name: m.Name, Kind: m.Kind, Peer: m.Peer}, b.peers[m.ID]
		if m.ID == b.self.ID {
			s = b.self
		} else if p.status.ID != 0 {
			s = p.status
			s.Reachable, s.AgeMs = p.live(now), now.Sub(p.at).Milliseconds()
		}
		s.Refusal = nil // what it says of others is not asked for
		if !s.Reachable && p.refusal != nil && now.Sub(p.refusedAt) < refusedFor {
			s.Refusal = p.refusal
		}
		if s.Unreached = ""; s.Refusal == nil || s.Refusal.By == "" {
			s.Unreached = b.unreached(m, s.Peer, now)
		}
		s.Peer = m.Peer
		s.Kind, s.Weight, s.Site, s.RequireAck, s.Source = m.Kind, m.Weight, m.Site, m.Degrade(), m.Source
		// One that has begun anew is waited for, also where this agent has not heard it.
		s.Leaving = membership.Leaving(m, s, met)
		nodes = append(nodes, s)
	}
	if _, ok := membership.Find(b.state, b.self.ID); !ok { // not yet, or not any more
		nodes = append(nodes, b.self)
	}
	return nodes
}
