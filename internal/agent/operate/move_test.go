package operate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/consensus"
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

// TestMayTake: the last running node that a voter which is away knows is not removed, and not rebuilt. A voter knows the initial
// members that were never rebuilt, and this node if the two have met.
func TestMayTake(t *testing.T) {
	const b, c = cluster.NodeID(2), cluster.NodeID(3)
	for _, tc := range []struct {
		name       string
		takes      string
		initial    bool // node b is an initial member
		rebuilt    bool // node b was rebuilt
		stopped    bool // node b does not run
		met, heard bool // voter c has met this node; is heard
		force      bool // --force
		learner    cluster.NodeID
		refused    bool
	}{
		{name: "nobody is left that c knows", takes: "d", refused: true},
		{name: "the other one knows c, but was rebuilt", takes: "d", initial: true, rebuilt: true, refused: true},
		{name: "b is the last that c knows", takes: "b", initial: true, refused: true},
		{name: "b is left", takes: "d", initial: true},
		{name: "b is left, and runs without a vote", takes: "d", initial: true, learner: b},
		{name: "b and c are away, and know only each other", takes: "d", initial: true, stopped: true, refused: true},
		{name: "b is left, and does not run, and has no vote", takes: "d", initial: true, stopped: true, learner: b, refused: true},
		{name: "b, which c knows, does not run, but this node has met c", takes: "d", initial: true, stopped: true, learner: b, met: true},
		{name: "c has met this node", takes: "b", met: true},
		{name: "c runs", takes: "b", heard: true},
		{name: "c goes itself", takes: "c"},
		{name: "c has no vote", takes: "b", learner: c},
		{name: "a person insists", takes: "b", force: true},
		{name: "there is no such node", takes: "x"},
	} {
		s, n := serve(t) // node a leads
		initial := []cluster.NodeID{c}
		if tc.initial {
			initial = append(initial, b)
		}
		known := membership.New(membership.Config{Self: 1, Initial: initial, Lives: func(id cluster.NodeID) bool { return n.board.Lives(id) }})
		if tc.met {
			known.Load(nil, membership.Known{c: "old"})
		}
		members := []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull}, {ID: 2, Name: "b", Kind: cluster.KindFull},
			{ID: c, Name: "c", Kind: cluster.KindFull}, {ID: 4, Name: "d", Kind: cluster.KindFull}}
		if tc.rebuilt {
			members[1].Instance = "new"
		}
		if tc.learner != 0 {
			members[tc.learner-1].Kind = cluster.KindLearner
		}
		n.board = board.New(board.Config{
			Self: status.Node{ID: 1, Name: "a", Role: status.RolePrimary}, State: cluster.NewState(members), Known: known, Now: time.Now,
		})
		s.Board = n.board
		for id := range cluster.NodeID(5) {
			if id == b && !tc.stopped || id == 4 || id == c && tc.heard {
				n.board.PeerUp(id, true)
				if err := n.board.Received(id, status.Node{ID: id, Role: status.RoleReplica}); err != nil {
					t.Fatal(err)
				}
			}
		}
		r := cluster.MembershipRequest{Change: cluster.MembershipChange{Op: cluster.OpRemove, Name: tc.takes}, Ask: cluster.Ask{Force: tc.force}}
		about := "voter c"
		if tc.stopped && tc.learner != b {
			about = "voter b"
		}
		err := s.mayTake(r)
		if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), about+" does not run, and may know none of the running nodes that would be left") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// voterStops is a node that leads. Node c stops when another node loses its vote.
type voterStops struct {
	leading
	made *[]cluster.MembershipOp
}

func (n voterStops) Raft() Raft { return n }
func (n voterStops) ProposeState(ctx context.Context, c cluster.Change) (consensus.StateOutcome, error) {
	*n.made = append(*n.made, c.Membership.Op)
	n.board.PeerUp(3, false)
	return n.leading.ProposeState(ctx, c)
}

// TestVoterStopsMeanwhile: node b loses its vote, then it is to be removed. Voter c has stopped between these two changes,
// and knows only b. So b stays, and the answer says that it has lost its vote.
func TestVoterStopsMeanwhile(t *testing.T) {
	s, n := serve(t) // node a leads
	var members []cluster.Member
	for i, name := range []string{"a", "b", "c", "d"} {
		members = append(members, cluster.Member{ID: cluster.NodeID(i + 1), Name: name, Kind: cluster.KindFull, Weight: 5})
	}
	n.board = board.New(board.Config{
		Self: status.Node{ID: 1, Name: "a", StateVersion: new(uint64), StateFormat: cluster.StateFormat}, State: cluster.NewState(members), Now: time.Now,
		Known: membership.New(membership.Config{Self: 1, Initial: []cluster.NodeID{2, 3}, Lives: func(id cluster.NodeID) bool { return n.board.Lives(id) }}),
	})
	s.Board = n.board
	for _, m := range members[1:] {
		n.board.PeerUp(m.ID, true)
		if err := n.board.Received(m.ID, status.Node{ID: m.ID, Name: m.Name, Role: status.RoleReplica, StateVersion: new(uint64), StateFormat: cluster.StateFormat}); err != nil {
			t.Fatal(err)
		}
	}
	var made []cluster.MembershipOp
	s.Node = voterStops{leading: lead(t, n), made: &made}
	_, err := s.all["node.remove"].Run(t.Context(), control.Request{Name: "node.remove", By: "ann@db1", Args: []byte(`{"change":{"name":"b"}}`)})
	if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeFailed ||
		!strings.HasPrefix(e.Error(), "node b has lost its vote and is a learner, and it is not removed yet: voter c does not run") {
		t.Errorf("%v", err)
	}
	if !slices.Equal(made, []cluster.MembershipOp{cluster.OpDemote}) {
		t.Errorf("made: %v", made)
	}
}
