package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/raft/transport"
)

// TestStatusSaysWhatIsSurvived: a node that knows no primary uses what it hears itself; else it uses what the primary
// says.
func TestStatusSaysWhatIsSurvived(t *testing.T) {
	a := openLone(t)
	state := cluster.NewState([]cluster.Member{
		{ID: a.self.ID, Name: a.self.Name, Kind: cluster.KindFull, Weight: 5},
		{ID: 98, Name: "b", Kind: cluster.KindFull, Weight: 5}, {ID: 99, Name: "c", Kind: cluster.KindFull, Weight: 5},
	})
	state.Version = 1
	a.board.SetState(state)
	says := func(n status.Node) {
		t.Helper()
		n.ID, n.Name, n.Term = 98, "b", 7
		hears(t, a, n)
	}
	st := provider{a}.Status()
	if st.Quorum == nil || st.Quorum.Survives != -1 || !st.NoPrimarySince.IsZero() || st.NoPrimarySeconds != 0 {
		t.Errorf("alone from the start: %+v, since %v", st.Quorum, st.NoPrimarySince)
	}
	if d := cmp.Diff([][]string{{"b"}, {"c"}}, st.Quorum.Start); d != "" {
		t.Errorf("to be started (-want +got):\n%s", d)
	}

	primarys := &status.Quorum{Voters: []string{a.self.Name, "b", "c"}, Running: []string{"b", "c"}, Needed: 2}
	failover := &status.Failover{From: "b", To: "c"}
	says(status.Node{Role: status.RolePrimary, Quorum: primarys, Failover: failover, ElectionTimeout: time.Second})
	st = provider{a}.Status()
	if d := cmp.Diff(status.Cluster{Primary: "b", Quorum: primarys, Failover: failover},
		status.Cluster{Primary: st.Primary, Quorum: st.Quorum, Failover: st.Failover}); d != "" {
		t.Errorf("the primary's (-want +got):\n%s", d)
	}
	for _, n := range st.Nodes {
		if n.Quorum != nil || n.Failover != nil {
			t.Errorf("node %s says it again", n.Name)
		}
	}
	says(status.Node{Role: status.RolePrimary}) // a primary of an older version
	if st = (provider{a}).Status(); st.Quorum == nil || len(st.Quorum.Running) != 2 || st.Failover == nil {
		t.Errorf("by what this node hears: %+v, %+v", st.Quorum, st.Failover)
	}
	says(status.Node{Role: status.RolePrimary, Quorum: primarys, Failover: failover}) // a primary that knows nothing of leases
	if st = (provider{a}).Status(); cmp.Equal(primarys, st.Quorum) || st.Failover.To == failover.To {
		t.Errorf("an older primary is believed: %+v, %+v", st.Quorum, st.Failover)
	}

	a.board.PeerUp(98, false)
	if st = (provider{a}).Status(); st.Primary != "" || st.Quorum.Survives != -1 || st.NoPrimarySince.IsZero() || st.Failover != nil {
		t.Errorf("alone again: %+v since %v", st.Quorum, st.NoPrimarySince)
	}
	state.Version, state.Members = 2, state.Members[1:]
	a.board.SetState(state)
	if st = (provider{a}).Status(); st.Quorum != nil {
		t.Errorf("no member any more: %+v", st.Quorum)
	}
}

// TestNoQuorumOutside: a node that takes no part in the cluster does not advise which nodes to start.
func TestNoQuorumOutside(t *testing.T) {
	a := openLone(t)
	state := cluster.NewState([]cluster.Member{
		{ID: a.self.ID, Name: a.self.Name, Kind: cluster.KindFull, Weight: 5},
		{ID: 98, Name: "b", Kind: cluster.KindFull, Weight: 5}, {ID: 99, Name: "c", Kind: cluster.KindFull, Weight: 5},
	})
	state.Version = 1
	a.board.SetState(state)
	for _, role := range []status.Role{status.RoleRemoved, status.RoleJoining} {
		a.board.SetRole(role, "")
		if st := (provider{a}).Status(); st.Quorum != nil {
			t.Errorf("%s: %+v", role, st.Quorum)
		}
	}
	a.board.SetRole(status.RoleForming, "")
	if q := (provider{a}).Status().Quorum; q == nil || len(q.Running) != 0 || q.Survives != -1 || len(q.Start) != 0 {
		t.Errorf("forming: %+v", q)
	}
}

// TestWeightBeforeTheFirstState: a node knows its own weight from its configuration.
func TestWeightBeforeTheFirstState(t *testing.T) {
	cfg := loneConfig(t)
	cfg.Members[0].Weight = 7
	a := loneAgent(t, cfg)
	if got := (provider{a}).Status().Own().Weight; got != 7 {
		t.Errorf("weight %d", got)
	}
}

// TestRefusedByPeers: a peer that refuses this node, or that this node refuses, is running, whatever the node waits
// for meanwhile: nobody is advised to start it. A peer that has gone may have to be started.
func TestRefusedByPeers(t *testing.T) {
	a := orderedAgent(t, t.TempDir())
	later := openBoard(a)
	s := a.board.State()
	for i := range s.Members {
		s.Members[i].Weight = 5
	}
	a.board.SetState(s)
	h := peerHandler{a}
	id := func(name string) cluster.NodeID { return config.MemberID(a.cfg.Cluster, name) }
	shown := func() (away string, start int, refusals []status.Refusal) {
		s := a.sight(a.board.Own())
		q, _ := a.outlook(s)
		for _, n := range s.Nodes {
			if n.Refusal != nil {
				refusals = append(refusals, *n.Refusal)
			}
		}
		return strings.Join(q.Away, ", "), len(q.Start), refusals
	}
	h.Rejected(id("b"), &transport.RejectedError{By: "b", Code: transport.CodePeer, Text: "another data directory"})
	h.Rejected(id("c"), &transport.RejectedError{By: "a", Code: transport.CodePeer, Text: "it is empty"})
	if b, c := a.board.Trouble("b"), a.board.Trouble("c"); b != "node b refuses this node: another data directory" || c != "" {
		t.Errorf("it says of itself: of b %q, of c %q", b, c)
	}
	h.Rejected(id("c"), &transport.RejectedError{By: "c", Code: transport.CodeUnknown, Text: "node a is no member"})
	if c := a.board.Trouble("c"); c != "node c refuses this node: node a is no member" {
		t.Errorf("c knows the first members only: %q", c)
	}
	h.Rejected(id("c"), &transport.RejectedError{By: "a", Code: transport.CodePeer, Text: "it is empty"})
	a.board.SetRole(status.RoleUnverified, "no leader: waiting for a majority")
	away, start, refusals := shown()
	want := []status.Refusal{{By: "b", Of: "a", Why: "another data directory", Data: true}, {By: "a", Of: "c", Why: "it is empty", Data: true}}
	if d := cmp.Diff(want, refusals); d != "" || away != "b refuses a, c is refused by a" || start != 0 {
		t.Errorf("away: %s; %d sets to start (-want +got):\n%s", away, start, d)
	}
	if own := a.board.OwnBeside(); own.ReasonBeside == nil || *own.ReasonBeside != "no leader: waiting for a majority" || own.Advice {
		t.Errorf("its line beside those of b and c: %+v", own)
	}
	h.Rejected(id("c"), &transport.RejectedError{By: "a", Code: transport.CodeTarget, Text: "node x is there"})
	if away, start, _ = shown(); away != "b refuses a, c is not heard of" || start != 1 {
		t.Errorf("with another node at the address of c: away: %s; %d sets to start", away, start)
	}
	later(time.Minute)
	h.PeerDown(id("c"), true)
	h.Rejected(id("c"), tells(apart)) // nobody is told to rebuild a node that may have the only data
	if away, start, refusals = shown(); away != "b and c are not heard of" || start != 2 || len(refusals) > 0 {
		t.Errorf("later: away: %s; %d sets to start, %+v", away, start, refusals)
	}
}
