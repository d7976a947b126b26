package operate

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
)

// TestMayMove: a node with a vote gets an address at which it answers, while all others are well.
func TestMayMove(t *testing.T) {
	s, n := serve(t) // node a leads a and b
	n.board.Update(func(own *status.Node) { own.Reachable, own.Role = true, status.RolePrimary })
	state := n.board.State()
	state.Members[1].Peer = "10.0.0.2:7400"
	state.Members = append(state.Members, cluster.Member{ID: 3, Name: "c", Kind: cluster.KindLearner})
	state.Version++
	n.board.SetState(state)
	check := func(name, to, why string) {
		t.Helper()
		err := s.mayMove(t.Context(), name, to)
		if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
			t.Errorf("%s to %s: %v, want %q", name, to, err, why)
		}
	}
	check("a", "10.0.0.9:7400", "these voters do not run, and would not learn that node a moves: b; ")
	check("b", "127.0.0.1:1", "node b does not answer at 127.0.0.1:1")
	check("b", "10.0.0.2:7400", "") // it is there already
	check("c", "127.0.0.1:1", "")   // nothing rests on it
	check("x", "127.0.0.1:1", "")   // there is none
	n.board.PeerUp(2, true)
	if err := n.board.Received(2, status.Node{ID: 2, Name: "b", Role: status.RoleReplica}); err != nil {
		t.Fatal(err)
	}
	check("a", "10.0.0.9:7400", "node a leads")
	for args, why := range map[string]string{
		`{"name":"b","peer":"127.0.0.1:1"}`:                "does not answer at 127.0.0.1:1",
		`{"name":"b","peer":"127.0.0.1:1","dry_run":true}`: "does not answer at 127.0.0.1:1",
		`{"name":"b","peer":"7400","force":true}`:          "is not the host:port",
	} {
		d, err := s.all["node.set"].Run(t.Context(), control.Request{Name: "node.set", Args: []byte(args)})
		if err == nil || !strings.Contains(err.Error(), why) || !strings.HasPrefix(d.What, "node b: peer ") {
			t.Errorf("%s: %v, %+v", args, err, d)
		}
	}
}
