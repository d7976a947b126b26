package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func stateBefore() State {
	s := NewState([]Member{
		{ID: 1, Name: "a", Peer: "a:1", Kind: KindFull, Weight: 0, Site: "east", RequireAck: true},
		{ID: 2, Name: "b", Peer: "b:1", Kind: KindFull, Weight: 7, Site: "west"},
		{ID: 3, Name: "c", Peer: "c:1", Kind: KindLogger, Site: "west"},
	})
	s.Version, s.Durability, s.Removed = 41, DurabilitySiteMajority, []NodeID{9}
	s.Maintenance = &Maintenance{By: "x", Primary: "b"}
	return s
}

func recoverOn(t *testing.T, s State, node string, kind Kind) State {
	t.Helper()
	r := Recovery{Cluster: "x", By: "somebody", At: time.Unix(1, 0).UTC()}
	next, err := s.Recover(node, kind, "new instance", "u:1-5", r)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestRecoverState: the state after a recovery has one node, and nothing in it keeps that node from opening.
func TestRecoverState(t *testing.T) {
	s := stateBefore()
	got := recoverOn(t, s, "a", KindFull)
	want := State{
		Version: 1_000_000, Durability: DurabilityMajority, Removed: []NodeID{9},
		Members: []Member{{ID: 1, Name: "a", Peer: "a:1", Kind: KindFull, Weight: WeightDefault, Site: "east", Instance: "new instance"}},
		Recovered: &Recovery{
			Version: 1_000_000, Cluster: "x", Node: "a", By: "somebody", At: time.Unix(1, 0).UTC(), GTIDs: "u:1-5",
			Without: s.Members[1:],
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(stateBefore(), s); diff != "" {
		t.Errorf("the state of before has changed:\n%s", diff)
	}
	again := recoverOn(t, got, "a", KindFull)
	if again.Version != 2_000_000 || len(again.Recovered.Without) != 2 {
		t.Errorf("recovered again: %+v", again)
	}
	if _, err := s.Recover("x", KindFull, "", "", Recovery{}); err == nil {
		t.Error("a node that is no member is recovered")
	}
}

// TestTakeBack: a former member comes back only by a rebuild, because its old data must not count.
func TestTakeBack(t *testing.T) {
	s := recoverOn(t, stateBefore(), "a", KindFull)
	add := Change{ID: "1", Membership: &MembershipChange{Op: OpAdd, Name: "b", ID: 2, Peer: "b:2"}}
	if _, err := s.With(add); err == nil || !strings.Contains(err.Error(), "quorate node rebuild b") {
		t.Errorf("it is added: %v", err)
	}
	rebuild := Change{ID: "2", Membership: &MembershipChange{Op: OpRebuild, Name: "b", Instance: "b's new one"}}
	next, err := s.With(rebuild)
	if err != nil {
		t.Fatal(err)
	}
	want := Member{ID: 2, Name: "b", Peer: "b:1", Kind: KindLearner, Weight: 7, Site: "west", Becomes: KindFull, Instance: "b's new one"}
	if diff := cmp.Diff(want, next.Members[1]); diff != "" {
		t.Errorf("member (-want +got):\n%s", diff)
	}
	if len(next.Recovered.Without) != 1 || len(s.Recovered.Without) != 2 || next.Version != s.Version+1 {
		t.Errorf("it is %+v, was %+v", next, s)
	}
	if _, err := next.With(Change{ID: "3", Membership: &MembershipChange{Op: OpRebuild, Name: "d", Instance: "x"}}); err == nil {
		t.Error("a node that was never there is taken back")
	}
	gone, err := s.With(Change{ID: "4", Membership: &MembershipChange{Op: OpRemove, Name: "c"}})
	if err != nil || gone.LeftBehind("c") || !gone.LeftBehind("b") || gone.Removed[1] != 3 || len(gone.Members) != 1 {
		t.Errorf("removed for good: %+v, %v", gone, err)
	}
	taken := s.Clone()
	taken.Members = append(taken.Members, Member{ID: 4, Name: "d", Peer: "b:1", Kind: KindLearner})
	if _, err := taken.With(rebuild); err == nil || !strings.Contains(err.Error(), "node d has the address") {
		t.Errorf("its address is taken: %v", err)
	}
}

// TestRecoverLogger: a cluster of one logger can take in a full node, and then cannot lose its last full node.
func TestRecoverLogger(t *testing.T) {
	s := recoverOn(t, stateBefore(), "c", KindLogger)
	next, err := s.With(Change{ID: "1", Membership: &MembershipChange{Op: OpRebuild, Name: "b", Instance: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if next, err = next.With(Change{ID: "2", Membership: &MembershipChange{Op: OpPromote, Name: "b", Kind: KindFull, Instance: "x"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := next.With(Change{ID: "3", Membership: &MembershipChange{Op: OpRemove, Name: "b"}}); err == nil {
		t.Error("the last full node is removed")
	}
}

// TestRecoveryIsTold: a former member gets a sentence for people, and its agent gets what it needs.
func TestRecoveryIsTold(t *testing.T) {
	r := *recoverOn(t, stateBefore(), "a", KindFull).Recovered
	for _, want := range []string{`cluster "x" was recovered on node a at 1970-01-01 00:00:01 UTC without node b`, `quorate node rebuild b`} {
		if text := r.Sentence("b"); !strings.Contains(text, want) {
			t.Errorf("it does not say %q: %s", want, text)
		}
	}
	if told := r.Told(); !told.Is(r) || told.GTIDs != r.GTIDs || told.Without != nil || told.By != "" {
		t.Errorf("other nodes are told %+v", told)
	}
	long := r
	if s, err := stateBefore().Recover("a", KindFull, "", strings.Repeat("x", recoveryGTIDsBytesMax+1), long); err != nil || s.Recovered.GTIDs != "" {
		t.Errorf("transactions that are too many are kept: %v", err)
	}
}
