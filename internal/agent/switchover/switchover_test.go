package switchover

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/sys/clock"
)

// node is a leader, a, that knows only what its board has.
type node struct {
	Node
	board *board.Board
}

func (n node) Own() status.Node { return n.board.Own() }

// newService returns the Service of a leader a, whose cluster has a replica b.
func newService(t *testing.T) *Service {
	t.Helper()
	self := cluster.Member{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 5}
	b := board.New(board.Config{
		Self: status.Node{ID: self.ID, Name: self.Name, Kind: self.Kind, Weight: 5, Reachable: true}, Now: time.Now,
		State: cluster.NewState([]cluster.Member{self, {ID: 2, Name: "b", Kind: cluster.KindFull, Weight: 5}}), Known: membership.New(membership.Config{}),
		DialError: func(cluster.NodeID) string { return "" },
	})
	return New(Config{Self: self, Node: node{board: b}, Board: b, PromotionTimeout: time.Minute})
}

// TestRestartNotesAStoppedApplier: a restart that did not help says so.
func TestRestartNotesAStoppedApplier(t *testing.T) {
	v := newService(t)
	if notes := v.replicationNotes(t.Context()); len(notes) != 0 {
		t.Errorf("it applies: %q", notes)
	}
	v.board.Update(func(s *status.Node) { s.ApplierStopped = "replication has stopped: x" })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	want := []string{"node " + v.self.Name + " does not apply, and cannot take over: replication has stopped: x; see the status"}
	if d := cmp.Diff(want, v.replicationNotes(ctx)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestPlanOfNobody: in maintenance without a primary the plan waits for nothing, however far behind the node to open
// is.
func TestPlanOfNobody(t *testing.T) {
	v := newService(t)
	b := v.self.ID + 1
	v.board.SetState(cluster.State{Version: 1, Maintenance: &cluster.Maintenance{}, Members: []cluster.Member{
		{ID: v.self.ID, Name: "a", Kind: cluster.KindFull, Weight: 5}, {ID: b, Name: "b", Kind: cluster.KindFull, Weight: 5}}})
	v.board.PeerUp(b, true)
	if err := v.board.Received(b, status.Node{
		ID: b, Name: "b", Kind: cluster.KindFull, Weight: 5, Role: status.RoleReplica, LagTransactions: 9, LagSeconds: 60}); err != nil {
		t.Fatal(err)
	}
	for _, dryRun := range []bool{true, false} {
		s, p, err := v.plan(t.Context(), cluster.SwitchoverRequest{To: "b", DryRun: dryRun, MaxPause: time.Second, Wait: time.Second})
		if err != nil || p.to != b {
			t.Fatalf("%+v, %v", p, err)
		}
		want := []string{"maintenance is on: b becomes the node that may open"}
		if d := cmp.Diff(want, append(s.Notes, p.notes...)); d != "" {
			t.Errorf("dry run %t (-want +got):\n%s", dryRun, d)
		}
	}
}

// TestCheckWriters: a switchover does not begin while a statement has run for half of the pause or longer. A dry run
// names the shorter statements.
func TestCheckWriters(t *testing.T) {
	of := func(seconds ...int64) (all []mysqld.Session) {
		for i, s := range seconds {
			all = append(all, mysqld.Session{ID: uint64(i + 7), User: "app", Seconds: s})
		}
		return all
	}
	const called = ": a switchover is called off if writes cannot be closed within 4s"
	for _, c := range []struct {
		writers []mysqld.Session
		blocks  int
		note    string
	}{
		{nil, 0, ""},
		{of(1), 0, "1 statement writes now (session 7 of app, for 1 s)" + called},
		{of(2, 1, 0), 1, "2 statements write now (session 8 of app, for 1 s; session 9 of app, for 0 s)" + called},
		{of(1, 0, 0, 0, 0), 0, "5 statements write now (session 7 of app, for 1 s; session 8 of app, for 0 s; session 9 of app, for 0 s; …)" + called},
	} {
		blocks, note := checkWriters(c.writers, 4*time.Second)
		if len(blocks) != c.blocks || note != c.note {
			t.Errorf("%v: %q, %q", c.writers, blocks, note)
		}
	}
	want := "closing writes waited for 1 statement that writes: session 7 of app, for 5 s; wait until it is done, or end the session (KILL 7), or give more time (--max-pause), and try again"
	if got := HeldBy(of(5)); got != want {
		t.Errorf("%q", got)
	}
}

// TestLagIsSaid: a dry run names a node that lags, and a switchover that has waited in vain says what that node lacks.
func TestLagIsSaid(t *testing.T) {
	b := func(lag, stuck, rate float64) status.Node {
		return status.Node{ID: 2, Name: "b", Kind: cluster.KindFull, Weight: 5, Role: status.RoleReplica,
			LagTransactions: 62, LagBytes: 1000, LagSeconds: lag, ApplyStuck: stuck, ApplyRate: rate}
	}
	unknown := b(60, 9, 0)
	unknown.LagUnknown = true
	for _, c := range []struct {
		node status.Node
		want string
	}{
		{b(3.7, 4, 1e6), "lags by 3.7 s (it lacks 62 transactions, and has applied nothing for 4 s)"},
		{b(60, 0, 100), "needs about 10.0 s to catch up"},
		{b(1.2, 0, 1e6), "lags by 1.2 s (it lacks 62 transactions)"},
		{b(0.1, 0, 1e6), ""},
		{unknown, ""},
		{status.Node{LagSeconds: 9}, ""},
	} {
		if got := lagNote(c.node, 2*time.Second); got != c.want {
			t.Errorf("%+v: %q, want %q", c.node, got, c.want)
		}
	}
	v := newService(t)
	lost := errors.New("its answer did not come")
	if got := v.stillLacks(2, 0, lost); got != lost.Error() {
		t.Errorf("of a node that says nothing: %q", got)
	}
	if got := v.stillLacks(2, time.Second, nil); got != "when it was asked, it still needed 1s" {
		t.Errorf("of a node that answers: %q", got)
	}
	v.board.PeerUp(2, true)
	if err := v.board.Received(2, b(3.7, 8, 0)); err != nil {
		t.Fatal(err)
	}
	if got, want := v.stillLacks(2, 0, lost), "it lacks 62 transactions, and has applied nothing for 8 s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// slow is a node that has all entries after a while.
type slow struct {
	Node
	after time.Duration
}

func (n slow) Follow(context.Context, uint64, uint64) error {
	time.Sleep(n.after)
	return nil
}

// TestFarTarget: the lag of a target is the time that it has waited, without the time that the answer takes on its
// way.
func TestFarTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const way, limit = time.Second, 10 * time.Second
		for _, tc := range []struct {
			took, want time.Duration
			asked      int
		}{{20 * time.Millisecond, 20 * time.Millisecond, 1}, {nearEnough + 1, nearEnough + 1, 10}} {
			v, asked := New(Config{Node: slow{after: tc.took}}), 0
			behind, err := awaitNear(limit, func() (time.Duration, error) {
				asked++
				began := time.Now()
				time.Sleep(way)
				d, err := v.target(t.Context(), control.Request{Name: requestTarget, From: "a"}, Target{Within: time.Second})
				if err != nil {
					return 0, err
				}
				said, err := json.Marshal(d.Result)
				return waited(control.Answer{Result: said}, time.Since(began)), err
			})
			if err != nil || behind != tc.want || asked != tc.asked {
				t.Errorf("it needs %v: %v, %v, asked %d times", tc.took, behind, err, asked)
			}
		}
	})
	for _, older := range []string{"", "null", "{}", `{"took_ns": -1}`, "x"} {
		if got := waited(control.Answer{Result: []byte(older)}, time.Minute); got != time.Minute {
			t.Errorf("%q: %v, want all of it", older, got)
		}
	}
}

// TestCalledOff: the answer says that writes are open again, if they are.
func TestCalledOff(t *testing.T) {
	v := newService(t)
	var orders primary.Orders
	m := primary.NewOrder("ann", true, time.Second, clock.Machine{})
	go func() { _, _ = orders.Run(t.Context(), m, func() {}) }()
	for orders.Now() == nil {
		time.Sleep(time.Millisecond)
	}
	for _, c := range []struct {
		role         status.Role
		begins, ends string
	}{
		{status.RoleReplica, "x", ""}, // writes were not closed
		{status.RolePrimary, "called off, writes were closed for ", "s and are open again on node a: x"},
		{status.RoleReplica, "not done, writes were closed ", "s ago and node a is replica now, see the status: x"},
	} {
		v.board.SetRole(c.role, "")
		if got := v.calledOff(m, errors.New("x")).Error(); !strings.HasPrefix(got, c.begins) || !strings.HasSuffix(got, c.ends) {
			t.Errorf("%s: %q, want %q … %q", c.role, got, c.begins, c.ends)
		}
		orders.Closing()
	}
}
