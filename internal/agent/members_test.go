package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/transport"
)

// TestRebuiltNodeIsNotPromotedBefore: a node that is rebuilt runs on for a moment with its old data, and has caught
// up with these. With a vote it could not be seeded.
func TestRebuiltNodeIsNotPromotedBefore(t *testing.T) {
	for _, c := range []struct {
		ordered, runs string
		want          bool
	}{
		{"", "", false},
		{"", "old", false},
		{"new", "old", true},
		{"new", "", true}, // an agent that does not say
		{"new", "new", false},
	} {
		if got := membership.GivesUp(cluster.Member{Instance: c.ordered}, status.Node{Instance: c.runs}); got != c.want {
			t.Errorf("ordered %q, runs %q: %t, want %t", c.ordered, c.runs, got, c.want)
		}
	}
	a := loneAgent(t, loneConfig(t))
	if got := a.board.Own().Instance; got == "" || got != a.data.Own().Instance {
		t.Errorf("the status says instance %q, it is %q", got, a.data.Own().Instance)
	}
}

// TestNodeThatHasJoinedIsWaitedFor: a node was rebuilt, has joined, and is away. A purge waits for it as for any
// other node that was not heard, also on an agent that was started meanwhile, or was away itself and hears of it. A
// node that never began again is not waited for.
func TestNodeThatHasJoinedIsWaitedFor(t *testing.T) {
	const instance = "02000000000000000000000000000000"
	cfg := testConfig(t, t.TempDir())
	members := cfg.ClusterMembers()
	self := slices.IndexFunc(members, func(m cluster.Member) bool { return m.ID == cfg.Self().ID })
	b := (self + 1) % len(members)
	members[b].Kind, members[b].Becomes, members[b].Instance = cluster.KindLearner, cluster.KindFull, instance
	state := cluster.State{Version: 7, Members: members}
	start := func(path string) *Agent {
		a := &Agent{cfg: cfg, self: members[self], logger: slog.New(slog.DiscardHandler)}
		a.data = newDataDir(path, a.self)
		if err := a.data.readKnown(); err != nil {
			t.Fatal(err)
		}
		openBoard(a)
		a.board.SetState(state)
		if err := a.data.known.Expect(cluster.StatePoint{State: state}, true); err != nil {
			t.Fatal(err)
		}
		return a
	}
	leaving := func(a *Agent) bool {
		nodes := a.board.Nodes()
		return nodes[slices.IndexFunc(nodes, func(n status.Node) bool { return n.ID == members[b].ID })].Leaving
	}
	path, other := t.TempDir(), t.TempDir()
	for range 2 {
		if !leaving(start(path)) {
			t.Error("it never began again, and is waited for")
		}
	}
	a := start(path)
	if err := a.data.known.Check(transport.Identity{Node: members[b].ID, NodeName: members[b].Name, Instance: [16]byte{2}}); err != nil {
		t.Fatal(err)
	}
	if leaving(a) || leaving(start(path)) {
		t.Error("it has begun again, and is not waited for")
	}
	c := start(other)
	if !leaving(c) {
		t.Error("nobody has told the other one")
	}
	said := a.data.known.Joined()
	c.data.known.Hear(said)
	if len(said) != 1 || leaving(c) || !leaving(start(other)) || len(c.data.known.Joined()) != 0 {
		t.Errorf("told %v, it is not waited for, or it is known for good already", said)
	}
	if err := c.data.known.Note(); err != nil || leaving(c) || leaving(start(other)) || len(c.data.known.Joined()) != 1 {
		t.Errorf("told %v, which was noted: %v, it is not waited for", said, err)
	}
	c.data.known.Hear(map[cluster.NodeID]string{members[b].ID: "of before"})
	if err := c.data.known.Note(); err != nil || leaving(c) {
		t.Errorf("by what was before it is not waited for: %v", err)
	}
}

// TestJoinerIsToldByAllOfThem: a node that joins and knows no state yet does not begin again because one peer says so.
// A node that knows a state can judge by it.
func TestJoinerIsToldByAllOfThem(t *testing.T) {
	order := &transport.RejectedError{Code: transport.CodeRebuild, Order: transport.Order{StateVersion: 8, Instance: "02000000000000000000000000000000"}}
	for _, c := range []struct {
		role    status.Role
		version uint64
		leaves  bool
	}{{status.RoleJoining, 0, false}, {status.RoleJoining, 7, true}, {status.RoleReplica, 0, true}} {
		a := &Agent{cfg: testConfig(t, t.TempDir()), data: &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.NewMem(), "."), datadir.Identity{}, false))}, logger: slog.New(slog.DiscardHandler)}
		a.self = a.cfg.Self()
		openBoard(a)
		state := a.board.State()
		state.Version = c.version
		a.board.SetState(state)
		a.board.SetRole(c.role, "")
		peerHandler{a}.Rejected(2, order)
		if got := a.departing.Because() != nil; got != c.leaves {
			t.Errorf("%s, state %d: it leaves: %t", c.role, c.version, got)
		}
	}
}

// TestLeavingIsNotForgotten: a node that is told to go while its log is healed, or while it joins, goes at the end of
// that. Nothing tells it again.
func TestLeavingIsNotForgotten(t *testing.T) {
	a := &Agent{logger: slog.New(slog.DiscardHandler)}
	a.departing = a.newDeparting()
	order := membership.Departure{Instance: "b7"}
	a.departing.Leave(order)
	ctx, fail := context.WithCancelCause(t.Context())
	defer fail(nil)
	a.setFail(fail)
	if got, ok := errors.AsType[*membership.Departure](context.Cause(ctx)); !ok || *got != order {
		t.Errorf("it ends with %v, want %+v", context.Cause(ctx), order)
	}
}

// TestRemovedAnswers: a node that had the leader remove it still answers before it ends, though nobody tells it that
// its removal is committed.
func TestRemovedAnswers(t *testing.T) {
	a := fencedAgent(t, nil)
	a.buildRequests()
	time.AfterFunc(time.Millisecond, func() { a.departing.Leave(membership.Departure{}) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.requests.WaitIndex(ctx, 1); !errors.Is(err, operate.ErrLeft) {
		t.Errorf("it waits until %v, want that it leaves", err)
	}
}

// TestSeedNote: the operator who adds a node is told what the node copies.
func TestSeedNote(t *testing.T) {
	for _, c := range []struct {
		kind  cluster.Kind
		first uint64
		data  int64
		want  string
	}{
		{cluster.KindFull, 1, 1 << 30, "it begins without a vote, and copies the log: about 64MiB"},
		{cluster.KindLogger, 7, 1 << 30, "it begins without a vote, and copies the log: about 64MiB"},
		{cluster.KindFull, 7, 1 << 30, "it begins without a vote, and copies the data of a mysqld (about 1GiB), then the log from there on (about 64MiB)"},
		{cluster.KindLearner, 7, 0, "it begins without a vote, and copies the data of a mysqld, then the log from there on (about 64MiB)"},
	} {
		if got := seedNote(c.kind, c.first, 64<<20, c.data); got != c.want {
			t.Errorf("%s, from %d: %s", c.kind, c.first, got)
		}
	}
}
