package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/router"
)

// TestLeaving: sessions leave a node when it could not be read for the grace, all of it at a time.
func TestLeaving(t *testing.T) {
	l := leaving{grace: 30 * time.Second}
	policy, began := status.Reads{LagMax: 2 * time.Second}, time.Now()
	for _, c := range []struct {
		at         time.Duration
		lag        float64
		news, over bool
	}{
		{0, 0, false, false},
		{1, 5, true, false}, // new clients are sent elsewhere
		{2, 5, false, false},
		{30, 5, false, false},
		{31, 5, true, true},
		{32, 5, false, true},
		{33, 0, true, false},
		{34, 5, true, false},
		{63, 5, false, false},
		{64, 5, true, true},
	} {
		n := status.Node{ID: 2, Role: status.RoleReplica, Mysqld: status.MysqldRunning, Leader: 1, Reachable: true, LagSeconds: c.lag}
		if news := l.look([]status.Node{n}, policy, began.Add(c.at*time.Second)); news != c.news || l.over[2] != c.over {
			t.Errorf("after %d s: news %t, over %t", c.at, news, l.over[2])
		}
	}
}

// readReplica makes a a replica that may be read.
func readReplica(a *Agent) {
	a.lagAt.Store(new(time.Now()))
	a.port.heard.answers = []answer{{until: windowOf(time.Hour)}}
	a.board.Update(func(s *status.Node) { s.Role, s.Mysqld, s.Leader = status.RoleReplica, status.MysqldRunning, 7 })
	a.reads.look(time.Now())
}

// TestReadsOfThisNode: it is read as a replica that knows its lag, and by nobody any more, whatever is asked when,
// once mysqld is to take writes.
func TestReadsOfThisNode(t *testing.T) {
	here, none := router.Target{Local: true}, func(cluster.NodeID) int { return 0 }
	for name, c := range map[string]struct {
		change func(*Agent)
		takes  bool
		serves bool // those who are connected
	}{
		"a replica": {func(*Agent) {}, true, true},
		"it lags":   {func(a *Agent) { a.board.Update(func(s *status.Node) { s.LagSeconds = 3 }) }, false, true},
		"mysqld has not said what it has for long": {func(a *Agent) { a.lagAt.Store(new(time.Now().Add(-3 * time.Second))) }, false, true},
		"it has no leader":                         {func(a *Agent) { a.board.Update(func(s *status.Node) { s.Leader = 0 }) }, false, true},
		"its leader does not answer": {func(a *Agent) {
			a.port.heard.answers = []answer{{until: windowOf(-1)}}
		}, false, true},
		"the wall clock was set forward since its leader answered": {func(a *Agent) {
			a.port.heard.answers[0].until.Wall = time.Now().Round(0).Add(-1)
		}, false, true},
		"its leader says that more is committed than is here": {func(a *Agent) { a.port.heard.answers[0].index = 1000 }, false, true},
		"its log's disk is full":                              {func(a *Agent) { a.board.Update(func(s *status.Node) { s.LogState = status.LogFull }) }, false, true},
		"it is promoted":                                      {func(a *Agent) { a.board.SetRole(status.RolePromoting, "") }, false, false},
		"its sessions were ended": {func(a *Agent) {
			a.board.SetRole(status.RolePromoting, "")
			if err := a.reads.end(t.Context()); err != nil {
				t.Error(err)
			}
		}, false, false},
	} {
		a := openLone(t)
		readReplica(a)
		before := a.reads.Changed()
		c.change(a)
		a.reads.look(time.Now())
		got, ok := a.reads.Choose(none, nil)
		if ok != c.takes || ok && (got.Node != a.self.ID || !got.Local) || a.reads.Takes(here) != c.takes || a.reads.Serving() != c.serves {
			t.Errorf("%s: chosen %v %t, takes %t, serves %t", name, got, ok, a.reads.Takes(here), a.reads.Serving())
		}
		select {
		case <-before:
			if c.takes {
				t.Errorf("%s: the router was told of a change", name)
			}
		default:
			if !c.takes {
				t.Errorf("%s: the router was told nothing", name)
			}
		}
	}
}

// TestReadsEndBeforeWrites: a look that comes late does not open the port again, which a promotion has closed.
func TestReadsEndBeforeWrites(t *testing.T) {
	a := openLone(t)
	readReplica(a)
	a.board.SetRole(status.RolePromoting, "")
	if !a.reads.Serving() {
		t.Fatal("it was looked already")
	}
	if err := a.reads.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.reads.look(time.Now())
	if a.reads.Serving() || a.reads.Takes(router.Target{Local: true}) {
		t.Error("clients read a mysqld that takes writes")
	}
	a.board.SetRole(status.RoleReplica, "")
	a.reads.look(time.Now())
	if !a.reads.Serving() || !a.reads.Takes(router.Target{Local: true}) {
		t.Error("nobody reads a replica that was promoted once")
	}
}

// TestReadsLetInBeforeTheEnd: a client is let in before the end of the sessions, which then looks for it; or it is refused.
func TestReadsLetInBeforeTheEnd(t *testing.T) {
	a := openLone(t)
	readReplica(a)
	dial := func() error {
		conn, err := a.reads.DialLocal(t.Context())
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	if err := dial(); errors.Is(err, errTakesWrites) || !a.reads.served {
		t.Errorf("%v; noted %t", err, a.reads.served)
	}
	a.board.SetRole(status.RolePromoting, "")
	if err := a.reads.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := dial(); !errors.Is(err, errTakesWrites) || a.reads.served {
		t.Errorf("let in after the end: %v; noted %t", err, a.reads.served)
	}
}

// TestReadsRefusedByThePrimary: the primary's other port, which takes nobody any more, tells a client of this port, and
// does not keep it.
func TestReadsRefusedByThePrimary(t *testing.T) {
	a := openLone(t)
	a.board.SetRole(status.RolePrimary, "")
	conn, err := a.reads.DialPeer(t.Context(), a.self.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("no answer: %v", err)
	}
	a.work.Wait()
}
