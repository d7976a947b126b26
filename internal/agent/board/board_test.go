package board

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/role"
)

// world is the board of node 1 (a) of three, and its clock.
type world struct {
	*Board
	t       *testing.T
	now     time.Time
	dialing string // why it cannot connect
}

func newWorld(t *testing.T) *world {
	t.Helper()
	var members []cluster.Member
	for i, name := range []string{"a", "b", "c"} {
		members = append(members, cluster.Member{ID: cluster.NodeID(i + 1), Name: name, Kind: cluster.KindFull, Weight: 5, Peer: name + ":7400"})
	}
	w := &world{t: t, now: time.Unix(1_000_000, 0)}
	w.Board = New(Config{
		Self:  status.Node{ID: 1, Name: "a", Kind: cluster.KindFull, Peer: "a:7400", Reachable: true, Role: status.RoleStarting},
		State: cluster.NewState(members), Known: membership.New(membership.Config{}),
		DialError: func(cluster.NodeID) string { return w.dialing }, Now: func() time.Time { return w.now },
	})
	return w
}

func (w *world) hear(s status.Node) {
	w.t.Helper()
	if err := w.Received(s.ID, s); err != nil {
		w.t.Fatal(err)
	}
}

// TestOlderStateIsIgnored: a node whose log catches up reads there who the members were long ago. Another node has
// already told it who they are now.
func TestOlderStateIsIgnored(t *testing.T) {
	w := newWorld(t)
	for _, version := range []uint64{3, 2, 3} {
		s := w.State()
		s.Version, s.Removed = version, []cluster.NodeID{cluster.NodeID(version)}
		w.SetState(s)
		if got := w.State(); got.Version != 3 || got.Removed[0] != 3 || *w.Own().StateVersion != 3 {
			t.Fatalf("after version %d: %d, %v", version, got.Version, got.Removed)
		}
	}
}

// TestForRole: the role machine hears of every member: what the cluster state says of it, and what it says of its own
// condition.
func TestForRole(t *testing.T) {
	w := newWorld(t)
	s := w.State()
	s.Members[0].Weight, s.Members[1].Weight, s.Members[2].Kind, s.Members[2].Weight = 3, 9, cluster.KindLogger, 0
	s.Maintenance = &cluster.Maintenance{Primary: "b"}
	w.SetState(s)
	w.PeerUp(2, true)
	w.hear(status.Node{ID: 2, Role: status.RoleReplica, Applied: 7, LogLast: 9, LagSeconds: 1.5, LogState: status.LogFull, ApplierStopped: "x"})
	want := role.Peers{
		Own: role.Peer{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 3, Live: true, Role: status.RoleReplica, Applied: 11, LogLast: 12},
		Peers: []role.Peer{
			{ID: 2, Name: "b", Kind: cluster.KindFull, Weight: 9, Live: true, LogBad: true, Role: status.RoleReplica,
				Applied: 7, LogLast: 9, Lag: 1500 * time.Millisecond, Stopped: true},
			{ID: 3, Name: "c", Kind: cluster.KindLogger},
		},
		Held: true, HeldFor: 2,
	}
	if d := cmp.Diff(want, w.ForRole(status.Node{Role: status.RoleReplica, LogLast: 12, Applied: 11})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestUnlikeTheLastPrimary: the role machine hears which nodes name tables in another way than the last primary. Nobody
// compared it: such a node took over, and the others stopped at the first table that they did not find.
func TestUnlikeTheLastPrimary(t *testing.T) {
	w := newWorld(t)
	own := status.Node{Role: status.RoleReplica, LowerCaseTableNames: new(1)}
	unlike := func(when string, a, b, c bool) {
		t.Helper()
		in := w.ForRole(own)
		if got := [3]bool{in.Own.Unlike, in.Peers[0].Unlike, in.Peers[1].Unlike}; got != [3]bool{a, b, c} {
			t.Errorf("%s: %v", when, got)
		}
	}
	w.PeerUp(2, true)
	w.PeerUp(3, true)
	w.hear(status.Node{ID: 3, Role: status.RoleReplica, Term: 7, LowerCaseTableNames: new(0)})
	unlike("there was no primary", false, false, false)
	w.hear(status.Node{ID: 2, Role: status.RolePrimary, Term: 7, LowerCaseTableNames: new(0)})
	unlike("b is the primary", true, false, false)
	w.PeerUp(2, false)
	unlike("b is gone", true, false, false)
	own.Role = status.RolePrimary
	unlike("this node took over", false, true, true)
	own.Role = status.RoleReplica
	w.Served(8)
	unlike("this node was the last primary", false, true, true)
	own.LowerCaseTableNames = nil
	unlike("an older quorate", false, false, false)
}

// TestPrimary: the primary is a live member that says so, of the highest term.
func TestPrimary(t *testing.T) {
	w := newWorld(t)
	says := func(id cluster.NodeID, role status.Role, term uint64) {
		t.Helper()
		w.hear(status.Node{ID: id, Role: role, Term: term})
	}
	is := func(what string, want cluster.NodeID) {
		t.Helper()
		if got, ok := w.Primary(); got != want || ok != (want != 0) {
			t.Errorf("%s: node %d, %t, want %d", what, got, ok, want)
		}
	}
	is("at first", 0)
	says(2, status.RolePrimary, 7)
	is("not connected", 0)
	w.PeerUp(2, true)
	w.PeerUp(3, true)
	is("connected", 2)
	says(3, status.RolePrimary, 6)
	is("beside one of a term before", 2)
	says(3, status.RolePrimary, 8)
	is("beside one of a later term", 3)
	w.now = w.now.Add(LiveFor - time.Millisecond)
	says(2, status.RolePrimary, 7)
	is("just heard", 3)
	w.now = w.now.Add(time.Millisecond)
	is("not heard for too long", 2)
	if w.Lives(3) || !w.Lives(2) {
		t.Error("who was not heard lives")
	}
	w.PeerUp(2, false)
	is("gone", 0)
	w.PeerUp(2, true)
	is("back", 2)
	s := w.State()
	s.Version, s.Members = 1, s.Members[:1]
	w.SetState(s)
	is("removed", 0)
}

// TestNodesShowTheState: what the cluster has agreed on counts, not what a peer says of itself; this node's status is
// the one that its caller gives.
func TestNodesShowTheState(t *testing.T) {
	w := newWorld(t)
	s := w.State()
	s.Version = 3
	for i := range s.Members {
		s.Members[i].Weight = i + 1
	}
	s.Members[1].Site = "x"
	w.SetState(s)
	w.hear(status.Node{ID: 2, Name: "b", Role: status.RoleReplica, Weight: 9})
	own := w.Own()
	own.LogLast = 77
	nodes := w.NodesWith(own)
	for i, n := range nodes {
		if n.Weight != i+1 || n.Reachable != (i == 0) {
			t.Errorf("weight of %s is %d, want %d, reachable %t", n.Name, n.Weight, i+1, n.Reachable)
		}
	}
	if nodes[1].Site != "x" || nodes[0].LogLast != 77 || w.Nodes()[0].LogLast != 0 {
		t.Errorf("%+v", nodes)
	}
	s.Version, s.Members = 4, s.Members[1:]
	w.SetState(s)
	if nodes = w.NodesWith(own); len(nodes) != 3 || nodes[2].LogLast != 77 {
		t.Errorf("no member any more: %+v", nodes)
	}
}

// TestUnreached: if a node is heard but cannot be connected to, both sides say so, with the address that the cluster
// has and the node's own. A node that is down is not reported.
func TestUnreached(t *testing.T) {
	w := newWorld(t)
	s := w.State()
	s.Version = 3
	d := cluster.Member{ID: 77, Name: "d", Kind: cluster.KindLearner, Peer: "d:7500"}
	s.Members = append(s.Members, d)
	w.SetState(s)
	hear := func(peer string) {
		w.hear(status.Node{ID: d.ID, Name: "d", Role: status.RoleJoining, Peer: peer})
	}
	says := func(i int, want string) {
		t.Helper()
		if n := w.Nodes()[i]; n.Unreached != want || n.Peer != s.Members[i].Peer {
			t.Errorf("%s at %s: %q, want %q", n.Name, n.Peer, n.Unreached, want)
		}
	}
	hear("d:7400")
	says(3, "") // it has not been dialled yet
	w.dialing = "connection refused"
	says(3, `a cannot reach it at d:7500 (connection refused); it says that it listens on d:7400: "quorate node set d --peer d:7400"`)
	says(1, "") // never heard
	says(0, "")
	hear("d:7500")
	says(3, "a hears of it, and cannot reach it at d:7500 (connection refused)")
	w.Refused(d.ID, status.Refusal{By: "d", Of: "a", Why: "no"})
	says(3, "")
	w.PeerUp(d.ID, true)
	says(3, "")
	w.PeerUp(d.ID, false)
	says(3, "") // it was heard before it ended
	w.now = w.now.Add(3 * GossipInterval)
	hear("d:7500")
	says(3, "a hears of it, and cannot reach it at d:7500 (connection refused)")
	w.PeerUp(d.ID, true)

	s.Version, s.Members[0].Peer = 4, "elsewhere:7400"
	w.SetState(s)
	says(0, "") // d is there
	w.now = w.now.Add(time.Hour)
	says(0, `the other nodes look for this node at elsewhere:7400, and it listens on a:7400; on one of them: "quorate node set a --peer a:7400"`)
	w.PeerUp(d.ID, false)
	says(0, "") // they are down
}

// TestStrangers: a node shows a few of the nodes that dial it and that it does not know, for a while, and while it has no
// leader.
func TestStrangers(t *testing.T) {
	w := newWorld(t)
	w.SetRaft(consensus.RoleState{})
	shows := func(want ...string) {
		t.Helper()
		var got []string
		for _, s := range w.Nodes()[0].Strangers {
			got = append(got, s.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	shows()
	for _, name := range []string{"e", "d", "d", "f", "g", "h"} {
		w.DialledBy(status.Stranger{Name: name, From: "10.0.0.4"})
	}
	shows("d", "e", "f", "g")
	w.SetRaft(consensus.RoleState{Term: 1, Leader: 1})
	shows()
	w.SetRaft(consensus.RoleState{Term: 2})
	w.now = w.now.Add(refusedFor)
	shows()
	w.DialledBy(status.Stranger{Name: "h", From: "10.0.0.4"})
	shows("h")
}

// TestLastPrimary: a primary that says that it hands over was the primary until then; an agent that starts again was
// not. What the primary of another term says later is no sign of it. This node's own terms count, too.
func TestLastPrimary(t *testing.T) {
	w := newWorld(t)
	say := func(role status.Role, term uint64) {
		w.hear(status.Node{ID: 2, Name: "b", Role: role, Term: term})
	}
	is := func(what, name string, age time.Duration, fate string) {
		t.Helper()
		if p := w.LastPrimary(); p.Name != name || w.now.Sub(p.At) != age || !strings.HasPrefix(p.Fate, fate) || fate == "" && p.Fate != "" {
			t.Errorf("%s: %+v, %v ago", what, p, w.now.Sub(p.At))
		}
	}
	hour := func() { w.now = w.now.Add(time.Hour) }
	if p := w.LastPrimary(); p != (LastPrimary{}) {
		t.Errorf("at first: %+v", p)
	}
	w.PeerUp(2, true)
	say(status.RolePrimary, 7)
	hour()
	is("silent", "b", time.Hour, "b was not heard for 1h0m0s")
	say(status.RoleDemoting, 7)
	is("it handed over", "b", 0, "b was not heard for 0s")
	hour()
	say(status.RoleReplica, 8)
	is("a replica", "b", time.Hour, "b was not heard")
	w.hear(status.Node{ID: 2, Name: "b", Role: status.RoleReplica, Term: 8, Reason: "lost leadership of term 8; node.toml lacks keys"})
	if got, want := w.LastPrimary().Fate, "b: lost leadership of term 8"; got != want {
		t.Errorf("with a trouble: %q, want %q", got, want)
	}
	say(status.RolePrimary, 8)
	hour()
	w.PeerUp(2, false)
	is("gone", "b", time.Hour, "the agent of b is gone")
	w.PeerUp(2, true)
	say(status.RoleStarting, 8)
	is("its agent is back", "b", time.Hour, "b was gone: ")
	w.Served(6)
	is("this node served before", "b", time.Hour, "b was gone")
	w.Served(9)
	say(status.RolePrimary, 7)
	is("this node itself", "a", 0, "")
	say(status.RolePrimary, 10)
	is("node b again", "b", 0, "b was not heard")
}

// TestWoken: a change that matters to routing or to peers wakes those that wait; a change of a figure does not.
func TestWoken(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		what string
		do   func()
		want bool
	}{
		{"a role", func() { w.SetRole(status.RoleReplica, "") }, true},
		{"the same role", func() { w.SetRole(status.RoleReplica, "") }, false},
		{"a trouble", func() { w.SetTrouble("x", "it is ill") }, false},
		{"with the next step", func() { w.SetRole(status.RoleReplica, "") }, true},
		{"that trouble again", func() { w.SetTrouble("x", "it is ill"); w.SetRole(status.RoleReplica, "") }, false},
		{"a figure", func() { w.Update(func(s *status.Node) { s.Applied++ }) }, false},
		{"mysqld", func() { w.Update(func(s *status.Node) { s.Mysqld = status.MysqldRunning }) }, true},
		{"a connection", func() { w.PeerUp(2, true) }, true},
		{"a status", func() { w.hear(status.Node{ID: 2, Role: status.RoleReplica}) }, true},
		{"its figures", func() { w.hear(status.Node{ID: 2, Role: status.RoleReplica, Applied: 9}) }, false},
		{"its log", func() { w.hear(status.Node{ID: 2, Role: status.RoleReplica, LogState: status.LogFull}) }, true},
	} {
		changed := w.Changes()
		c.do()
		closed := false
		select {
		case <-changed:
			closed = true
		default:
		}
		if closed != c.want {
			t.Errorf("%s: the channel is closed: %t", c.what, closed)
		}
	}
	if err := w.Received(2, status.Node{ID: 3}); err == nil {
		t.Error("a node speaks for another one")
	}
}

// full is a disk on which nothing can be written.
type full struct{}

func (full) WritePins(membership.Known) error { return errors.New("no space") }
func (full) WriteMet(membership.Known) error  { return errors.New("no space") }

// TestStatusCountsOnAFullDisk: a primary says that a node has begun again, and this node cannot write that down. It takes
// the status all the same, so its router leads clients to the primary; and its purge waits for the node that has begun.
func TestStatusCountsOnAFullDisk(t *testing.T) {
	w := newWorld(t)
	w.cfg.Known = membership.New(membership.Config{Self: 1, Name: "a", Store: full{}})
	s := w.State()
	s.Members[2].Kind, s.Members[2].Instance = cluster.KindLearner, "next"
	w.SetState(s)
	_ = w.cfg.Known.Expect(cluster.StatePoint{State: s}, true) // what it pins cannot be written, either
	if !w.Nodes()[2].Leaving {
		t.Error("nobody has said that c has begun again, and it is waited for")
	}
	w.PeerUp(2, true)
	w.hear(status.Node{ID: 2, Name: "b", Role: status.RolePrimary, Term: 3, Joined: membership.Known{3: "next"}})
	if id, ok := w.Primary(); id != 2 || !ok {
		t.Errorf("the primary is %d (%t)", id, ok)
	}
	if w.Nodes()[2].Leaving {
		t.Error("c has begun again, and is not waited for")
	}
}

// TestShown: nobody hands over to a replica that does not vote yet, or routes to a primary whose lease has run out.
func TestShown(t *testing.T) {
	for _, c := range []struct {
		role    status.Role
		votesIn time.Duration
		serving bool
		want    status.Role
	}{
		{status.RoleReplica, 0, false, status.RoleReplica},
		{status.RoleReplica, -1, false, status.RoleReplica},
		{status.RoleReplica, 1, false, status.RoleStarting},
		{status.RoleLogger, 1, false, status.RoleLogger},
		{status.RolePrimary, 1, true, status.RolePrimary},
		{status.RolePrimary, 0, false, status.RoleDemoting},
	} {
		if got := Shown(status.Node{Role: c.role}, c.votesIn, c.serving); got.Role != c.want || (got.Reason != "") != (c.want != c.role) {
			t.Errorf("%s, votes in %v, serves %t: %s, %q", c.role, c.votesIn, c.serving, got.Role, got.Reason)
		}
	}
}

// TestVoteDelaySaysWhatIsTrue: a node in its vote delay may lead before the end of it (consensus.Group.LeaderGone).
func TestVoteDelaySaysWhatIsTrue(t *testing.T) {
	const want = "its agent was started a moment ago: it votes for other nodes in 56.5s; until then it stands for election only if the leader's agent is gone"
	if got := Shown(status.Node{Role: status.RoleReplica}, 56_500*time.Millisecond, false).Reason; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTroubleGoesWithItsNode: a node that is no member is never connected again, which would end what was said of it.
func TestTroubleGoesWithItsNode(t *testing.T) {
	w := newWorld(t)
	for _, about := range []string{"a disk", "b", "c"} {
		w.SetTrouble(about, about+" is ill")
	}
	s := w.State()
	s.Version, s.Members = 1, s.Members[:2]
	w.SetState(s)
	w.SetRole(status.RoleReplica, "")
	if got, want := w.Own().Reason, "a disk is ill; b is ill"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAdviceComesLast: a screen that shows the first words alone shows what takes the node out.
func TestAdviceComesLast(t *testing.T) {
	w := newWorld(t)
	w.SetTrouble(Last+"keys", "node.toml lacks keys")
	w.SetTrouble("space", "mysqld's disk is full")
	w.SetTrouble("b", "node b refuses this node")
	w.SetRole(status.RoleReplica, "")
	if got, want := w.Own().Reason, "node b refuses this node; mysqld's disk is full; node.toml lacks keys"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTroublesBesideTheReason: a reason of the role hides no trouble, whoever has set it. It hid all of them, just when two
// things were wrong at once: a mysqld that had been killed "ended", and nothing said why its start took so long.
func TestTroublesBesideTheReason(t *testing.T) {
	w := newWorld(t)
	is := func(want string) {
		t.Helper()
		if got := w.Own().Reason; got != want || w.Nodes()[0].Reason != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	w.SetRole(status.RoleStarting, "mysqld ended: signal: killed")
	w.SetTrouble("start", "mysqld has been starting for 20m0s and takes no login: InnoDB: Starting to apply")
	w.SetTrouble("cut off", "another key")
	is("mysqld ended: signal: killed; another key; mysqld has been starting for 20m0s and takes no login: InnoDB: Starting to apply")
	w.Update(func(s *status.Node) { s.Reason = "copying" })
	w.SetTrouble("start", "")
	is("copying; another key")
	own := w.Own()
	own.Role = status.RolePrimary
	if got, want := Shown(own, 0, false).Reason, "the lease has run out: no majority answers with a promise; copying; another key"; got != want {
		t.Errorf("a primary without a lease: %q, want %q", got, want)
	}
	// What is said is not said again.
	w.SetTrouble("disk", "mysqld's disk has not answered for 12s")
	w.SetRole(status.RoleDemoting, "mysqld's disk has not answered for 12s, and it commits nothing")
	is("mysqld's disk has not answered for 12s, and it commits nothing; another key")
	w.SetTrouble("disk", "")
	w.SetRole(status.RoleReplica, "")
	is("another key")
	w.SetTrouble("cut off", "")
	is("")
}

// TestRefusalsAreSaidOnce: what the line of a node says that refuses this one is not said in this node's line as well, and
// nothing else is left out. A node that takes no part says it itself. Texts were cut out of a text before: the first one
// stayed, and what was behind a refusal lost its beginning.
func TestRefusalsAreSaidOnce(t *testing.T) {
	const refused = "node b refuses this node: another data directory"
	w := newWorld(t)
	for name, c := range map[string]struct {
		set  func(by, text string) bool
		role status.Role
		on   string
		want string
	}{
		"refused":                {w.SetRefusal, status.RoleReplica, "b", "the log is damaged"},
		"for more than that":     {w.SetTrouble, status.RoleReplica, "b", refused + "; the log is damaged"},
		"no line says it":        {w.SetRefusal, status.RoleReplica, "x", "the log is damaged; " + refused},
		"a node that is outside": {w.SetRefusal, status.RoleRemoved, "b", refused + "; the log is damaged"},
	} {
		w.SetRole(c.role, "")
		w.SetTrouble("damage", "the log is damaged")
		w.Refused(2, status.Refusal{By: "b", Of: "a", Why: "another data directory. The cluster has rebuilt node a since"})
		c.set(c.on, refused)
		got := w.OwnBeside()
		beside := got.Reason
		if got.ReasonBeside != nil {
			beside = *got.ReasonBeside
		}
		if beside != c.want || got.Advice {
			t.Errorf("%s: %q, want %q", name, beside, c.want)
		}
		if !strings.Contains(got.Reason, refused) {
			t.Errorf("%s: who does not ask for a list sees %q", name, got.Reason)
		}
		w.SetTrouble(c.on, "")
	}
	// Only that: something ails it all the same. The refusal is over: nothing does.
	w.SetTrouble("damage", "")
	w.SetRole(status.RoleReplica, "")
	w.SetRefusal("b", refused)
	if got := w.OwnBeside(); got.ReasonBeside == nil || *got.ReasonBeside != "" || got.Advice || got.Reason != refused {
		t.Errorf("refused only: %+v", got)
	}
	w.now = w.now.Add(refusedFor)
	if got := w.OwnBeside(); got.Reason != refused || got.ReasonBeside != nil {
		t.Errorf("the line of b has ended: %+v", got)
	}
}

// TestAdviceAilsNothing: advice that stands for long, such as on a certificate, does not make a node count as one that
// something ails: its next real trouble would change nothing that is seen.
func TestAdviceAilsNothing(t *testing.T) {
	w := newWorld(t)
	w.SetRole(status.RoleReplica, "")
	for _, step := range []struct {
		about, text string
		advice      bool
	}{
		{Last + "certificate", "its certificate ends on 2026-05-30", true},
		{"damage", "its log is damaged", false},
		{"damage", "", true},
	} {
		w.SetTrouble(step.about, step.text)
		if own := w.Own(); own.Advice != step.advice || !strings.HasSuffix(own.Reason, "ends on 2026-05-30") {
			t.Errorf("%q: advice %v: %q", step.text, own.Advice, own.Reason)
		}
	}
	w.SetRole(status.RoleReplica, "no leader")
	if w.Own().Advice {
		t.Error("the reason of a role is advice")
	}
}
