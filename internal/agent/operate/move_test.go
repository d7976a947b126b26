package operate

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/membership"
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

// TestMayTake: the last node that a voter which is away knows is not removed, and not rebuilt. A voter knows the initial
// members that were never rebuilt, and this node if the two have met.
func TestMayTake(t *testing.T) {
	const c = cluster.NodeID(3)
	for _, tc := range []struct {
		name          string
		takes         string
		initial       bool // node b is an initial member
		rebuilt       bool // node b was rebuilt
		met, heard    bool // voter c has met this node; is heard
		force, learns bool // --force; c is a learner
		refused       bool
	}{
		{name: "nobody is left that c knows", takes: "d", refused: true},
		{name: "the other one knows c, but was rebuilt", takes: "d", initial: true, rebuilt: true, refused: true},
		{name: "b is the last that c knows", takes: "b", initial: true, refused: true},
		{name: "b is left", takes: "d", initial: true},
		{name: "c has met this node", takes: "b", met: true},
		{name: "c runs", takes: "b", heard: true},
		{name: "c goes itself", takes: "c"},
		{name: "c has no vote", takes: "b", learns: true},
		{name: "a person insists", takes: "b", force: true},
		{name: "there is no such node", takes: "x"},
	} {
		s, n := serve(t) // node a leads
		initial := []cluster.NodeID{c}
		if tc.initial {
			initial = append(initial, 2)
		}
		known := membership.New(membership.Config{Self: 1, Initial: initial})
		if tc.met {
			known.Load(nil, membership.Known{c: "old"})
		}
		members := []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull}, {ID: 2, Name: "b", Kind: cluster.KindFull},
			{ID: c, Name: "c", Kind: cluster.KindFull}, {ID: 4, Name: "d", Kind: cluster.KindFull}}
		if tc.rebuilt {
			members[1].Instance = "new"
		}
		if tc.learns {
			members[2].Kind = cluster.KindLearner
		}
		n.board = board.New(board.Config{
			Self: status.Node{ID: 1, Name: "a", Role: status.RolePrimary}, State: cluster.NewState(members), Known: known, Now: time.Now,
		})
		s.Board = n.board
		for id := range cluster.NodeID(5) {
			if id == 2 || id == 4 || id == c && tc.heard {
				n.board.PeerUp(id, true)
				if err := n.board.Received(id, status.Node{ID: id, Role: status.RoleReplica}); err != nil {
					t.Fatal(err)
				}
			}
		}
		r := cluster.MembershipRequest{Change: cluster.MembershipChange{Op: cluster.OpRemove, Name: tc.takes}, Ask: cluster.Ask{Force: tc.force}}
		err := s.mayTake(r)
		if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "voter c does not run, and may know none of the nodes that would be left") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
