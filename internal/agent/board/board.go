package board

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/role"
)

// GossipInterval is how often a node tells its status when nothing changes.
const GossipInterval = 500 * time.Millisecond

// LiveFor is how long a peer's status counts as live.
const LiveFor = 4 * GossipInterval

// refusedFor is how long a refusal is shown after it was said last. The transport dials again 1 s after
// a rejection. An attempt that gets no answer takes 6 s at most: 1 s to dial and 2 s for the handshake, with
// TLS and then without. So two attempts in a row may fail in another way before the refusal is no longer shown.
const refusedFor = 15 * time.Second

// strangersMax bounds the nodes that dial this node and that it does not know.
const strangersMax = 4

// Config is what a Board needs. Fields are required unless it is said otherwise.
type Config struct {
	// Self is what this node says of itself first.
	Self status.Node
	// State is the cluster state that it begins with.
	State cluster.State
	// Known are the peers' data directories.
	Known *membership.Directories
	// DialError says why this node cannot connect to a peer; "" = it can. nil: it is not known.
	DialError func(cluster.NodeID) string
	Now       func() time.Time
}

// Board is the status table. Make one with New.
type Board struct {
	cfg Config

	mu    sync.Mutex
	state cluster.State // the newest one
	// named are the state's members, for callers that may take no lock.
	named atomic.Pointer[[]cluster.Member]
	// self has the reason of the role alone: see own.
	self  status.Node
	peers map[cluster.NodeID]report
	// troubles are shown behind the role's reason. The key is what
	// a trouble is about: a peer's name, for example.
	troubles map[string]trouble
	// news: a trouble has changed, and nobody was woken since.
	news    bool
	changed chan struct{}
	last    primarySign
	// strangers are nodes that this node does not know and that have dialled it, with the time of each.
	strangers map[status.Stranger]time.Time
	// ledAt is until when this node last knew a leader that it knows no longer; zero = there was none.
	ledAt time.Time
}

// trouble is a sentence on what ails this node.
type trouble struct {
	text string
	// refusal: it says only that the peer whom it is about refuses this node.
	refusal bool
}

// report is what is known of a peer.
type report struct {
	status status.Node // as it said last
	at     time.Time   // when; zero = it has said nothing yet
	up     bool        // our connection to it stands
	upAt   time.Time   // since when that is so, or not
	// refusal is why it and this node did not talk, refusedAt when that was last so.
	refusal   *status.Refusal
	refusedAt time.Time
}

func (p report) live(now time.Time) bool { return p.up && now.Sub(p.at) < LiveFor }

// refusalNow is why the peer and this node do not talk now; nil = they do, or it is not known.
func (p report) refusalNow(now time.Time) *status.Refusal {
	if p.live(now) || now.Sub(p.refusedAt) >= refusedFor {
		return nil
	}
	return p.refusal
}

// New returns a board that has heard nobody yet.
func New(cfg Config) *Board {
	b := &Board{cfg: cfg, state: cfg.State, self: cfg.Self, peers: map[cluster.NodeID]report{},
		troubles: map[string]trouble{}, strangers: map[status.Stranger]time.Time{}, changed: make(chan struct{})}
	b.named.Store(new(b.state.Members))
	return b
}

// Name returns a member's name, or "none".
func (b *Board) Name(id cluster.NodeID) string {
	for _, m := range *b.named.Load() {
		if m.ID == id {
			return m.Name
		}
	}
	return "none"
}

// Members returns the members as the cluster state has them. The caller must not change them.
func (b *Board) Members() []cluster.Member { return *b.named.Load() }

// Update changes this node's own status and wakes the waiters if the change
// matters to routing or to peers.
func (b *Board) Update(f func(s *status.Node)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.self
	f(&b.self)
	if b.news || before.Role != b.self.Role || before.Term != b.self.Term || before.Leader != b.self.Leader ||
		before.Mysqld != b.self.Mysqld || before.Reason != b.self.Reason || before.LogState != b.self.LogState {
		b.wake()
	}
}

// wake wakes those that wait for a change. b.mu is held.
func (b *Board) wake() {
	close(b.changed)
	b.changed, b.news = make(chan struct{}), false
}

// Wake wakes those that wait for a change (Changes): who serves may be another node now.
func (b *Board) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake()
}

// Changes returns a channel that is closed at the next change that matters.
func (b *Board) Changes() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// SetRole sets the role and its reason.
func (b *Board) SetRole(r status.Role, reason string) {
	b.Update(func(s *status.Node) { s.Role, s.Reason = r, reason })
}

// Last begins the key of standing advice, such as on a file or a certificate: nothing ails the node by that. A screen may show
// the first words of all troubles only, so these come after all others.
const Last = "~"

// SetTrouble notes what ails the node beside its role; "" = nothing (any more). It
// tells whether that is news. The troubles are shown in the order of their keys, about. The next Update wakes the waiters: a
// waiter may set a trouble at each turn.
func (b *Board) SetTrouble(about, text string) (news bool) { return b.set(about, trouble{text: text}) }

// SetRefusal is SetTrouble for a sentence that says only that a peer refuses this node. ReasonBeside leaves it out.
func (b *Board) SetRefusal(by, text string) (news bool) { return b.set(by, trouble{text, true}) }

func (b *Board) set(about string, t trouble) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news = b.troubles[about].text != t.text
	b.news = b.news || news
	if t.text == "" {
		delete(b.troubles, about)
	} else {
		b.troubles[about] = t
	}
	return news
}

// Trouble returns what was noted about something; "" = nothing.
func (b *Board) Trouble(about string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.troubles[about].text
}

// own returns this node's status as others see it: behind the reason of its role come its troubles. Two things may be wrong
// at once, and the second one may be why the first one lasts. b.mu is held.
func (b *Board) own() status.Node {
	s := b.self
	if len(b.troubles) == 0 { // as nearly always, and who looks only for the role asks often
		return s
	}
	s.Advice = s.Reason == ""
	for about := range b.troubles {
		s.Advice = s.Advice && strings.HasPrefix(about, Last)
	}
	s.Reason = b.reason(func(string, trouble) bool { return false })
	return s
}

// reason joins the reason of the role and the troubles, but for those to leave out. b.mu is held.
func (b *Board) reason(leaveOut func(about string, t trouble) bool) string {
	texts := []string{b.self.Reason}
	for _, about := range slices.Sorted(maps.Keys(b.troubles)) {
		if t := b.troubles[about]; !leaveOut(about, t) {
			texts = append(texts, t.text)
		}
	}
	return joined(texts...)
}

// joined makes one text of several, without those that another one contains.
func joined(texts ...string) (all string) {
	for i, text := range texts {
		said := func(other string) bool { return strings.Contains(other, text) }
		if !slices.ContainsFunc(texts[:i], said) && !slices.ContainsFunc(texts[i+1:], func(other string) bool { return other != text && said(other) }) {
			all += "; " + text
		}
	}
	return strings.TrimPrefix(all, "; ")
}

// SetRaft takes the newest state of Raft.
func (b *Board) SetRaft(r consensus.RoleState) {
	b.Update(func(s *status.Node) {
		if s.Leader != 0 {
			b.ledAt = b.cfg.Now()
		}
		s.Term, s.Leader = r.Term, r.Leader
	})
}

// SinceLeader is how long ago this node knew a leader, which may be itself; 0 = it knows one now,
// recovery.NeverLed = it never did.
func (b *Board) SinceLeader() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.self.Leader != 0:
		return 0
	case b.ledAt.IsZero():
		return recovery.NeverLed
	}
	return max(1, b.cfg.Now().Sub(b.ledAt))
}

// SetState takes a cluster state, unless it knows a newer one.
func (b *Board) SetState(s cluster.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Version < b.state.Version {
		return // what the log says is older than what another node has told
	}
	for _, m := range b.state.Members {
		if _, still := s.MemberByID(m.ID); !still {
			delete(b.troubles, m.Name) // nothing else ends it: there is no connection to it any more
		}
	}
	b.state = s.Clone()
	b.named.Store(new(b.state.Members))
	b.self.StateVersion = new(s.Version)
	maps.DeleteFunc(b.peers, func(id cluster.NodeID, _ report) bool {
		return !slices.ContainsFunc(b.state.Members, func(m cluster.Member) bool { return m.ID == id })
	})
	for _, m := range b.state.Members {
		if m.ID == b.self.ID {
			b.self.Kind, b.self.Weight, b.self.Site, b.self.RequireAck = m.Kind, m.Weight, m.Site, m.Degrade()
			b.self.Source = m.Source
		}
	}
	b.wake()
}

// State returns the newest cluster state.
func (b *Board) State() cluster.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.Clone()
}

// Own returns this node's status.
func (b *Board) Own() status.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.own()
}

// OwnBeside returns this node's status for a list of all nodes, with ReasonBeside. A node that takes no part in the cluster
// says all itself.
func (b *Board) OwnBeside() status.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, now := b.own(), b.cfg.Now()
	if s.Role.Outside() != "" {
		return s
	}
	beside := b.reason(func(about string, t trouble) bool {
		return t.refusal && slices.ContainsFunc(b.state.Members, func(m cluster.Member) bool {
			return m.Name == about && b.peers[m.ID].refusalNow(now) != nil
		})
	})
	if beside != s.Reason {
		s.ReasonBeside = &beside
	}
	return s
}

// Received takes the status that a peer sent.
func (b *Board) Received(from cluster.NodeID, s status.Node) error {
	if s.ID != from {
		return fmt.Errorf("node %s sent the status of node %q", b.Name(from), s.Name)
	}
	b.cfg.Known.Hear(s.Joined) // first: a node that was heard lets this node purge
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[from]
	matters := p.status.Role != s.Role || p.status.Term != s.Term || p.status.LogState != s.LogState
	was := p.status.Role
	p.status, p.at = s, b.cfg.Now()
	if from == b.last.id && !b.last.lost && was == status.RolePrimary && s.Role != status.RolePrimary && s.Term == b.last.term {
		b.last.at = p.at // it was until now
	}
	if s.Role == status.RolePrimary && (from == b.last.id || s.Term >= b.last.term) {
		b.last = primarySign{id: from, name: b.Name(from), at: p.at, term: s.Term}
	}
	b.peers[from] = p
	if matters {
		b.wake()
	}
	return nil
}

// PeerUp notes that the connection to a peer stands, or has ended.
func (b *Board) PeerUp(id cluster.NodeID, up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[id]
	p.up, p.upAt, p.refusal = up, b.cfg.Now(), nil
	b.peers[id] = p
	b.last.lost = b.last.lost || !up && id == b.last.id
	b.wake()
}

// Refused notes that a peer answers, and why the two do not talk.
func (b *Board) Refused(id cluster.NodeID, r status.Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[id]
	p.refusal, p.refusedAt = &r, b.cfg.Now()
	b.peers[id] = p
}

// DialledBy notes that a node which this node does not know has dialled it. Anybody may do that, so a few are kept.
func (b *Board) DialledBy(s status.Stranger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Now()
	maps.DeleteFunc(b.strangers, func(_ status.Stranger, at time.Time) bool { return now.Sub(at) >= refusedFor })
	if _, known := b.strangers[s]; known || len(b.strangers) < strangersMax {
		b.strangers[s] = now
	}
}

// strangersNow returns who has dialled this node lately, while it has no leader. b.mu is held.
func (b *Board) strangersNow(now time.Time) (names []status.Stranger) {
	for s, at := range b.strangers {
		if b.self.Leader == 0 && now.Sub(at) < refusedFor {
			names = append(names, s)
		}
	}
	slices.SortFunc(names, func(x, y status.Stranger) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.From, y.From))
	})
	return names
}

// KnownTo is Directories.KnownTo.
func (b *Board) KnownTo(voter cluster.NodeID, s cluster.State, goes cluster.NodeID) bool {
	return b.cfg.Known.KnownTo(voter, s, goes)
}

// JoinsBlind tells whether this node joins, and knows no state of the cluster yet.
func (b *Board) JoinsBlind() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.self.Role == status.RoleJoining && b.state.Version == 0
}

// Lives tells whether a peer's report is live.
func (b *Board) Lives(id cluster.NodeID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peers[id].live(b.cfg.Now())
}

// ForRole returns the nodes in the form that the role machine takes; own is this node's whole status.
func (b *Board) ForRole(own status.Node) role.Peers {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Now()
	var in role.Peers
	last := own
	if own.Role != status.RolePrimary && b.last.id != b.self.ID {
		last = b.peers[b.last.id].status
	}
	for _, m := range b.state.Members {
		if m.ID == b.self.ID {
			in.Own = RolePeer(m, own, true, last)
		} else {
			in.Peers = append(in.Peers, RolePeer(m, b.peers[m.ID].status, b.peers[m.ID].live(now), last))
		}
	}
	if m := b.state.Maintenance; m != nil {
		in.Held = true
		if held, err := b.state.Member(m.Primary); err == nil {
			in.HeldFor = held.ID
		}
	}
	slices.SortFunc(in.Peers, func(a, b role.Peer) int { return cmp.Compare(a.ID, b.ID) })
	return in
}

// RolePeer returns a member in the form that the role machine takes, by the status that it sent, and that of the last
// primary.
func RolePeer(m cluster.Member, s status.Node, live bool, last status.Node) role.Peer {
	return role.Peer{
		ID: m.ID, Name: m.Name, Kind: m.Kind, Weight: m.Weight, Live: live, Role: s.Role,
		Applied: s.Applied, Lag: time.Duration(s.LagSeconds * float64(time.Second)), LogLast: s.LogLast,
		LogBad: s.LogState != "" && s.LogState != status.LogOK, Stopped: s.ApplierStopped != "", Unlike: s.NamesTablesUnlike(last),
	}
}

// Primary returns the live member that says that it is primary, of the highest term.
func (b *Board) Primary() (cluster.NodeID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Now()
	var id cluster.NodeID
	var term uint64
	for _, m := range b.state.Members {
		if p := b.peers[m.ID]; p.status.Role == status.RolePrimary && p.live(now) && p.status.Term > term {
			id, term = m.ID, p.status.Term
		}
	}
	return id, id != 0
}

// unreached says that this node hears a member but cannot connect to it, or that nobody
// connects to this node, because it listens at another address than they know. A member that
// has just ended was heard, too, and is not meant. b.mu is held.
func (b *Board) unreached(m cluster.Member, listens string, now time.Time) string {
	if m.ID != b.self.ID {
		if p := b.peers[m.ID]; p.up || now.Sub(p.at) >= LiveFor || p.at.Sub(p.upAt) < 2*GossipInterval {
			return ""
		}
		if b.cfg.DialError == nil {
			return ""
		}
		why := b.cfg.DialError(m.ID)
		if why == "" {
			return ""
		}
		return m.UnreachedBy(b.self.Name, listens, why)
	}
	silent := false // this node is connected to a peer that tells it nothing
	for _, p := range b.peers {
		if p.live(now) {
			return ""
		}
		silent = silent || p.up && now.Sub(p.upAt) >= LiveFor
	}
	if !silent || listens == m.Peer {
		return ""
	}
	return m.UnreachedByAll(listens)
}

// Nodes returns the status of every member, this node's as the board has it.
func (b *Board) Nodes() []status.Node { return b.nodes(nil) }

// NodesWith returns the status of every member; own is this node's whole status.
func (b *Board) NodesWith(own status.Node) []status.Node { return b.nodes(&own) }

func (b *Board) nodes(own *status.Node) []status.Node {
	met := b.cfg.Known.Met()
	b.mu.Lock()
	defer b.mu.Unlock()
	if own == nil {
		own = new(b.own())
	}
	now := b.cfg.Now()
	nodes := make([]status.Node, 0, len(b.state.Members))
	for _, m := range b.state.Members {
		s, p := status.Node{ID: m.ID, Name: m.Name, Kind: m.Kind, Peer: m.Peer}, b.peers[m.ID]
		if m.ID == b.self.ID {
			s = *own
			s.Strangers = b.strangersNow(now)
		} else if p.status.ID != 0 {
			s = p.status
			s.Reachable, s.AgeMs = p.live(now), now.Sub(p.at).Milliseconds()
			s.LagUnknown = s.LagUnknown || !s.Reachable
		}
		if s.Refusal = nil; m.ID != b.self.ID { // what it says of others is not asked for
			s.Refusal = p.refusalNow(now)
		}
		if s.Unreached = ""; s.Refusal == nil || s.Refusal.By == "" {
			s.Unreached = b.unreached(m, s.Peer, now)
		}
		s.Name, s.Peer = m.Name, m.Peer // not by its own word: requests find a node by its name
		s.Kind, s.Weight, s.Site, s.RequireAck, s.Source = m.Kind, m.Weight, m.Site, m.Degrade(), m.Source
		s.KnownBy = m.Keys()
		if m.ID != b.self.ID {
			// A node that has begun again is waited for, even if this agent has not heard it.
			s.Leaving = membership.Leaving(m, s, met)
		}
		nodes = append(nodes, s)
	}
	if _, ok := b.state.MemberByID(b.self.ID); !ok { // not yet, or not any more
		nodes = append(nodes, *own)
	}
	return nodes
}
