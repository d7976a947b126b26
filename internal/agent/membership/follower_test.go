package membership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

// fakeNode is a node, its status table, and a clock on which each wait is over at once.
type fakeNode struct {
	clock.Clock
	now time.Duration
	// looks is how many waits there are before ctx ends.
	looks int
	end   context.CancelFunc

	self            Self
	leading         bool
	committed, kept cluster.StatePoint
	changed         chan struct{}
	known           *Directories // nil: directories that know nothing
	logged          strings.Builder
	pins            Known
	pinsFail        int // so often the directories cannot be noted
	diskFails       bool
	state           cluster.State
	nodes           []status.Node
	answers         map[cluster.NodeID]cluster.StatePoint
	cannotPromote   error

	troubles map[string]string
	former   []transport.Former
	left     []Departure
	promoted []string
	hungUp   []cluster.NodeID
}

func (n *fakeNode) Now() time.Duration { return n.now }
func (n *fakeNode) Wait(ctx context.Context, d time.Duration, _ <-chan struct{}) error {
	n.now += d
	if n.looks--; n.looks < 0 {
		n.end()
	}
	return ctx.Err()
}

func (n *fakeNode) Name(cluster.NodeID) string { return "" }
func (n *fakeNode) State() cluster.State       { return n.state }
func (n *fakeNode) SetState(s cluster.State)   { n.state = s }
func (n *fakeNode) Nodes() []status.Node       { return n.nodes }
func (n *fakeNode) SetTrouble(about, text string) bool {
	n.troubles[about] = text
	return true
}

func (n *fakeNode) AsSelf() Self { return n.self }
func (n *fakeNode) Leader() (cluster.NodeID, bool) {
	if n.leading {
		return n.self.ID, true
	}
	return 0, false
}
func (n *fakeNode) Committed() (cluster.StatePoint, <-chan struct{}) { return n.committed, n.changed }
func (n *fakeNode) CommittedIndex() uint64                           { return n.committed.Through }
func (n *fakeNode) Kept() cluster.StatePoint                         { return n.kept }
func (n *fakeNode) Keep() {
	if !n.diskFails {
		n.kept = n.committed
	}
}
func (n *fakeNode) SetPeers(f transport.Former) { n.former = append(n.former, f) }
func (n *fakeNode) Hangup(id cluster.NodeID) bool {
	n.hungUp = append(n.hungUp, id)
	return true
}
func (n *fakeNode) Leave(d Departure) { n.left = append(n.left, d) }
func (n *fakeNode) Change(_ context.Context, c cluster.Change) error {
	n.promoted = append(n.promoted, c.Membership.Name)
	return n.cannotPromote
}
func (n *fakeNode) FirstIndex() uint64 { return 1 }
func (n *fakeNode) LogHolder(cluster.State, func(string) bool) (string, int64) {
	return "", 0
}
func (n *fakeNode) AskState(_ context.Context, of cluster.NodeID) (cluster.StatePoint, error) {
	p, ok := n.answers[of]
	if !ok {
		return p, errors.New("no answer")
	}
	return p, nil
}
func (n *fakeNode) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// follow has a Follower of n look so often.
func (n *fakeNode) follow(t *testing.T, looks int) {
	t.Helper()
	n.self.ID, n.looks, n.changed, n.troubles = 1, looks, make(chan struct{}), map[string]string{}
	ctx, end := context.WithCancel(t.Context())
	n.end = end
	known := n.known
	if known == nil {
		known = New(Config{Self: 1, Name: "n1", Store: &fakeStore{n}, Now: n.Now, Lives: func(cluster.NodeID) bool { return false }})
	}
	f := NewFollower(FollowerConfig{Node: n, Table: n, Known: known, Clock: n, Logger: slog.New(slog.NewTextHandler(&n.logged, nil)), RunsMysqld: true})
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

type fakeStore struct{ n *fakeNode }

func (s *fakeStore) WritePins(pins Known) error {
	if s.n != nil && s.n.pinsFail > 0 {
		s.n.pinsFail--
		return errors.New("no space")
	}
	if s.n != nil {
		s.n.pins = pins
	}
	return nil
}
func (*fakeStore) WriteMet(Known) error { return nil }

func voters(version uint64, ids ...cluster.NodeID) (s cluster.State) {
	for _, id := range ids {
		s.Members = append(s.Members, cluster.Member{ID: id, Name: string(rune('a' + id)), Kind: cluster.KindFull})
	}
	s.Version = version
	return s
}

// TestFollowerKeepsFirst: others are told that they are no longer members only once the state is on this node's disk.
func TestFollowerKeepsFirst(t *testing.T) {
	p := cluster.StatePoint{State: voters(2, 1, 2), Index: 7}
	p.State.Removed = []cluster.NodeID{3}
	n := &fakeNode{committed: p, diskFails: true}
	n.follow(t, 3)
	if len(n.former) > 0 {
		t.Errorf("it tells %+v by a state that is not on its disk", n.former)
	}
	n.diskFails = false
	n.follow(t, 3)
	if len(n.former) != 1 || !slices.Equal(n.former[0].Removed, []cluster.NodeID{3}) {
		t.Errorf("it tells %+v, want once that node 3 was removed", n.former)
	}
}

// TestFollowerLearns: a node that knows an older state talks to the members that another node names, and tells nobody
// to go. It starts again from the newer state if it has no leader.
func TestFollowerLearns(t *testing.T) {
	told := cluster.StatePoint{State: voters(3, 1, 2), Index: 9}
	told.State.Removed = []cluster.NodeID{3}
	n := &fakeNode{
		committed: cluster.StatePoint{State: voters(2, 1, 2, 3), Index: 7}, kept: cluster.StatePoint{Index: 7},
		nodes: []status.Node{
			{ID: 1}, {ID: 3, Reachable: true, StateVersion: new(uint64(3))}, {ID: 2, Reachable: true, StateVersion: new(uint64(3)), StateKept: 9},
		},
		answers: map[cluster.NodeID]cluster.StatePoint{2: told},
	}
	n.follow(t, 2)
	if n.state.Version != 3 || len(n.left) > 0 {
		t.Errorf("it goes by version %d, and leaves %+v", n.state.Version, n.left)
	}
	if last := n.former[len(n.former)-1]; last.Removed != nil {
		t.Errorf("it tells %+v by what it was merely told", last)
	}
	n.follow(t, leaderlessMax+2)
	if len(n.left) == 0 || n.left[0].State == nil || n.left[0].State.Index != 9 {
		t.Errorf("without a leader it leaves %+v, want for the state that node 2 keeps", n.left)
	}
}

// TestFollowerAsksAgainAsLastVoter: a leader that has forgotten, with its power, that it ordered the other voter's rebuild
// goes on with that node's present directory: the node is to be asked again once there was no leader for long.
func TestFollowerAsksAgainAsLastVoter(t *testing.T) {
	told := cluster.StatePoint{State: voters(3, 1, 2), Index: 9}
	told.State.Members[1].Kind, told.State.Members[1].Instance = cluster.KindLearner, "next"
	n := &fakeNode{
		committed: cluster.StatePoint{State: voters(2, 1, 2), Index: 7}, kept: cluster.StatePoint{Index: 7},
		nodes:   []status.Node{{ID: 1}, {ID: 2, Reachable: true, StateVersion: new(uint64(3)), StateKept: 9}},
		answers: map[cluster.NodeID]cluster.StatePoint{2: told},
	}
	n.follow(t, 2)
	if n.pins[2] != "" || len(n.left) > 0 {
		t.Errorf("it wants the directory %q of node 2, and leaves %+v", n.pins[2], n.left)
	}
	n.follow(t, leaderlessMax+2)
	if len(n.left) == 0 || n.left[0].State == nil || n.left[0].State.Index != 9 {
		t.Errorf("without a leader it leaves %+v, want for the state that node 2 keeps", n.left)
	}
}

// TestFollowerPromotes: only the leader gives a vote, and only to nodes that joined for one.
func TestFollowerPromotes(t *testing.T) {
	p := cluster.StatePoint{State: voters(2, 1, 2, 3), Index: 7, Through: 7}
	p.State.Members[1].Kind, p.State.Members[1].Becomes = cluster.KindLearner, cluster.KindFull
	n := &fakeNode{
		committed: p, kept: p, cannotPromote: errors.New("not now"),
		nodes: []status.Node{{ID: 2, Name: "c", Reachable: true, Role: status.RoleReplica, LogState: status.LogOK, LogLast: 7, Applied: 7, Leaving: true}},
	}
	n.follow(t, 2)
	if len(n.promoted) > 0 {
		t.Errorf("a follower promotes %v", n.promoted)
	}
	n.leading = true
	n.follow(t, 8)
	if !slices.Equal(slices.Compact(n.promoted), []string{"c"}) {
		t.Errorf("the leader promotes %v, want node c", n.promoted)
	}
	if !slices.Equal(n.hungUp, []cluster.NodeID{2}) {
		t.Errorf("it ends the connections of %v, want of node 2", n.hungUp)
	}
}

// TestFollowerNotesWhatWasHeard: what others said of nodes that have begun again is made durable within a second. If that
// fails, it is tried again, and said once.
func TestFollowerNotesWhatWasHeard(t *testing.T) {
	p := cluster.StatePoint{State: voters(2, 1, 2, 3), Index: 7}
	store := &memStore{err: errors.New("no space")}
	known := New(Config{Self: 1, Name: "n1", Store: store, Now: func() time.Duration { return 0 }, Lives: func(cluster.NodeID) bool { return false }})
	if err := known.Expect(p, true); err != nil {
		t.Fatal(err)
	}
	known.Hear(Known{2: "next"})
	n := &fakeNode{committed: p, kept: p, known: known}
	n.follow(t, 4)
	if store.met != nil || strings.Count(n.logged.String(), "which rebuilt nodes have begun again") != 1 {
		t.Errorf("the disk is full, and %v is on it; logged:\n%s", store.met, n.logged.String())
	}
	store.err = nil
	n.follow(t, 2)
	if store.met[2] != "next" {
		t.Errorf("on disk is %v", store.met)
	}
}

// TestRemindsWhoIsToldToGo: while the voters change nobody is told to go, so nobody is reminded. Directories that
// could not be noted are tried again; until then the node is told nothing.
func TestRemindsWhoIsToldToGo(t *testing.T) {
	p := cluster.StatePoint{State: voters(2, 1, 2, 3), Index: 7, Outgoing: []cluster.NodeID{2}}
	p.State.Members[1].Kind, p.State.Members[1].Instance = cluster.KindLearner, "new"
	n := &fakeNode{committed: p, nodes: []status.Node{{ID: 2, Name: "c", Leaving: true}}}
	n.follow(t, 8)
	if len(n.hungUp) > 0 {
		t.Errorf("it ends the connections of %v, which are still needed", n.hungUp)
	}
	n.committed.Outgoing, n.pinsFail = []cluster.NodeID{3}, 2
	n.follow(t, 8)
	if len(n.former) < 3 || !slices.Equal(n.hungUp, []cluster.NodeID{2}) || n.pinsFail > 0 {
		t.Errorf("it tried %d times, and ends the connections of %v, want node 2's, once its new directory is noted", len(n.former), n.hungUp)
	}
	told := cluster.StatePoint{State: p.State, Index: 9}
	told.State.Version = 3
	n = &fakeNode{
		committed: cluster.StatePoint{State: voters(2, 1, 2, 3), Index: 7}, kept: cluster.StatePoint{Index: 7}, pinsFail: 1,
		nodes:   []status.Node{{ID: 3, Reachable: true, StateVersion: new(uint64(3))}},
		answers: map[cluster.NodeID]cluster.StatePoint{3: told},
	}
	n.follow(t, 4)
	if n.pinsFail > 0 || n.pins[2] != "new" {
		t.Errorf("what node 3 has told is noted as %v, want node 2's new directory", n.pins)
	}
}

// TestOtherKind: a node that was added as another kind than it is says so, and what to do.
func TestOtherKind(t *testing.T) {
	for _, c := range []struct {
		kind, becomes cluster.Kind
		runsMysqld    bool
		want          string
	}{
		{cluster.KindLearner, cluster.KindFull, true, ""},
		{cluster.KindLearner, cluster.KindLogger, false, ""},
		{cluster.KindLearner, "", true, ""},
		{cluster.KindLogger, "", false, ""},
		{cluster.KindLearner, cluster.KindFull, false, `it was added as a full node, and has no mysqld: it gets no vote; "quorate node promote m --kind logger" gives it one as a logger`},
		{cluster.KindLearner, cluster.KindLogger, true, `it was added as a logger, and has a mysqld: it gets no vote; "quorate node promote m" gives it one as a full node`},
	} {
		if got := OtherKind(cluster.Member{Name: "m", Kind: c.kind, Becomes: c.becomes}, c.runsMysqld); got != c.want {
			t.Errorf("%s to %s, mysqld %v: %q, want %q", c.kind, c.becomes, c.runsMysqld, got, c.want)
		}
	}
	p := cluster.StatePoint{State: voters(1, 1), Index: 1}
	p.State.Members[0].Kind, p.State.Members[0].Becomes = cluster.KindLearner, cluster.KindLogger
	n := &fakeNode{committed: p}
	n.follow(t, 2)
	if n.troubles[aboutKind] == "" {
		t.Error("the status says nothing")
	}
}

// TestAdded: a node asks those that its configuration names and that it does not know, once it was without a leader for long.
func TestAdded(t *testing.T) {
	s := voters(7, 1, 2)
	s.Removed = []cluster.NodeID{3}
	s.Recovered = &cluster.Recovery{Without: []cluster.Member{{ID: 4}}}
	for _, c := range []struct {
		name      string
		id        cluster.NodeID
		since     time.Duration
		ask, past bool
	}{
		{"a member", 2, time.Hour, false, false},
		{"a member, with a leader", 2, 0, false, false},
		{"a removed node", 3, time.Hour, false, true},
		{"a node that was left behind", 4, time.Hour, true, false},
		{"not known", 5, addedAfter, true, false},
		{"not known, with a leader", 5, 0, false, true},
		{"not known, with a leader a moment ago", 5, addedAfter - 1, false, true},
	} {
		ask, past := Added(s, []cluster.Member{{ID: c.id}}, c.since)
		if (len(ask) == 1) != c.ask || (len(past) == 1) != c.past {
			t.Errorf("%s: ask %v, past %v", c.name, ask, past)
		}
	}
}
