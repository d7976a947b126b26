package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestHistoryOutage: the history and the last line of the status show both times. Where both are the
// same the line has only one, and where an older agent wrote the change neither is known.
func TestHistoryOutage(t *testing.T) {
	for _, tc := range []struct {
		row   cluster.HistoryRow
		cells string
		line  string
	}{
		{cluster.HistoryRow{NoPrimaryMs: 1100, LastWriteMs: 47_600}, "1.1s        47.6s before", ", no primary for 1.1s, last write 47.6s before"},
		{cluster.HistoryRow{NoPrimaryMs: 3210, LastWriteMs: 3190}, "3.2s        3.2s before", ", no primary for 3.2s"},
		{cluster.HistoryRow{LastWriteMs: 532_000}, "-           8m52s before", ", last write 8m52s before"},
		{cluster.HistoryRow{NoPrimaryMs: 62}, "62ms        -", ", no primary for 62ms"},
		{cluster.HistoryRow{NoWritesMs: 80}, "-           -", ""},
	} {
		tc.row.At, tc.row.What = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), cluster.HistoryFailover
		tc.row.From, tc.row.Node = "a", "b"
		gap := strings.Repeat(" ", max(0, len("LAST WRITE")-len(tc.cells[12:])))
		want := "2026-11-22 12:00:00 UTC  failover  a -> b  " + tc.cells + gap + "  -\n"
		if d := cmp.Diff(want, strings.SplitAfter(historyTable([]cluster.HistoryRow{tc.row}, true, 0), "\n")[1]); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		want = "last failover: 2026-11-22 12:00:00 UTC, a -> b" + tc.line + " (quorate history)\n"
		if d := cmp.Diff(want, lastChangeLine(status.Cluster{Primary: "b", LastChange: &tc.row})); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

// TestLastChangeOfThePrimary: the last line of the status does not contradict the first one, as long as the newest change is
// not written down.
func TestLastChangeOfThePrimary(t *testing.T) {
	lost := cluster.HistoryRow{What: cluster.HistoryLost, From: "c"}
	moved := cluster.HistoryRow{What: cluster.HistoryFailover, From: "a", Node: "b"}
	for _, tc := range []struct {
		row     cluster.HistoryRow
		primary string
		shown   bool
	}{{lost, "a", false}, {lost, "", true}, {moved, "c", false}, {moved, "b", true}, {moved, "", true}} {
		if line := lastChangeLine(status.Cluster{Primary: tc.primary, LastChange: &tc.row}); (line != "") != tc.shown {
			t.Errorf("%+v, primary %q: %q", tc.row, tc.primary, line)
		}
	}
}
