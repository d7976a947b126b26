package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// removedKeysMax bounds the removed nodes whose keys are kept: the newest.
const removedKeysMax = 256

// membersMax bounds the members: transport and Raft were built and tested for this many.
const membersMax = 9

// MembershipOp is one kind of change of the list of members.
type MembershipOp string

// The operations on the list of members: one node at a time.
const (
	// OpAdd adds a node, as a learner.
	OpAdd MembershipOp = "add"
	// OpPromote gives a learner a vote, as a node of another kind.
	OpPromote MembershipOp = "promote"
	// OpDemote takes a node's vote: the node becomes a learner.
	OpDemote MembershipOp = "demote"
	// OpRebuild takes a node's vote until the node's data have been built again.
	OpRebuild MembershipOp = "rebuild"
	// OpRemove takes a node out of the cluster for good.
	OpRemove MembershipOp = "remove"
)

// MembershipChange changes the list of members. Raft has to know of it, so it travels as a change of Raft's own
// configuration.
type MembershipChange struct {
	Op   MembershipOp `json:"op"`
	Name string       `json:"name"`
	// ID and Peer are the id and the address of a node that is added.
	ID   NodeID `json:"id,string,omitempty"`
	Peer string `json:"peer,omitempty"`
	// Key is the key of a node that is added; "" = it has none.
	Key Key `json:"key,omitempty"`
	// Kind is the kind to which a learner is promoted, or to which an added node will be promoted once it has
	// caught up; KindLearner or "" = it stays a learner.
	Kind Kind `json:"kind,omitempty"`
	// Instance is the new data directory of a node that is rebuilt; for a promotion, the directory that was
	// found to have caught up.
	Instance string `json:"instance,omitempty"`
	// Source and SourceApplied are those of a learner that is added (Member).
	Source        string `json:"source,omitempty"`
	SourceApplied bool   `json:"source_applied,omitempty"`
	// Why says why the cluster makes the change by itself; "" = an operator asked for it.
	Why string `json:"why,omitempty"`
}

// MembershipRequest asks for a change of the list of members.
type MembershipRequest struct {
	Change MembershipChange `json:"change"`
	Ask
}

// String says in one line what is done.
func (c MembershipChange) String() string {
	switch c.Op {
	case OpAdd:
		what, key := "node", ""
		if c.Kind != "" {
			what = string(c.Kind) + " node"
		}
		if c.Key != "" {
			key = ", key " + string(c.Key)
		}
		return fmt.Sprintf("add %s %s at %s%s", what, c.Name, c.Peer, key)
	case OpPromote:
		return fmt.Sprintf("promote node %s to %s", c.Name, c.Kind)
	}
	if c.Why != "" {
		return fmt.Sprintf("%s node %s: %s", c.Op, c.Name, c.Why)
	}
	return fmt.Sprintf("%s node %s", c.Op, c.Name)
}

// Votes tells whether a member has a vote.
func (m Member) Votes() bool { return m.Kind != KindLearner }

// Rebuilding tells whether a member has lost its vote until its data have been built again.
func (m Member) Rebuilding() bool { return !m.Votes() && m.Becomes != "" && m.Instance != "" }

// Voters returns the ids of the members that have a vote, in their order.
func (s State) Voters() (ids []NodeID) {
	for _, m := range s.Members {
		if m.Votes() {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func (s *State) setMembership(c MembershipChange) error {
	if c.Op == OpAdd {
		return s.add(c)
	}
	m, err := s.Member(c.Name)
	switch {
	case err != nil && c.Op == OpRebuild:
		m, err = s.takeBack(c.Name, err)
	case err != nil && c.Op == OpRemove && s.forget(c.Name):
		return nil
	}
	if err != nil {
		return err
	}
	i := slices.Index(s.Members, m)
	switch {
	case c.Op == OpPromote && m.Votes():
		return fmt.Errorf("node %s has a vote already, as a %s node", m.Name, m.Kind)
	case c.Op == OpPromote && c.Kind != KindFull && c.Kind != KindLogger:
		return fmt.Errorf("the kind of node %s must be %s or %s, not %q", m.Name, KindFull, KindLogger, c.Kind)
	case c.Op == OpPromote && c.Instance != m.Instance:
		return fmt.Errorf("node %s has been rebuilt since it was found to have caught up", m.Name)
	case c.Op == OpPromote:
		s.Members[i] = m.Promoted(c.Kind)
	case c.Op == OpDemote && !m.Votes():
		return fmt.Errorf("node %s is a learner already: it has no vote", m.Name)
	case c.Op == OpDemote:
		m.Kind, m.Weight, m.RequireAck, m.DropAfter = KindLearner, 0, false, 0
		s.Members[i] = m
		s.dropSource(m.Name)
	case c.Op == OpRebuild && c.Instance == "":
		return errors.New("a node that is rebuilt has a new instance")
	case c.Op == OpRebuild:
		if m.Votes() {
			m.Becomes = m.Kind
		}
		// RequireAck stays: ACKs wait for the node as before, or the promise would end unseen.
		m.Kind, m.Instance = KindLearner, c.Instance
		s.Members[i] = m
	case c.Op == OpRemove:
		s.Members = slices.Delete(s.Members, i, i+1)
		s.noteRemoved(m)
		s.dropSource(m.Name)
	default:
		return fmt.Errorf("%q is not a change of a node", c.Op)
	}
	return nil
}

// noteRemoved makes sure that the node is told that it was removed. Its keys are kept, too: without a known key it would
// be told nothing. So the keys of the oldest are dropped. Their nodes hear nothing any more, and still cannot come back:
// their ids stay, a node with an unknown key is no peer, and "node add" refuses the id. The leader alone computes a state:
// its entry has the whole of it, so the nodes agree whatever their versions are.
func (s *State) noteRemoved(m Member) {
	s.Removed = append(s.Removed, m.ID)
	keep := func(all *map[NodeID]Key, k Key) {
		if k == "" {
			return
		}
		if *all == nil {
			*all = map[NodeID]Key{}
		}
		(*all)[m.ID] = k
	}
	keep(&s.RemovedKeys, m.Key)
	keep(&s.RemovedNextKeys, m.NextKey)
	for _, old := range s.Removed[:max(0, len(s.Removed)-removedKeysMax)] {
		delete(s.RemovedKeys, old)
		delete(s.RemovedNextKeys, old)
	}
}

// Promoted returns a learner with a vote. A learner that was rebuilt has its weight again.
func (m Member) Promoted(kind Kind) Member {
	rebuilt := m.Becomes != "" && m.Instance != ""
	switch {
	case kind != KindFull:
		m.Weight = 0
	case !rebuilt:
		m.Weight = WeightDefault
	}
	m.Kind, m.Becomes = kind, ""
	m.Source, m.SourceApplied = "", false // the leader feeds a node with a vote
	return m
}

// checkAddress refuses an empty address, and that of another node. The node that makes the change checks
// whether the node is there. Nodes know each other by name and key, so a wrong address cuts off only that one
// node.
func (s *State) checkAddress(c NodeChange, m Member) error {
	switch {
	case c.Peer == nil || *c.Peer == m.Peer:
		return nil
	case *c.Peer == "":
		return fmt.Errorf("the address of node %s is missing", m.Name)
	}
	for _, other := range s.Members {
		if other.Peer == *c.Peer {
			return fmt.Errorf("node %s has the address %s", other.Name, other.Peer)
		}
	}
	return nil
}

// add adds a learner. An id is never used again: votes of a removed node may still be counted somewhere.
func (s *State) add(c MembershipChange) error {
	switch {
	case c.Name == "" || c.Peer == "" || !c.ID.Valid():
		return errors.New("a node that is added has a name, an address and an id")
	case c.Kind != "" && c.Kind != KindFull && c.Kind != KindLogger && c.Kind != KindLearner:
		return fmt.Errorf("the kind of node %s must be %s, %s or %s, not %q", c.Name, KindFull, KindLogger, KindLearner, c.Kind)
	case slices.Contains(s.Removed, c.ID):
		return fmt.Errorf("node %s was removed from this cluster: add it under another name", c.Name)
	case len(s.Members) >= membersMax:
		return fmt.Errorf("there are %d nodes, at most %d can be", len(s.Members), membersMax)
	}
	if s.leftBehind(func(m Member) bool { return m.Name == c.Name || m.ID == c.ID }) >= 0 {
		return fmt.Errorf("node %s was in this cluster before it was recovered: quorate node rebuild %s", c.Name, c.Name)
	}
	for _, m := range s.Members {
		if m.Name == c.Name || m.ID == c.ID {
			return fmt.Errorf("there is a node %s already", m.Name)
		}
		if m.Peer == c.Peer {
			return fmt.Errorf("node %s has the address %s", m.Name, m.Peer)
		}
	}
	switch {
	case c.Key == "" && s.PeerSecurity != PeersPlain:
		return fmt.Errorf("the key of node %s is missing: \"quorate key show\" prints it there", c.Name)
	case c.Key != "":
		if err := s.mayHave(c.ID, c.Name, c.Key); err != nil {
			return err
		}
	}
	m := Member{ID: c.ID, Name: c.Name, Peer: c.Peer, Kind: KindLearner, Key: c.Key}
	if c.Kind != KindLearner {
		m.Becomes = c.Kind
	}
	switch {
	case c.Source != "" && m.Becomes != "":
		return fmt.Errorf("node %s gets a vote, and is fed by the leader: only a learner has a source", c.Name)
	case c.Source != "":
		if err := s.maySource(c.Name, c.Source, KindLearner); err != nil {
			return err
		}
		m.Source, m.SourceApplied = c.Source, c.SourceApplied
	case c.SourceApplied:
		return fmt.Errorf("node %s has no source: source-applied has no effect without a source", c.Name)
	}
	s.Members = append(s.Members, m)
	return nil
}

// Majority tells whether is holds for more than half of the voters, and, if there are outgoing voters, for more
// than half of these, too. outgoing are the old voters while a change of the voters is not complete.
func Majority(voters, outgoing []NodeID, is func(NodeID) bool) bool {
	more := func(ids []NodeID) bool {
		n := 0
		for _, id := range ids {
			if is(id) {
				n++
			}
		}
		return n > len(ids)/2
	}
	return more(voters) && (len(outgoing) == 0 || more(outgoing))
}

// UnreachedBy says that node name hears a member, and cannot connect to it. dialError is the reason, listens
// the address on which the member says that it listens.
func (m Member) UnreachedBy(name, listens, dialError string) string {
	if listens == m.Peer {
		return fmt.Sprintf("%s hears of it, and cannot reach it at %s (%s)", name, m.Peer, dialError)
	}
	return fmt.Sprintf("%s cannot reach it at %s (%s); it says that it listens on %s: %s", name, m.Peer, dialError, listens, m.readdress(listens))
}

// UnreachedByAll says it to the member itself, to which no other node can send anything.
func (m Member) UnreachedByAll(listens string) string {
	return fmt.Sprintf("the other nodes look for this node at %s, and it listens on %s; on one of them: %s", m.Peer, listens, m.readdress(listens))
}

// readdress is the command for a node that listens at another address.
func (m Member) readdress(listens string) string {
	return fmt.Sprintf("\"quorate node set %s --peer %s\"", m.Name, listens)
}
