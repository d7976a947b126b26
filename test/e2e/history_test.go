package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestHistory: every node has a failover, a switchover and a fence in its history, in the
// same words, also after all agents were started again.
func TestHistory(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.scenario(t, "Told", f.historyIsTold)
}

func (f *fixture) historyIsTold(t *testing.T, ctx context.Context) {
	first := f.heal(t, ctx)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	if err := f.KillBoth(first); err != nil {
		t.Fatal(err)
	}
	second, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	f.must(t, ctx, first, "switchover", "--to", f.Name(first), "--max-pause", "10s")
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	third := 3 - first - second
	f.must(t, ctx, first, "fence", f.Name(third), "--reason", "its disk")
	f.must(t, ctx, first, "unfence", f.Name(third))
	l.stop(t)
	f.heal(t, ctx)
	told := f.awaitSameHistory(t, ctx)

	failover := f.findRow(t, told, cluster.HistoryFailover)
	if failover.From != f.Name(first) || failover.Node != f.Name(second) || failover.NoPrimaryMs < 1 || failover.LastWriteMs < failover.NoPrimaryMs || failover.LastWriteMs > 60_000 ||
		!strings.Contains(failover.Why, "the agent of "+f.Name(first)+" is gone") {
		t.Errorf("the failover is told as %+v", failover)
	}
	moved := f.findRow(t, told, cluster.HistorySwitchover)
	if moved.From != f.Name(second) || moved.Node != f.Name(first) || moved.NoPrimaryMs < 1 || moved.LastWriteMs < moved.NoPrimaryMs || moved.LastWriteMs > 30_000 ||
		!strings.Contains(moved.Why, "@") {
		t.Errorf("the switchover is told as %+v", moved)
	}
	if fenced := f.findRow(t, told, cluster.HistoryWhat(cluster.EventFenced)); fenced.Node != f.Name(third) || !strings.Contains(fenced.Why, "its disk") {
		t.Errorf("the fence is told as %+v", fenced)
	}
	f.findRow(t, told, cluster.HistoryWhat(cluster.EventUnfenced))
	if st, err := f.Status(ctx, third); err != nil || st.LastChange == nil || *st.LastChange != moved {
		t.Errorf("the status ends with %+v, %v; want %+v", st.LastChange, err, moved)
	}
	if text := f.must(t, ctx, third, "status"); !strings.Contains(text, "last switchover: ") {
		t.Errorf("status: %s", text)
	}

	for i := range f.Len() {
		if err := f.Terminate(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	f.heal(t, ctx)
	again := f.awaitSameHistory(t, ctx)
	if d := cmp.Diff(told, again[:min(len(told), len(again))]); d != "" {
		t.Errorf("after a restart of all agents the history is another one (-before +after):\n%s", d)
	}
}

// awaitSameHistory waits until all nodes have the same history, and returns it.
func (f *fixture) awaitSameHistory(t *testing.T, ctx context.Context) (rows []cluster.HistoryRow) {
	t.Helper()
	if err := devcluster.PollCommand(ctx, "all nodes tell the same history", func(ctx context.Context) (bool, string, error) {
		first := f.must(t, ctx, 0, "history", "--json")
		for i := 1; i < f.Len(); i++ {
			if d := cmp.Diff(first, f.must(t, ctx, i, "history", "--json")); d != "" {
				return false, fmt.Sprintf("%s and %s differ:\n%s", f.Name(0), f.Name(i), d), nil
			}
		}
		rows = nil
		for line := range strings.Lines(first) {
			var r cluster.HistoryRow
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return false, "", err
			}
			rows = append(rows, r)
		}
		return true, "", nil
	}); err != nil {
		t.Fatal(err)
	}
	return rows
}

// findRow returns the only row of a kind.
func (f *fixture) findRow(t *testing.T, rows []cluster.HistoryRow, what cluster.HistoryWhat) (found cluster.HistoryRow) {
	t.Helper()
	n := 0
	for _, r := range rows {
		if r.What == what {
			found, n = r, n+1
		}
	}
	if n != 1 {
		t.Errorf("the history has %d rows %q: %+v", n, what, rows)
	}
	return found
}
