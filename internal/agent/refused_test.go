package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/transport"
)

// apart is a recovery on c, apart from a and b.
var apart = cluster.Recovery{Version: 1_000_000, Cluster: "orders", Node: "c", At: time.Unix(1000, 0).UTC()}

func tells(r cluster.Recovery) *transport.RejectedError {
	return &transport.RejectedError{Code: transport.CodeRecovered, Text: r.Sentence("a"), Order: transport.Order{Recovery: &r}}
}

// orderedAgent is node a over a directory that has had a log. The node has heard of no other node yet, and none
// answers.
func orderedAgent(t *testing.T, dir string) *Agent {
	t.Helper()
	cfg := testConfig(t, dir)
	for i := range cfg.Members {
		cfg.Members[i].Peer = fmt.Sprintf("127.0.0.1:%d", i+1)
	}
	d, err := prepareDataDir(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if d.Fresh() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.WriteIdentity(d.Own()), d.HasLog()); err != nil {
			t.Fatal(err)
		}
	}
	a := &Agent{cfg: cfg, logger: slog.New(slog.DiscardHandler), data: d}
	a.self = a.cfg.Self()
	openBoard(a)
	a.buildPeers()
	if err := a.stance.Load(); err != nil {
		t.Fatal(err)
	}
	return a
}

// obeyed tells whether a node obeys a recovery that was made without it.
func obeyed(a *Agent) bool {
	left := a.departing.Because()
	return left != nil && left.Superseded != nil
}

// TestRunningMajorityObeysNobody: one node was recovered by mistake, apart from a majority that runs. It must not end
// that majority.
func TestRunningMajorityObeysNobody(t *testing.T) {
	for name, c := range map[string]struct {
		before         func(b *board.Board, later func(time.Duration))
		obeys, refuses bool
	}{
		"has just started": {before: func(*board.Board, func(time.Duration)) {}, obeys: true},
		"follows a leader": {before: func(b *board.Board, later func(time.Duration)) { b.SetRaft(consensus.RoleState{Term: 2, Leader: 7}) }, refuses: true},
		"elects another leader": {before: func(b *board.Board, later func(time.Duration)) {
			b.SetRaft(consensus.RoleState{Term: 2, Leader: 7})
			b.SetRaft(consensus.RoleState{Term: 3})
		}},
		"elects nobody": {before: func(b *board.Board, later func(time.Duration)) {
			b.SetRaft(consensus.RoleState{Term: 2, Leader: 7})
			b.SetRaft(consensus.RoleState{Term: 3})
			later(recovery.LedWithin)
		}, obeys: true},
	} {
		a := orderedAgent(t, t.TempDir())
		c.before(a.board, openBoard(a))
		a.stance.Refused("c", tells(apart))
		if obeyed(a) != c.obeys || a.stance.Rejected().Has(apart) != c.refuses {
			t.Errorf("%s: obeys %t, refuses for good %t", name, obeyed(a), a.stance.Rejected().Has(apart))
		}
		if a.stance.TwoSides() != c.refuses {
			t.Errorf("%s: two sides run: %t", name, a.stance.TwoSides())
		}
		a.board.SetRole(status.RolePrimary, "")
		reason := a.board.Own().Reason
		if strings.Contains(reason, "stop the agent of node c now") != c.refuses || (reason == "") != c.obeys {
			t.Errorf("%s: its reason is %q", name, reason)
		}
	}
}

// TestRefusedRecoveryStaysRefused: a recovery that a running majority has refused stays refused after a restart,
// without a leader, and while a log is healed, when there is no leader either. A person's word ends the refusal: a
// rebuild on the other side, or a later recovery.
func TestRefusedRecoveryStaysRefused(t *testing.T) {
	dir := t.TempDir()
	first := orderedAgent(t, dir)
	first.board.SetRaft(consensus.RoleState{Term: 2, Leader: 7})
	first.stance.Refused("c", tells(apart))
	again := orderedAgent(t, dir)
	for range 2 {
		again.stance.Refused("c", tells(apart))
	}
	again.board.SetRole(status.RoleStarting, "")
	if left := again.departing.Because(); left != nil || !strings.Contains(again.board.Own().Reason, "this node refuses that recovery, also after a restart") {
		t.Errorf("it leaves with %+v, and says %q", left, again.board.Own().Reason)
	}
	later := apart // of the same version: it was made on the side that refused the first
	later.At = later.At.Add(time.Hour)
	if again.stance.Refused("c", tells(later)); !obeyed(again) {
		t.Error("a later recovery, without a leader, is not obeyed")
	}
	if v := first.stance.Rejected().Version(); v != apart.Version {
		t.Errorf("a recovery of it would be later than %d", v)
	}
}

// TestOrdersOfARecoveredCluster: a node takes an order of a cluster that was recovered without it, to be rebuilt or
// removed, as it takes the recovery itself. So a majority that runs goes on, and a person's order on the wrong side
// deletes nothing.
func TestOrdersOfARecoveredCluster(t *testing.T) {
	const instance = "abababababababababababababababab"
	rebuild := func(r *cluster.Recovery, version uint64) *transport.RejectedError {
		return &transport.RejectedError{Code: transport.CodeRebuild, Text: "rebuilt",
			Order: transport.Order{Recovery: r, StateVersion: version, Instance: instance}}
	}
	removed := func(r *cluster.Recovery) *transport.RejectedError {
		return &transport.RejectedError{Code: transport.CodeRemoved, Text: "removed", Order: transport.Order{Recovery: r}}
	}
	elsewhere := apart
	elsewhere.Node = "b"
	led := func(a *Agent) { a.board.SetRaft(consensus.RoleState{Term: 2, Leader: 7}) }
	out := func(a *Agent) {
		id := a.data.Own()
		id.Superseded = &apart
		a.data.Home = datadir.NewHome(a.data.Dir, id, false)
	}
	ours := func(a *Agent) {
		s := a.board.State()
		s.Version, s.Recovered = apart.Version+1, &apart
		a.board.SetState(s)
	}
	empty := func(a *Agent) {
		id := a.data.Own()
		id.Log = false
		a.data.Home = datadir.NewHome(a.data.Dir, id, true)
	}
	begins, goes := &membership.Departure{Instance: instance}, &membership.Departure{}
	for _, c := range []struct {
		name   string
		before func(*Agent)
		order  *transport.RejectedError
		want   *membership.Departure // nil: the node stays
	}{
		{"a rebuild, with a leader", led, rebuild(&apart, 1_000_001), nil},
		{"a removal, with a leader", led, removed(&apart), nil},
		{"a rebuild, without one", func(*Agent) {}, rebuild(&apart, 1_000_001), &membership.Departure{Superseded: &apart}},
		{"a removal, without one", func(*Agent) {}, removed(&apart), &membership.Departure{Superseded: &apart}},
		{"a rebuild by an agent that names no recovery", led, rebuild(nil, 1_000_001), nil},
		{"a rebuild, once it has obeyed", out, rebuild(&apart, 1_000_001), begins},
		{"and so by an older agent", out, rebuild(nil, 1_000_001), begins},
		{"a removal, once it has obeyed", out, removed(&apart), goes},
		{"a rebuild by a third cluster", out, rebuild(&elsewhere, 1_000_001), nil},
		{"a rebuild by its own, which was recovered", ours, rebuild(&apart, 1_000_002), begins},
		{"a rebuild by one that was recovered apart from that", ours, rebuild(&elsewhere, 1_000_002), nil},
		{"a removal by one that was", ours, removed(&elsewhere), nil},
		{"a rebuild in its own cluster, with a leader", led, rebuild(nil, 1), begins},
		{"a removal in its own cluster, with a leader", led, removed(nil), goes},
		{"a rebuild, with nothing to lose", empty, rebuild(&apart, 1_000_001), begins},
	} {
		a := orderedAgent(t, t.TempDir())
		c.before(a)
		a.stance.Refused("c", c.order)
		got := a.departing.Because()
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: it leaves with (-want +got):\n%s", c.name, diff)
		}
		a.board.SetRole(status.RoleReplica, "")
		if reason := a.board.Own().Reason; (got == nil) != (reason != "") {
			t.Errorf("%s: its reason is %q", c.name, reason)
		}
	}
}

// TestOrderIsJudgedAgainAtTheEnd: if a leader came before the node had ended, the order no longer holds.
func TestOrderIsJudgedAgainAtTheEnd(t *testing.T) {
	for _, led := range []bool{false, true} {
		a := orderedAgent(t, t.TempDir())
		a.stance.Refused("c", tells(apart))
		if led {
			a.board.SetRaft(consensus.RoleState{Term: 2, Leader: 7})
		}
		if err := a.persistExit(); err != nil || !a.again {
			t.Fatalf("the exit is not noted: %v", err)
		}
		if out := a.data.Own().Superseded != nil; out == led || a.stance.Rejected().Has(apart) != led {
			t.Errorf("with a leader %t: out %t, refuses %t", led, out, a.stance.Rejected().Has(apart))
		}
	}
}

// TestWordOfARecovery: a former member is asked what it says of a recovery.
func TestWordOfARecovery(t *testing.T) {
	silent, refused := recovery.Word{}, recovery.Word{Refuses: true}
	// First an agent that has no node yet, because its log is being healed.
	a := orderedAgent(t, t.TempDir())
	later := openBoard(a)
	ask := func() (w recovery.Word) {
		args, err := json.Marshal(apart)
		if err != nil {
			t.Fatal(err)
		}
		answer := a.requests.Serve(context.Background(), control.Request{Name: quorumloss.WordRequest, By: "b", From: "b", Args: args})
		if err := answer.Err(); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(answer.Result, &w); err != nil {
			t.Fatal(err)
		}
		return w
	}
	if w := ask(); w != silent {
		t.Errorf("it says %+v", w)
	}
	a.board.SetRaft(consensus.RoleState{Term: 2, Leader: 7})
	if w := ask(); w != (recovery.Word{Refuses: true, Led: true}) || !a.stance.Rejected().Has(apart) {
		t.Errorf("with a leader it says %+v", w)
	}
	a.board.SetRaft(consensus.RoleState{Term: 3})
	later(recovery.LedWithin)
	if w := ask(); w != refused {
		t.Errorf("later it says %+v", w)
	}
	a.board.SetState(cluster.State{Version: apart.Version + 1}) // the node has joined that side
	if w := ask(); w != silent {
		t.Errorf("having joined it says %+v", w)
	}
}

// TestRecoveredNodeIsNotToBeRebuilt: a former member refuses every node that speaks to it, also a node of the
// recovered cluster. The recovered node does not tell people to rebuild it: it may have the only data that there are.
func TestRecoveredNodeIsNotToBeRebuilt(t *testing.T) {
	a := orderedAgent(t, t.TempDir())
	s := a.board.State()
	s.Version = apart.Version
	a.board.SetState(s)
	a.stance.Refused("b", tells(apart))
	a.board.SetRole(status.RolePrimary, "")
	want := `node b was a member before the recovery on node c, and serves nothing until it is rebuilt: "quorate node rebuild b"`
	if got := a.board.Own().Reason; got != want || a.departing.Because() != nil {
		t.Errorf("it says %q, and leaves with %+v", got, a.departing.Because())
	}
	for i := range s.Members { // a person has done so
		if s.Members[i].Name == "b" {
			s.Members[i].Kind, s.Members[i].Instance = cluster.KindLearner, "new"
		}
	}
	a.board.SetState(s)
	a.stance.Refused("b", tells(apart))
	a.board.SetRole(status.RolePrimary, "")
	if got := a.board.Own().Reason; got != "" {
		t.Errorf("once that is under way it says %q", got)
	}
	// Node a was recovered itself, apart from node c, which node b obeys: node b obeys no order of node a.
	s.Recovered = &cluster.Recovery{Version: apart.Version, Cluster: "orders", Node: "a", At: apart.At}
	s.Version++
	a.board.SetState(s)
	a.stance.Refused("b", tells(apart))
	a.board.SetRole(status.RolePrimary, "")
	if got := a.board.Own().Reason; !strings.HasPrefix(got, "node b obeys another recovery, on node c, and no order of this cluster: ") {
		t.Errorf("of a node that obeys another recovery it says %q", got)
	}
	refusal := tells(apart)
	refusal.By = "b"
	peerHandler{a}.Rejected(config.MemberID("orders", "b"), refusal)
	if n := a.board.Nodes()[1]; n.Refusal == nil || n.Refusal.By != "b" {
		t.Errorf("node b is shown as %+v", n)
	}
}

// TestOutSaysWhatTroublesIt: a node that has obeyed a recovery shows, beside that, why it does not obey another one.
func TestOutSaysWhatTroublesIt(t *testing.T) {
	a := orderedAgent(t, t.TempDir())
	if err := a.data.Supersede(apart); err != nil {
		t.Fatal(err)
	}
	other := cluster.Recovery{Version: apart.Version, Cluster: "orders", Node: "b", At: apart.At}
	a.board.SetRole(status.RoleRemoved, "it is out")
	h := supersededPeers{a: a}
	h.Rejected(config.MemberID("orders", "b"), &transport.RejectedError{
		Code: transport.CodeRebuild, Text: "node a is to be rebuilt", Order: transport.Order{Recovery: &other, StateVersion: 1_000_001, Instance: strings.Repeat("1", 32)},
	})
	if got := a.board.Own().Reason; !strings.HasPrefix(got, "it is out; node a is to be rebuilt: a cluster that was recovered apart") || !strings.Contains(got, "move this node's data directory away") {
		t.Errorf("it says %q", got)
	}
}

// TestRebuiltNodeIsRefused: a voter that was away refuses a node that was rebuilt meanwhile. The status names the remedy, if
// the cluster has given that node its data directory, and runs.
func TestRebuiltNodeIsRefused(t *testing.T) {
	a := orderedAgent(t, t.TempDir())
	b := config.MemberID("orders", "b")
	refuses := &transport.RejectedError{Code: transport.CodePeer, Text: "another data directory", By: "b", Order: transport.Order{Instance: strings.Repeat("0", 32)}}
	says := func() status.Refusal { peerHandler{a}.Rejected(b, refuses); return *a.board.Nodes()[1].Refusal }
	s := a.board.State()
	s.Members[0].Instance = a.data.Own().Instance
	s.Version++
	a.board.SetState(s)
	if r := says(); !r.Data || r.Why != refuses.Text {
		t.Errorf("without a leader: %+v", r)
	}
	a.board.SetRaft(consensus.RoleState{Term: 1, Leader: a.self.ID})
	if r := says(); r.Data || !strings.Contains(r.Why, `"quorate node rebuild b" takes node b in again`) {
		t.Errorf("%+v", r)
	}
}

// TestAddedIsAsked: a node that knows none of the members any more asks a node that only its configuration names, and obeys
// it like a member. While it has a leader it asks nobody, and what such a node said is forgotten.
func TestAddedIsAsked(t *testing.T) {
	a := orderedAgent(t, t.TempDir())
	d := config.Added{Name: "d", Peer: loneConfig(t).Members[0].Peer}
	a.cfg.Added = []config.Added{d}
	h := &refuser{}
	h.code.Store(uint32(transport.CodePeer))
	peer := transport.New(transport.Config{
		Identity: transport.Identity{ClusterID: a.cfg.ClusterID(), ClusterName: a.cfg.Cluster, Node: config.MemberID(a.cfg.Cluster, d.Name), NodeName: d.Name, Instance: [16]byte{1}},
		Listen:   d.Peer, Peers: []transport.Peer{{ID: a.self.ID, Name: a.self.Name, Addr: a.self.Peer}}, Handler: h, Logger: a.logger,
	})
	if err := peer.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- peer.Answer(ctx) }()
	a.askAdded(ctx)
	if got := a.board.Trouble("d"); !strings.HasPrefix(got, "node d refuses this node: ") {
		t.Errorf("it says %q", got)
	}
	h.code.Store(uint32(transport.CodeRemoved))
	a.board.SetRaft(consensus.RoleState{Term: 1, Leader: a.self.ID})
	a.askAdded(ctx)
	if got := a.board.Trouble("d"); got != "" || a.departing.Because() != nil {
		t.Errorf("with a leader it says %q, and leaves with %+v", got, a.departing.Because())
	}
	openBoard(a) // it has started again
	a.askAdded(ctx)
	if got := a.departing.Because(); got == nil || *got != (membership.Departure{}) {
		t.Errorf("removed, it leaves with %+v", got)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
