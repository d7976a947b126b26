package agent

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
)

// TestAckEventsAreAudited: the audit log says once that the require-ack of a member was dropped or is back, beside
// the lines of the log's entries; both are counted.
func TestAckEventsAreAudited(t *testing.T) {
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	a := &Agent{self: cluster.Member{Name: "a"}, logger: quiet, records: history.New(vfs.OS{}, dir, "a", quiet)}
	openBoard(a)
	members := []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 1}}
	if err := a.state.Load(datadir.NewHome(datadir.New(vfs.OS{}, dir), datadir.Identity{Log: true, State: true}, false), members, 1); err != nil {
		t.Fatal(err)
	}
	a.records.Open()
	a.onAckEvent(cluster.AckEvent{Node: "b", Dropped: true, Text: "b is dropped"})
	a.onAckEvent(cluster.AckEvent{Node: "b", Text: "b is back"})
	for range 2 {
		if err := a.writeState(a.state.Point()); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := a.records.Audit.Newest(10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		got = append(got, l.By+": "+l.What+": "+l.Result)
	}
	if d := cmp.Diff([]string{"quorate on a: b is dropped: dropped", "quorate on a: b is back: in force"}, got); d != "" {
		t.Errorf("the audit log (-want +got):\n%s", d)
	}
	if n := a.ackDrops.Load(); n != 1 {
		t.Errorf("%d drops are counted", n)
	}
}
