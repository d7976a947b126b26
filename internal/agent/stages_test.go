package agent

import (
	"errors"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/entry"
)

// openLone is an agent of a cluster of one. All parts are built, and none runs.
func openLone(t *testing.T) *Agent {
	t.Helper()
	return openWith(t, loneConfig(t))
}

func openWith(t testing.TB, cfg config.Config) *Agent {
	t.Helper()
	a := loneAgent(t, cfg)
	a.buildRouter()
	a.buildReads()
	a.buildPeers()
	a.buildAPI()
	t.Cleanup(a.api.Unlisten)
	if err := errors.Join(a.buildFeed(), a.open(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.log.Close(), a.data.Close()); err != nil {
			t.Error(err)
		}
	})
	return a
}

func TestBulkMetrics(t *testing.T) {
	stats := bulk.Stats{
		BytesSent: 1, BytesReceived: 2, StagesPushed: 3, StagesReceived: 4, StagesFetched: 5, StagesAborted: 6, StagesRefused: 7,
	}
	for i, m := range bulkMetrics(stats, 8) {
		if m.Value != float64(i+1) {
			t.Errorf("%s = %v, want %d", m.Name, m.Value, i+1)
		}
	}
}

func TestStatusSaysWhichStageIsBlocked(t *testing.T) {
	a := openLone(t)
	if own := a.ownStatus(); own.StageBlocked != "" {
		t.Errorf("nothing waits: %q", own.StageBlocked)
	}
	state := a.board.State()
	state.Members = append(state.Members, cluster.Member{ID: 98, Name: "b"}, cluster.Member{ID: 99, Name: "c"})
	a.board.SetState(state)
	id := entry.StageID{Term: 7, Number: 41}
	for _, c := range []struct {
		blocked []bulk.Blocked
		want    string
	}{
		{nil, ""},
		{[]bulk.Blocked{{ID: id, Bytes: 1536 << 10, Full: []cluster.NodeID{98, 99}}},
			"commits wait for stage 7-41 (1.5MiB): no majority has room for it, no space left on the disk of b, c"},
		{[]bulk.Blocked{{ID: id, Bytes: 3 << 20, Full: []cluster.NodeID{99}}, {ID: id, Bytes: 1 << 20, Full: []cluster.NodeID{a.self.ID}}},
			"commits wait for stage 7-41 (3MiB): no majority has room for it, no space left on the disk of c; " +
				"no space left on this node's disk for stage 7-41, after 1MiB of it were written"},
		{[]bulk.Blocked{{ID: id, Bytes: 1 << 20, Failing: []cluster.NodeID{98, 99}, Why: errors.New("disk error")}},
			"commits wait for stage 7-41 (1MiB): it cannot be copied to b, c: disk error"},
	} {
		if got := a.stageBlocked(c.blocked); got != c.want {
			t.Errorf("%+v:\n%s, want\n%s", c.blocked, got, c.want)
		}
	}
}
