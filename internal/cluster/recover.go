package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/config/units"
)

// recoveryVersions is how far a recovery moves the version of the state: to the next
// multiple. The lost nodes may have made changes that the survivor never saw. The
// versions of its own changes must be later than theirs, so that a former member knows
// which state is newer. People make no million changes.
const recoveryVersions = 1_000_000

// Recovery says that a cluster's majority was gone for good, and that one node went
// on as a cluster of its own.
type Recovery struct {
	// Version is that of the state that it made: later than any version before.
	Version uint64 `json:"version"`
	// Cluster is the name of the cluster, Node that of the node that went on.
	Cluster string    `json:"cluster"`
	Node    string    `json:"node"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at"`
	// GTIDs are the transactions that it went on with; "" = too many to be said.
	GTIDs string `json:"gtids,omitempty"`
	// Without are the former members: each can be taken in
	// again, with its data made anew.
	Without []Member `json:"without,omitempty"`
}

// recoveryGTIDsBytesMax bounds Recovery.GTIDs: it goes into a rejection.
const recoveryGTIDsBytesMax = 2 << 10

// Told is what other nodes are told of a recovery.
func (r Recovery) Told() Recovery {
	r.Without, r.By = nil, ""
	return r
}

// Is tells whether it is the same recovery. Two that were made apart may have the same
// version.
func (r Recovery) Is(o Recovery) bool {
	return r.Version == o.Version && r.Node == o.Node && r.At.Equal(o.At)
}

// Generation counts the recoveries by which a cluster came to a version of its state.
func Generation(version uint64) uint64 { return version / recoveryVersions }

// NextGeneration is the first version of the generation behind that of a version.
func NextGeneration(version uint64) uint64 { return (Generation(version) + 1) * recoveryVersions }

// Sentence tells a former member, or a person who looks at it, that it is out.
func (r Recovery) Sentence(node string) string {
	return fmt.Sprintf("cluster %q was recovered on node %s at %s without node %s, which serves nothing until it is rebuilt: "+
		"\"quorate node rebuild %s\", run on node %s, gives it a new copy of the data",
		r.Cluster, r.Node, units.Time(r.At), node, node, r.Node)
}

// String says in a line what was done, for the audit log.
func (r Recovery) String() string {
	var without []string
	for _, m := range r.Without {
		without = append(without, m.Name)
	}
	return fmt.Sprintf("recover --force-new-cluster on node %s, without %s", r.Node, strings.Join(without, ", "))
}

// Recover returns the state of a cluster that one member goes on with, as a node of
// this kind, and r with all that it says of it. Its data directory counts under a new
// instance from now on, so that no former member takes it for the old one. Nothing of
// s is left that could keep the node from opening: no maintenance, no weight 0, no
// policy that asks for others.
func (s State) Recover(node string, kind Kind, instance, gtids string, r Recovery) (State, error) {
	self, err := s.Member(node)
	if err != nil {
		return State{}, err
	}
	before := self
	self.Kind, self.Instance = kind, instance
	self.RequireAck, self.DropAfter, self.Becomes = false, 0, ""
	self.Source, self.SourceApplied = "", false
	switch {
	case kind != KindFull:
		self.Weight = 0
	case self.Weight == 0:
		self.Weight = WeightDefault
	}
	if r.GTIDs = gtids; len(gtids) > recoveryGTIDsBytesMax {
		r.GTIDs = ""
	}
	next := s.Clone()
	next.Version = NextGeneration(s.Version)
	next.Members, next.Maintenance = []Member{self}, nil
	if next.Durability == DurabilitySiteMajority {
		next.Durability = DurabilityMajority
	}
	r.Version, r.Node = next.Version, node
	r.Without = slices.DeleteFunc(slices.Clone(s.Members), func(m Member) bool { return m == before })
	if s.Recovered != nil { // not for the first time
		r.Without = append(r.Without, s.Recovered.Without...)
	}
	next.Recovered = &r
	return next, nil
}

// leftBehind returns the position of a former member among those that a recovery went
// on without, -1 if it is none of them.
func (s State) leftBehind(is func(Member) bool) int {
	if s.Recovered == nil {
		return -1
	}
	return slices.IndexFunc(s.Recovered.Without, is)
}

// LeftBehind tells whether a recovery went on without a node, which is none again.
func (s State) LeftBehind(name string) bool {
	return s.leftBehind(func(m Member) bool { return m.Name == name }) >= 0
}

// forget removes a node for good that a recovery went on without; false if it is none.
func (s *State) forget(name string) bool {
	i := s.leftBehind(func(m Member) bool { return m.Name == name })
	if i < 0 {
		return false
	}
	s.noteRemoved(s.Recovered.Without[i])
	s.Recovered.Without = slices.Delete(s.Recovered.Without, i, i+1)
	return true
}

// takeBack makes a node a member again that a recovery went on without: it is about
// to be rebuilt. notMember is what it is told otherwise.
func (s *State) takeBack(name string, notMember error) (Member, error) {
	i := s.leftBehind(func(m Member) bool { return m.Name == name })
	if i < 0 {
		return Member{}, notMember
	}
	m := s.Recovered.Without[i]
	if m.Becomes != "" { // it had no vote yet
		m.Kind, m.Becomes = m.Becomes, ""
	}
	for _, other := range s.Members {
		if other.Peer == m.Peer {
			return Member{}, fmt.Errorf("node %s has the address %s of node %s", other.Name, m.Peer, name)
		}
	}
	if len(s.Members) >= membersMax {
		return Member{}, fmt.Errorf("there are %d nodes, at most %d can be", len(s.Members), membersMax)
	}
	if m.Key == "" && s.PeerSecurity != PeersPlain {
		return Member{}, fmt.Errorf("node %s has no known key, because it was left behind before the cluster used keys: "+
			"run \"quorate node remove %s\", then add it under a new name", name, name)
	}
	for _, k := range m.Keys() { // somebody else may have got it meanwhile
		if err := s.mayHave(m.ID, m.Name, k); err != nil {
			return Member{}, err
		}
	}
	s.Recovered.Without = slices.Delete(s.Recovered.Without, i, i+1)
	m.RequireAck, m.DropAfter, m.Source, m.SourceApplied = false, 0, "", false
	s.Members = append(s.Members, m)
	return m, nil
}

// noFull tells whether there is no node that could lead: a cluster that was recovered
// on a logger has none until a full node has joined.
func (s State) noFull() bool {
	return !slices.ContainsFunc(s.Members, func(m Member) bool { return m.Kind == KindFull && m.Weight > 0 })
}
