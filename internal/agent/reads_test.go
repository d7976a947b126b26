package agent

import (
	"context"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/freshness"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/router"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// hearsLeader has a's leader say that all is committed up to an index. This holds for an hour.
func hearsLeader(a *Agent, index uint64) {
	a.heard = freshness.NewHeard(consensus.RealMachine{})
	a.heard.Hear(context.Background(), time.Hour, func(context.Context) (uint64, error) { return index, nil }, func() uint64 { return 0 })
}

// readReplica makes agent a a replica that may be read.
func readReplica(a *Agent) {
	a.local.LagAt.Store(new(time.Now()))
	hearsLeader(a, 0)
	a.board.Update(func(s *status.Node) { s.Role, s.Mysqld, s.Leader = status.RoleReplica, status.MysqldRunning, 7 })
	a.reads.Look(time.Now())
}

// TestReadsOfThisNode: a node is read as a replica while it knows its lag. Once its mysqld is to take writes it is
// not, in whatever order it is asked.
func TestReadsOfThisNode(t *testing.T) {
	here, none := router.Target{Local: true}, func(cluster.NodeID) int { return 0 }
	for name, c := range map[string]struct {
		change func(*Agent)
		takes  bool
		serves bool // the clients that are connected
	}{
		"a replica": {func(*Agent) {}, true, true},
		"it lags":   {func(a *Agent) { a.board.Update(func(s *status.Node) { s.LagSeconds = 3 }) }, false, true},
		"mysqld has not said what it has for long":            {func(a *Agent) { a.local.LagAt.Store(new(time.Now().Add(-3 * time.Second))) }, false, true},
		"it has no leader":                                    {func(a *Agent) { a.board.Update(func(s *status.Node) { s.Leader = 0 }) }, false, true},
		"its leader says that more is committed than is here": {func(a *Agent) { hearsLeader(a, 1000) }, false, true},
		"its log's disk is full":                              {func(a *Agent) { a.board.Update(func(s *status.Node) { s.LogState = status.LogFull }) }, false, true},
		"it is promoted":                                      {func(a *Agent) { a.board.SetRole(status.RolePromoting, "") }, false, false},
		"its sessions were ended": {func(a *Agent) {
			a.board.SetRole(status.RolePromoting, "")
			if err := a.reads.End(t.Context()); err != nil {
				t.Error(err)
			}
		}, false, false},
	} {
		a := openLone(t)
		readReplica(a)
		before := a.reads.Changed()
		c.change(a)
		a.reads.Look(time.Now())
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

// TestReadsRefusedByThePrimary: the primary's other port lets no client in any more. A client of this port is told
// that, and is not kept.
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
