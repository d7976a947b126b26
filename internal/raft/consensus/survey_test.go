package consensus

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// surveyed returns a log whose commit index is in its middle. Behind it there are a transaction, a change of
// the state, and a change of the members that is not complete.
func surveyed(t *testing.T, tail ...[]byte) (*seglog.Log, cluster.StatePoint) {
	t.Helper()
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	before := cluster.StatePoint{State: cluster.NewState([]cluster.Member{testMember(1), testMember(2), testMember(4)}), Through: 2}
	weight := stateOf(t, before.State, testWeight(t, "7"))
	promote := stateOf(t, weight.State, testMembership(string(cluster.OpPromote), "n4"))
	change, err := entry.EncodeState(1, weight)
	if err != nil {
		t.Fatal(err)
	}
	context, err := entry.MarshalState(promote)
	if err != nil {
		t.Fatal(err)
	}
	cc := raftChange(weight.State, promote)
	cc.Context = context
	members, err := proto.Marshal(cc)
	if err != nil {
		t.Fatal(err)
	}
	entries := []seglog.Entry{
		{Data: nil}, {Data: epochEntry(1)}, {Data: transactionsEntry(entry.Header{Term: 1, Number: 1, Count: 2}, 1, 2)},
		{Data: transactionsEntry(entry.Header{Term: 1, Number: 2, Count: 1}, 3)}, {Data: change}, {Data: members, Type: uint8(pb.EntryConfChangeV2)},
	}
	for _, data := range tail {
		entries = append(entries, seglog.Entry{Data: data})
	}
	for i := range entries {
		entries[i].Index, entries[i].Term = uint64(i+1), 1
	}
	if err := log.Append(entries, &seglog.HardState{Term: 1, Vote: 1, Commit: 3}); err != nil {
		t.Fatal(err)
	}
	return log, before
}

func stateOf(t *testing.T, s cluster.State, c cluster.Change) cluster.StateChange {
	t.Helper()
	next, err := s.With(c)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.StateChange{Change: c, State: next}
}

// TestSurveyLog: a survey has everything up to the log's end, committed or not.
func TestSurveyLog(t *testing.T) {
	log, before := surveyed(t)
	s, err := SurveyLog(log, before)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.GTIDs.Count(); n != 3 {
		t.Errorf("%d transactions: %v", n, s.GTIDs)
	}
	m, err := s.State.State.Member("n4")
	if err != nil || m.Kind != cluster.KindFull || s.State.State.Version != 2 || s.State.Index != 6 {
		t.Errorf("the state is %+v, %v", s.State, err)
	}
	if diff := cmp.Diff([]cluster.NodeID{1, 2}, s.State.Outgoing); diff != "" {
		t.Errorf("voters of before (-want +got):\n%s", diff)
	}
	again, err := SurveyLog(log, s.State) // changes that the point includes count only once
	if err != nil || again.State.State.Version != 2 {
		t.Errorf("from its own end it finds %+v, %v", again, err)
	}
	set := &gtid.Set{}
	if err := AddTransactions(set, log, 1, log.LastIndex()); err != nil || !set.Equal(s.GTIDs) {
		t.Errorf("one by one they are %v, want %v: %v", set, s.GTIDs, err)
	}
	if err := AddTransactions(set, log, 1, log.LastIndex()+1); err == nil {
		t.Error("an entry is read that is not there")
	}
}

// TestSurveyBrokenLog: a log with an entry that could never be committed is refused.
func TestSurveyBrokenLog(t *testing.T) {
	log, before := surveyed(t, transactionsEntry(entry.Header{Term: 1, Number: 3, Count: 1}, 2))
	if _, err := SurveyLog(log, before); err == nil || !strings.Contains(err.Error(), "I9") {
		t.Errorf("a transaction is there twice: %v", err)
	}
}

// TestUndoneNewerState: a log may have a state that this quorate does not know all of, if the node has kept a later one that
// it knows: a newer quorate has undone the change, and has been replaced by this one again.
func TestUndoneNewerState(t *testing.T) {
	newer := append(entry.AppendHeader(nil, entry.Header{Kind: entry.KindState, Term: 1}), `{"state":{"version":3,"members":[{"id":1}],"format":10}}`...)
	log, point := surveyed(t, newer)
	for kept, refused := range map[uint64]bool{6: true, 7: false} {
		point.State.Version, point.Index, point.Through = 3, kept, kept
		if _, err := SurveyLog(log, point); (err != nil) != refused || refused && !strings.Contains(err.Error(), "upgrade quorate on this node") {
			t.Errorf("the state of entry %d is kept: %v", kept, err)
		}
	}
}
