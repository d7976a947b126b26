package cluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestHistory: the lines of two nodes about one change become one row, whichever line came first, and even if
// the clocks differ. A line about a change that no other node mentions makes a row of its own.
func TestHistory(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 11, 22, 12, 0, s, 0, time.UTC) }
	line := func(s int, node string, e Event) AuditEntry { return AuditEntry{At: at(s), Node: node, Event: &e} }
	opened := func(s int, node string, term uint64) AuditEntry {
		return line(s, node, Event{Kind: EventPrimary, Term: term, NoPrimaryMs: 80, LastWriteMs: 90, Why: "seen by " + node})
	}
	row := func(s int, what HistoryWhat, from, node string, term uint64, why string) HistoryRow {
		return HistoryRow{At: at(s), What: what, From: from, Node: node, Term: term, Why: why, NoPrimaryMs: 80, LastWriteMs: 90}
	}
	for _, tc := range []struct {
		name  string
		lines []AuditEntry
		want  []HistoryRow
	}{
		{"nothing", nil, []HistoryRow{}},
		{"an operator's line is none", []AuditEntry{{At: at(1), What: "fence node a"}}, []HistoryRow{}},
		{"the first", []AuditEntry{opened(1, "a", 1)}, []HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a")}},
		{"a dead primary says nothing", []AuditEntry{opened(1, "a", 1), opened(5, "b", 3)},
			[]HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a"), row(5, HistoryFailover, "a", "b", 3, "seen by b")}},
		{"its own word counts for more, and may come last", []AuditEntry{
			opened(1, "a", 1), opened(5, "b", 3), line(9, "a", Event{Kind: EventLeft, Term: 1, Why: "mysqld ended: signal: killed"}),
		}, []HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a"), row(5, HistoryFailover, "a", "b", 3, "mysqld ended: signal: killed")}},
		{"it knows only that it lost leadership", []AuditEntry{
			opened(1, "a", 1), opened(5, "b", 3), line(9, "a", Event{Kind: EventLeft, Term: 1, Deposed: true, Why: "lost leadership of term 1"}),
		}, []HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a"), row(5, HistoryFailover, "a", "b", 3, "seen by b")}},
		{"an operator moved it", []AuditEntry{
			opened(1, "a", 1), line(4, "a", Event{Kind: EventLeft, Term: 1, Planned: true, Why: "switchover by ann@db1"}), opened(5, "b", 2),
		}, []HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a"), row(5, HistorySwitchover, "a", "b", 2, "switchover by ann@db1")}},
		{"the same node opens again", []AuditEntry{opened(1, "a", 1), opened(5, "a", 2)},
			[]HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a"), row(5, HistoryReopened, "a", "a", 2, "seen by a")}},
		{"after a recovery it is not known who was the primary", []AuditEntry{opened(1, "c", 1),
			line(4, "c", Event{Kind: EventRecovered, Why: "by ann"}), opened(5, "c", 4), opened(7, "c", 5)},
			[]HistoryRow{row(1, HistoryFirst, "", "c", 1, "seen by c"), {At: at(4), What: "recovered", Node: "c", Why: "by ann"},
				row(5, HistoryFirst, "", "c", 4, "seen by c"), row(7, HistoryReopened, "c", "c", 5, "seen by c")}},
		{"nobody has followed", []AuditEntry{opened(1, "a", 1), line(4, "a", Event{Kind: EventLeft, Term: 1, Why: "lost leadership of term 1"})},
			[]HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a"), {At: at(4), What: HistoryLost, From: "a", Term: 1, Why: "lost leadership of term 1"}}},
		{"a clock that is behind", []AuditEntry{opened(5, "a", 1), opened(1, "b", 2)},
			[]HistoryRow{row(1, HistoryFailover, "a", "b", 2, "seen by b"), row(5, HistoryFirst, "", "a", 1, "seen by a")}},
		{"the line of the primary before is missing", []AuditEntry{opened(1, "a", 1), line(2, "a", Event{Kind: EventLeft, Term: 1, Why: "mysqld ended"}),
			line(5, "a", Event{Kind: EventPrimary, Term: 3, From: "b", Why: "the agent of b is gone"})},
			[]HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a"), {At: at(5), What: HistoryFailover, From: "b", Node: "a", Term: 3, Why: "the agent of b is gone"}}},
		{"a primary that had long not heard who was before it", []AuditEntry{opened(1, "a", 1), opened(3, "b", 2), line(5, "c", Event{Kind: EventPrimary, Term: 3, From: "a"})},
			[]HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a"), row(3, HistoryFailover, "a", "b", 2, "seen by b"), {At: at(5), What: HistoryFailover, From: "b", Node: "c", Term: 3}}},
		{"others", []AuditEntry{opened(1, "a", 1), line(2, "b", Event{Kind: EventMysqld, Why: "mysqld ended"})},
			[]HistoryRow{row(1, HistoryFirst, "", "a", 1, "seen by a"), {At: at(2), What: "mysqld", Node: "b", Why: "mysqld ended"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, History(tc.lines)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
