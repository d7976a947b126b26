package agent

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// TestStatusSaysWhatIsSurvived: a node without a primary goes by what it hears of
// itself; with one, by what the primary does.
func TestStatusSaysWhatIsSurvived(t *testing.T) {
	a := openLone(t)
	state := cluster.NewState([]cluster.Member{
		{ID: a.self.ID, Name: a.self.Name, Kind: cluster.KindFull, Weight: 5},
		{ID: 98, Name: "b", Kind: cluster.KindFull, Weight: 5}, {ID: 99, Name: "c", Kind: cluster.KindFull, Weight: 5},
	})
	state.Version = 1
	a.board.setState(state)
	says := func(n cluster.NodeStatus) {
		t.Helper()
		n.ID, n.Name, n.Term = 98, "b", 7
		blob, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		a.board.peerUp(98, true)
		if err := a.board.received(98, blob); err != nil {
			t.Fatal(err)
		}
	}
	st := provider{a}.Status()
	if st.Quorum == nil || st.Quorum.Survives != -1 || !st.NoPrimarySince.IsZero() || st.NoPrimarySeconds != 0 {
		t.Errorf("alone from the start: %+v, since %v", st.Quorum, st.NoPrimarySince)
	}
	if d := cmp.Diff([][]string{{"b"}, {"c"}}, st.Quorum.Start); d != "" {
		t.Errorf("to be started (-want +got):\n%s", d)
	}

	primarys := &cluster.Quorum{Voters: []string{a.self.Name, "b", "c"}, Running: []string{"b", "c"}, Needed: 2}
	failover := &cluster.Failover{From: "b", To: "c"}
	says(cluster.NodeStatus{Role: cluster.RolePrimary, Quorum: primarys, Failover: failover})
	st = provider{a}.Status()
	if d := cmp.Diff(cluster.Status{Primary: "b", Quorum: primarys, Failover: failover},
		cluster.Status{Primary: st.Primary, Quorum: st.Quorum, Failover: st.Failover}); d != "" {
		t.Errorf("the primary's (-want +got):\n%s", d)
	}
	for _, n := range st.Nodes {
		if n.Quorum != nil || n.Failover != nil {
			t.Errorf("node %s says it again", n.Name)
		}
	}
	says(cluster.NodeStatus{Role: cluster.RolePrimary}) // of an older version
	if st = (provider{a}).Status(); st.Quorum == nil || len(st.Quorum.Running) != 2 || st.Failover == nil {
		t.Errorf("by what this node hears: %+v, %+v", st.Quorum, st.Failover)
	}

	a.board.peerUp(98, false)
	if st = (provider{a}).Status(); st.Primary != "" || st.Quorum.Survives != -1 || st.NoPrimarySince.IsZero() || st.Failover != nil {
		t.Errorf("alone again: %+v since %v", st.Quorum, st.NoPrimarySince)
	}
	state.Version, state.Members = 2, state.Members[1:]
	a.board.setState(state)
	if st = (provider{a}).Status(); st.Quorum != nil {
		t.Errorf("no member any more: %+v", st.Quorum)
	}
}
