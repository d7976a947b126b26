package consensus

import (
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// Errors of a change of the cluster state.
var (
	// ErrNotLeader: only the leader takes a change.
	ErrNotLeader = errors.New("this node does not lead")
	// ErrNotReady: the leader cannot take a change at the moment.
	ErrNotReady = errors.New("the leader is not ready for a change")
	// ErrStale: another change was committed first, and this one had no effect.
	ErrStale = errors.New("another change came first: look at it, and ask again")
	// ErrUnfit: Raft cannot apply the members of the change, so it had no effect. No sound leader proposes such
	// a change.
	ErrUnfit = errors.New("every node ignored this change, because Raft cannot make its members; do not ask again: " +
		"this is a fault of the leader that proposed it, move the primary away from it and report its log")
)

// StateOutcome is the outcome of a change that was committed.
type StateOutcome struct {
	// Index is the index of the entry.
	Index uint64
	cluster.StateChange
	// Ignored is why every node ignores the change: ErrStale or ErrUnfit; nil = it has taken effect.
	Ignored error
}

// firstPoint is the state at the start: the state that the caller kept, or the state that follows from the
// configuration. For the latter the commit check need not start earlier.
func firstPoint(cfg GroupConfig) (cluster.StatePoint, error) {
	if cfg.State == nil {
		return cluster.StatePoint{State: cluster.NewState(cfg.Members), Through: cfg.Log.HardState().Commit}, nil
	}
	p := *cfg.State
	p.State = p.State.Clone()
	if first := cfg.Log.FirstIndex(); p.Through+1 < first {
		return p, fmt.Errorf("the cluster state is known up to index %d, the log begins at %d: changes between them are lost", p.Through, first)
	}
	return p, nil
}

// State returns the newest cluster state and how far it is known.
func (c *Committed) State() cluster.StatePoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statePoint()
}

// StateChanged is State, with a channel that is closed at the next change.
func (c *Committed) StateChanged() (cluster.StatePoint, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statePoint(), c.stateChanged
}

func (c *Committed) statePoint() cluster.StatePoint {
	p := c.state
	p.State, p.Outgoing = p.State.Clone(), slices.Clone(p.Outgoing)
	p.Through = max(p.Through, c.mark.Index)
	return p
}

// term is the Raft term of the newest entry that passed the commit check; 0 = none since the start.
func (c *Committed) term() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.markTerm
}

// setState sets the state at the start. It is called before the first apply.
func (c *Committed) setState(p cluster.StatePoint) { c.state = p }

// applyState takes a committed change. The versions make it a compare-and-swap: of two changes of the same
// state the first counts. Entries up to the point at which the state began are in it already, even if this quorate does
// not know all of them (the cluster has undone that since, and this quorate is an older one again). c.mu is held.
func (c *Committed) applyState(index uint64, h entry.Header, body []byte) *StateOutcome {
	change, err := entry.ParseState(h, body)
	invariant.Check(err == nil || index <= c.state.Index, "I2", "committed entry %d: %v", index, err)
	return c.swapState(index, change, nil)
}

// swapState applies a change of the state, and of raft's configuration if cc is not nil. If raft's
// configuration would then differ from the state, every node ignores the change, because no node could start
// again. No sound member proposes such a change.
func (c *Committed) swapState(index uint64, change cluster.StateChange, cc *pb.ConfChangeV2) *StateOutcome {
	if index <= c.state.Index {
		return nil
	}
	o := &StateOutcome{Index: index, StateChange: change}
	if change.State.Version != c.state.State.Version+1 {
		o.Ignored = ErrStale
		return o
	}
	next := c.state
	next.State, next.Index = change.State.Clone(), index
	if cc != nil && votersChange(c.state.State, next.State) {
		next.Outgoing = c.state.State.Voters()
	}
	conf, err := confAfter(confStateOf(c.state), cc)
	if err != nil || conf.Equivalent(confStateOf(next)) != nil || hasLocalID(next.State) {
		o.Ignored = ErrUnfit
		return o
	}
	c.state = next
	c.wakeState()
	return o
}

// hasLocalID tells whether a member has an id with which raft means this node's own log (or no node). Raft
// would take messages to such a member as orders to the log.
func hasLocalID(s cluster.State) bool {
	return slices.ContainsFunc(s.Members, func(m cluster.Member) bool { return !m.ID.Valid() })
}

func (c *Committed) wakeState() {
	close(c.stateChanged)
	c.stateChanged = make(chan struct{})
}

// RefusedError refuses a change that is correct in itself and may be possible later, for example when this node
// does not lead any more, or when more voters are there.
type RefusedError struct{ why error }

// Error says why.
func (e *RefusedError) Error() string { return e.why.Error() }

// CheckState returns the state that a change would make now, or an error that says why this leader would refuse
// it. It proposes nothing.
func (g *Group) CheckState(now time.Duration, c cluster.Change) (cluster.State, error) {
	if !g.role.Leading {
		return cluster.State{}, ErrNotLeader
	}
	if !g.knowsCommitted() {
		return cluster.State{}, fmt.Errorf("%w: it was just elected", ErrNotReady)
	}
	point := g.committed.State()
	if c.Judged != 0 && c.Judged != point.State.Version {
		return cluster.State{}, fmt.Errorf("%w: it was judged on version %d, and version %d is committed", ErrStale, c.Judged, point.State.Version)
	}
	next, err := point.State.With(c)
	if err != nil || c.Membership == nil {
		return next, err
	}
	if len(point.Outgoing) > 0 || g.membersTerm == g.role.Term {
		return next, fmt.Errorf("%w: a change of the members is under way", ErrNotReady)
	}
	if err := g.mayChange(now, point.State, cluster.StateChange{Change: c, State: next}); err != nil {
		return next, &RefusedError{err}
	}
	return next, nil
}

// ProposeState offers a change to the state that is committed now. The change belongs to no epoch. This node
// has to lead, and to have committed an entry of its own term: before that it may not know everything that is
// committed. A nil error means only that the change was appended: the outcome comes in Output.States once it is
// committed, or never.
func (g *Group) ProposeState(now time.Duration, c cluster.Change) error {
	next, err := g.CheckState(now, c)
	if err != nil {
		return err
	}
	if c.Membership != nil {
		return g.proposeMembers(g.committed.State().State, cluster.StateChange{Change: c, State: next})
	}
	data, err := entry.EncodeState(g.role.Term, cluster.StateChange{Change: c, State: next})
	if err != nil {
		return err
	}
	if err := checkBytes(data); err != nil {
		return err
	}
	if err := g.rn.Propose(data); err != nil {
		// Dropped: a transfer is under way, or the followers are far behind.
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return nil
}

// checkBytes refuses an entry that is too long.
func checkBytes(change []byte) error {
	if len(change) > cluster.StateBytesMax {
		return fmt.Errorf("the cluster state would have %d bytes, at most %d are kept", len(change), cluster.StateBytesMax)
	}
	return nil
}

// stateCommitted takes the outcome of a change.
func (g *Group) stateCommitted(o *StateOutcome) {
	if o == nil {
		return
	}
	if o.Ignored == nil {
		g.cfg.Members = o.State.Clone().Members
		g.acks.setState(o.State.Clone())
		g.feedVoters()
	}
	g.out.States = append(g.out.States, *o)
}
