package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/config/units"
)

// recoveryVersions: a recovery moves the version of the state to the next multiple of this. The lost nodes may
// have made changes that the survivor never saw. The versions of the survivor's own changes must be later than
// those, so that a former member knows which state is newer. People do not make a million changes.
const recoveryVersions = 1_000_000

// Recovery says that the majority of a cluster was gone for good, and that one node went on as a cluster of its
// own.
type Recovery struct {
	// Version is the version of the state that the recovery made: later than any version before.
	Version uint64 `json:"version"`
	// Cluster is the name of the cluster, Node the name of the node that went on.
	Cluster string    `json:"cluster"`
	Node    string    `json:"node"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at"`
	// GTIDs are the transactions with which it went on; "" = the set is too long.
	GTIDs string `json:"gtids,omitempty"`
	// Without are the former members. Each of them can become a member again, after a rebuild of its data.
	Without []Member `json:"without,omitempty"`
}

// recoveryGTIDsBytesMax bounds Recovery.GTIDs, which goes into a rejection.
const recoveryGTIDsBytesMax = 2 << 10

// Told is the part of a recovery that other nodes are told.
func (r Recovery) Told() Recovery {
	r.Without, r.By = nil, ""
	return r
}

// Is tells whether both are the same recovery. Two recoveries that were made independently may have the same
// version.
func (r Recovery) Is(o Recovery) bool {
	return r.Version == o.Version && r.Node == o.Node && r.At.Equal(o.At)
}

// Excludes tells whether a node that obeys this recovery does not obey the other one, by which a cluster goes on: neither
// knew of the other. nil = there was no other.
func (r Recovery) Excludes(other *Recovery) bool {
	return other != nil && r.Version >= other.Version && !r.Is(*other)
}

// Generation is how many recoveries came before a version of a cluster's state.
func Generation(version uint64) uint64 { return version / recoveryVersions }

// NextGeneration is the first version of the generation after that of a version.
func NextGeneration(version uint64) uint64 { return (Generation(version) + 1) * recoveryVersions }

// Sentence tells a former member, or a person who looks at it, that the cluster goes on without it.
func (r Recovery) Sentence(node string) string {
	return fmt.Sprintf("cluster %q was recovered on node %s at %s without node %s, which serves nothing until it is rebuilt: "+
		"\"quorate node rebuild %s\", run on node %s, gives it a new copy of the data",
		r.Cluster, r.Node, units.Time(r.At), node, node, r.Node)
}

// String says in one line what was done, for the audit log.
func (r Recovery) String() string {
	var without []string
	for _, m := range r.Without {
		without = append(without, m.Name)
	}
	return fmt.Sprintf("recover --force-new-cluster on node %s, without %s", r.Node, strings.Join(without, ", "))
}

// Recover returns the state of a cluster with which one member goes on alone, as a node of this kind. r is the
// recovery, which Recover completes. The member's data directory gets a new instance, so that no former member
// takes it for the old one. Nothing remains in the state that could keep the node from opening: no maintenance,
// no weight 0, no policy that asks for other nodes.
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
	if s.Recovered != nil { // this is not the first recovery
		r.Without = append(r.Without, s.Recovered.Without...)
	}
	next.Recovered = &r
	return next, nil
}

// leftBehind returns the position of a former member among those that a recovery left behind; -1 if there is
// none.
func (s State) leftBehind(is func(Member) bool) int {
	if s.Recovered == nil {
		return -1
	}
	return slices.IndexFunc(s.Recovered.Without, is)
}

// Former tells whether a node was a member: it was removed, or left behind by a recovery.
func (s State) Former(id NodeID) bool {
	return slices.Contains(s.Removed, id) || s.leftBehind(func(m Member) bool { return m.ID == id }) >= 0
}

// LeftBehind tells whether a recovery went on without a node that has not become a member again.
func (s State) LeftBehind(name string) bool {
	return s.leftBehind(func(m Member) bool { return m.Name == name }) >= 0
}

// forget removes for good a node that a recovery left behind; false if there is no such node.
func (s *State) forget(name string) bool {
	i := s.leftBehind(func(m Member) bool { return m.Name == name })
	if i < 0 {
		return false
	}
	s.noteRemoved(s.Recovered.Without[i])
	s.Recovered.Without = slices.Delete(s.Recovered.Without, i, i+1)
	return true
}

// takeBack makes a node a member again that a recovery left behind: it is about to be rebuilt. If there is no
// such node, the error is notMember.
func (s *State) takeBack(name string, notMember error) (Member, error) {
	i := s.leftBehind(func(m Member) bool { return m.Name == name })
	if i < 0 {
		return Member{}, notMember
	}
	m := s.Recovered.Without[i]
	if m.Becomes != "" { // it had no vote yet, then
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
	for _, k := range m.Keys() { // another node may have got it meanwhile
		if err := s.mayHave(m.ID, m.Name, k); err != nil {
			return Member{}, err
		}
	}
	s.Recovered.Without = slices.Delete(s.Recovered.Without, i, i+1)
	m.RequireAck, m.DropAfter, m.Source, m.SourceApplied = false, 0, "", false
	s.Members = append(s.Members, m)
	return m, nil
}

// noFull tells whether there is no node that could lead. A cluster that was recovered on a logger has none
// until a full node has joined.
func (s State) noFull() bool {
	return !slices.ContainsFunc(s.Members, func(m Member) bool { return m.Kind == KindFull && m.Weight > 0 })
}
