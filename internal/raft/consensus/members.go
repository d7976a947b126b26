package consensus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/confchange"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// Changes of the members are changes of Raft's configuration, with the change of the cluster state as their
// context. If voters change, they go through joint consensus: from the commit of the entry on, a majority of
// the old voters and a majority of the new voters have to agree. That ends when the leader commits another
// entry, which raft proposes by itself. So at most one change is under way.
//
// Every node derives raft's configuration from the same point of the state, also at its start. Entries up to
// that point are part of it and are not applied again.

// voteLackMax is how many entries a learner may lack when it gets a vote. From then on commits may have to wait
// for it.
const voteLackMax = 4096

// confStateOf returns raft's configuration at a point of the cluster state.
func confStateOf(p cluster.StatePoint) *pb.ConfState {
	cs := &pb.ConfState{}
	for _, m := range p.State.Members {
		switch id := uint64(m.ID); {
		case m.Votes():
			cs.Voters = append(cs.Voters, id)
		case slices.Contains(p.Outgoing, m.ID):
			cs.LearnersNext = append(cs.LearnersNext, id) // it votes until the change is complete
		default:
			cs.Learners = append(cs.Learners, id)
		}
	}
	for _, id := range p.Outgoing {
		cs.VotersOutgoing = append(cs.VotersOutgoing, uint64(id))
	}
	if len(p.Outgoing) > 0 {
		cs.AutoLeave = new(true)
	}
	return cs
}

// proposeMembers proposes a change of the members to raft. CheckState must have passed it.
func (g *Group) proposeMembers(before cluster.State, c cluster.StateChange) error {
	context, err := entry.MarshalState(c)
	if err != nil {
		return err
	}
	if err := checkBytes(context); err != nil {
		return err
	}
	cc := raftChange(before, c)
	cc.Context = context
	if err := g.rn.ProposeConfChange(cc); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	g.membersTerm = g.role.Term
	return nil
}

// raftChange is what raft has to know about a change of the members.
func raftChange(before cluster.State, c cluster.StateChange) *pb.ConfChangeV2 {
	change := c.Change.Membership
	kind, id := pb.ConfChangeAddLearnerNode, change.ID
	switch change.Op {
	case cluster.OpPromote:
		kind = pb.ConfChangeAddNode
	case cluster.OpRemove:
		kind = pb.ConfChangeRemoveNode
	}
	// A node that a recovery left behind is only in the second list.
	for _, m := range slices.Concat(before.Members, c.State.Members) {
		if m.Name == change.Name {
			id = m.ID
		}
	}
	transition := pb.ConfChangeTransitionAuto // for a single change: without joint consensus
	if votersChange(before, c.State) {
		transition = pb.ConfChangeTransitionJointImplicit
	}
	return &pb.ConfChangeV2{
		Transition: transition.Enum(),
		Changes:    []*pb.ConfChangeSingle{{Type: kind.Enum(), NodeId: new(uint64(id))}},
	}
}

func votersChange(before, after cluster.State) bool {
	return !slices.Equal(slices.Sorted(slices.Values(before.Voters())), slices.Sorted(slices.Values(after.Voters())))
}

// mayChange refuses a change after which the cluster would not go on, as far as this leader can see.
func (g *Group) mayChange(now time.Duration, before cluster.State, c cluster.StateChange) error {
	change := c.Change.Membership
	if m, err := before.Member(change.Name); err == nil && m.ID == g.cfg.Self {
		return fmt.Errorf("node %s leads: move the primary to another node first (quorate switchover)", m.Name)
	}
	if !votersChange(before, c.State) {
		return nil
	}
	for _, s := range []cluster.State{before, c.State} {
		if err := g.majorityThere(now, s); err != nil {
			return err
		}
	}
	if c.State.Durability == cluster.DurabilitySiteMajority && g.sitesThere(now, c.State) < 2 && g.sitesThere(now, before) >= 2 {
		return fmt.Errorf("only voters of one site would answer, and with durability %s all writes would wait",
			cluster.DurabilitySiteMajority)
	}
	if change.Op == cluster.OpPromote {
		return g.caughtUp(c)
	}
	return nil
}

// majorityThere refuses a state of which no majority of the voters is there.
func (g *Group) majorityThere(now time.Duration, s cluster.State) error {
	var missing []string
	voters := 0
	for _, m := range s.Members {
		if !m.Votes() {
			continue
		}
		voters++
		if !g.isThere(now, m.ID) {
			missing = append(missing, m.Name)
		}
	}
	if there := voters - len(missing); there <= voters/2 {
		return fmt.Errorf("only %d of %d voters would answer, which is no majority; these do not answer: %s", there, voters, strings.Join(missing, ", "))
	}
	return nil
}

// isThere tells whether a node is this one, or was heard within an election timeout and its process is not
// known to have died since.
func (g *Group) isThere(now time.Duration, id cluster.NodeID) bool {
	at, ok := g.heardAt[id]
	return id == g.cfg.Self || ok && now-at <= time.Duration(g.cfg.ElectionTicks)*g.cfg.Tick
}

// sitesThere counts the sites with a voter that is there.
func (g *Group) sitesThere(now time.Duration, s cluster.State) int {
	sites := map[string]bool{}
	for _, m := range s.Members {
		if m.Votes() && m.Site != "" && g.isThere(now, m.ID) {
			sites[m.Site] = true
		}
	}
	return len(sites)
}

// caughtUp refuses to give a vote to a learner that is far behind.
func (g *Group) caughtUp(c cluster.StateChange) error {
	m, err := c.State.Member(c.Change.Membership.Name)
	if err != nil {
		return err
	}
	match := uint64(0)
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id == uint64(m.ID) {
			match = p.Match
		}
	})
	if match+voteLackMax < g.last {
		return fmt.Errorf("node %s has the log up to entry %d of %d, and may lack %d at most", m.Name, match, g.last, voteLackMax)
	}
	return nil
}

// applyMembers takes a committed change of raft's configuration. It is either a change of the members, which
// counts like any other change of the state, or raft's own end of joint consensus. Raft is told only of changes
// that count.
func (g *Group) applyMembers(e *pb.Entry) {
	index := e.GetIndex()
	invariant.Check(e.GetType() == pb.EntryConfChangeV2, "members", "entry %d changes the members in a way that nobody proposes", index)
	cc := &pb.ConfChangeV2{}
	err := proto.Unmarshal(e.GetData(), cc)
	invariant.Check(err == nil, "members", "entry %d changes the members and cannot be read: %v", index, err)
	g.committed.apply(index, e.GetTerm(), nil)
	g.membersTerm = 0
	if cc.LeaveJoint() {
		if g.committed.endMembers(index) {
			g.rn.ApplyConfChange(cc)
		}
		return
	}
	o := g.committed.applyMembers(index, cc)
	if o != nil && o.Ignored == nil {
		g.rn.ApplyConfChange(cc)
	}
	g.stateCommitted(o)
}

// applyMembers is applyState for a change of the members.
func (c *Committed) applyMembers(index uint64, cc *pb.ConfChangeV2) *StateOutcome {
	change, err := entry.UnmarshalState(cc.GetContext())
	c.mu.Lock()
	defer c.mu.Unlock()
	invariant.Check(err == nil || index <= c.state.Index, "members", "committed entry %d: %v", index, err)
	return c.swapState(index, change, cc)
}

// confAfter returns the configuration that raft derives from before by a change; cc nil = no change.
func confAfter(before *pb.ConfState, cc *pb.ConfChangeV2) (*pb.ConfState, error) {
	if cc == nil {
		return before, nil
	}
	if _, known := pb.ConfChangeTransition_name[int32(cc.GetTransition())]; !known {
		return nil, fmt.Errorf("a change of the members by way %d", cc.GetTransition())
	}
	trk := tracker.MakeProgressTracker(1, 0)
	var err error
	if trk.Config, trk.Progress, err = confchange.Restore(confchange.Changer{Tracker: trk}, before); err != nil {
		return nil, err
	}
	changer := confchange.Changer{Tracker: trk}
	if autoLeave, joint := cc.EnterJoint(); joint {
		trk.Config, trk.Progress, err = changer.EnterJoint(autoLeave, cc.Changes...)
	} else {
		trk.Config, trk.Progress, err = changer.Simple(cc.Changes...)
	}
	return trk.ConfState(), err
}

// endMembers notes that a change of the members is complete. It returns false if that is known already, or if
// no change is under way.
func (c *Committed) endMembers(index uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if index <= c.state.Index || len(c.state.Outgoing) == 0 {
		return false
	}
	c.state.Outgoing, c.state.Index = nil, index
	c.wakeState()
	return true
}
