package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMembership follows a cluster that grows and shrinks.
func TestMembership(t *testing.T) {
	s := testState()
	for _, step := range []struct {
		change MembershipChange
		want   string // the members, or the error
	}{
		{MembershipChange{Op: OpPromote, Name: "a", Kind: KindFull}, "node a has a vote already, as a full node"},
		{MembershipChange{Op: OpAdd, Name: "d", ID: 4, Peer: "c:7400"}, "node c has the address c:7400"},
		{MembershipChange{Op: OpAdd, Name: "c", ID: 4, Peer: "d:7400"}, "there is a node c already"},
		{MembershipChange{Op: OpAdd, Name: "d", ID: 3, Peer: "d:7400"}, "there is a node c already"},
		{MembershipChange{Op: OpAdd, Name: "d", Peer: "d:7400"}, "has a name, an address and an id"},
		{MembershipChange{Op: OpAdd, Name: "d", ID: 4, Peer: "d:7400"}, "a full 5, b full 5, c logger 5, d learner 0"},
		{MembershipChange{Op: OpDemote, Name: "d"}, "node d is a learner already"},
		{MembershipChange{Op: OpPromote, Name: "d", Kind: KindLearner}, `the kind of node d must be full or logger, not "learner"`},
		{MembershipChange{Op: OpPromote, Name: "d", Kind: KindFull}, "a full 5, b full 5, c logger 5, d full 5"},
		{MembershipChange{Op: OpDemote, Name: "c"}, "a full 5, b full 5, c learner 0, d full 5"},
		{MembershipChange{Op: OpRemove, Name: "c"}, "a full 5, b full 5, d full 5"},
		{MembershipChange{Op: OpAdd, Name: "c", ID: 3, Peer: "c:7400"}, "add it under another name"},
		{MembershipChange{Op: "x", Name: "a"}, `"x" is not a change of a node`},
		{MembershipChange{Op: OpRemove, Name: "x"}, `no node "x"`},
		{MembershipChange{Op: OpRemove, Name: "a"}, "b full 5, d full 5"},
		{MembershipChange{Op: OpRemove, Name: "b"}, "d full 5"},
		{MembershipChange{Op: OpRemove, Name: "d"}, "nobody could lead"},
		{MembershipChange{Op: OpDemote, Name: "d"}, "nobody could lead"},
	} {
		before := s.Clone()
		next, err := s.With(change(Change{Membership: &step.change}))
		if d := cmp.Diff(before, s); d != "" {
			t.Fatalf("%v changed what it was called on (-want +got):\n%s", step.change, d)
		}
		if err != nil {
			if !strings.Contains(err.Error(), step.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: %v, want %q", step.change, err, step.want)
			}
			continue
		}
		var members []string
		for _, m := range next.Members {
			members = append(members, m.Name+" "+string(m.Kind)+" "+string('0'+rune(m.Weight)))
		}
		if got := strings.Join(members, ", "); got != step.want {
			t.Errorf("%v: %s, want %s", step.change, got, step.want)
		}
		s = next
	}
	if d := cmp.Diff([]NodeID{3, 1, 2}, s.Removed); d != "" {
		t.Errorf("removed (-want +got):\n%s", d)
	}
}

func TestMembersAreBounded(t *testing.T) {
	s := testState()
	for i := len(s.Members); i < membersMax; i++ {
		s.Members = append(s.Members, Member{ID: NodeID(i + 1), Name: string('a' + rune(i)), Kind: KindLearner})
	}
	_, err := s.With(change(Change{Membership: &MembershipChange{Op: OpAdd, Name: "z", ID: 99, Peer: "z:1"}}))
	if err == nil || !strings.Contains(err.Error(), "at most 9") {
		t.Errorf("error %v", err)
	}
}

// TestRebuild takes a node's vote away and gives it back as it was. A node whose ACK is required stays required
// all the time.
func TestRebuild(t *testing.T) {
	s := testState()
	for _, c := range []Change{
		{Node: &NodeChange{Name: "b", Weight: new(7), RequireAck: new(true), DropAfter: new(time.Second)}},
		{Membership: &MembershipChange{Op: OpRebuild, Name: "b", Instance: "i1"}},
		{Membership: &MembershipChange{Op: OpRebuild, Name: "b", Instance: "i2"}}, // once more, before it is back
	} {
		next, err := s.With(change(c))
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	want := Member{ID: 2, Name: "b", Peer: "b:7400", Kind: KindLearner, Weight: 7, Becomes: KindFull, Instance: "i2",
		RequireAck: true, DropAfter: time.Second}
	got, err := s.Member("b")
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	// A node that caught up with its former data directory gets no vote.
	late := change(Change{Membership: &MembershipChange{Op: OpPromote, Name: "b", Kind: KindFull, Instance: "i1"}})
	if _, err := s.With(late); err == nil {
		t.Error("promoted with the data of before it was rebuilt again")
	}
	if s, err = s.With(change(Change{Membership: &MembershipChange{Op: OpPromote, Name: "b", Kind: KindFull, Instance: "i2"}})); err != nil {
		t.Fatal(err)
	}
	want.Kind, want.Becomes = KindFull, ""
	got, err = s.Member("b")
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if _, err := s.With(change(Change{Membership: &MembershipChange{Op: OpRebuild, Name: "b"}})); err == nil {
		t.Error("rebuilt without an instance")
	}
}

// TestAddedKind: which kind a node has when it is added to become a kind. A learner stays a learner.
func TestAddedKind(t *testing.T) {
	for kind, want := range map[Kind]Kind{KindFull: KindFull, KindLogger: KindLogger, KindLearner: "", "": "", "x": "x"} {
		s, err := testState().With(change(Change{Membership: &MembershipChange{Op: OpAdd, Name: "d", ID: 4, Peer: "d:1", Kind: kind}}))
		if want == "x" {
			if err == nil {
				t.Errorf("a node of kind %q was added", kind)
			}
			continue
		}
		if m, err := s.Member("d"); err != nil || m.Kind != KindLearner || m.Becomes != want {
			t.Errorf("%q: %+v, %v", kind, m, err)
		}
	}
}

// TestAddressIsCorrected: a node gets an address that no other node has.
func TestAddressIsCorrected(t *testing.T) {
	s := sourcedState() // d is a learner
	set := func(name, peer string) Change {
		return change(Change{Node: &NodeChange{Name: name, Peer: &peer}})
	}
	for _, c := range []struct{ name, peer, says string }{
		{"a", "b:7400", "node b has the address b:7400"}, {"d", "b:7400", "node b has the address b:7400"},
		{"d", "", "the address of node d is missing"}, {"d", "d:7400", "it is so already"},
	} {
		if _, err := s.With(set(c.name, c.peer)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s at %s: %v, want %q", c.name, c.peer, err, c.says)
		}
	}
	for _, name := range []string{"d", "a"} { // a has a vote
		c := set(name, name+":7500")
		next, err := s.With(c)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := s.Member(name)
		before.Peer = name + ":7500"
		if m, _ := next.Member(name); m != before || c.String() != "node "+name+": peer "+name+":7500" {
			t.Errorf("%s: %+v", c, m)
		}
	}
}
