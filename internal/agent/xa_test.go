package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// TestXAWatch: an XA transaction is named after a minute, and rolled back only once it
// is too old and this agent has known it for as long: the clock of the server that
// prepared it may be wrong.
func TestXAWatch(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	xa := func(gtrid string, index uint64, at time.Duration) replay.PreparedXA {
		return replay.PreparedXA{XID: binlog.XID{GTRID: gtrid, BQUAL: "b"}, Index: index, At: start.Add(at)}
	}
	young, old, skewed := xa("young", 9, 0), xa("o\x00ld", 5, -2*time.Hour), xa("old", 5, 2*time.Hour)
	const named = "XA transaction X'6f006c64','b' is prepared since 2026-01-02 01:04:05 UTC (2h1m): no log can be purged from entry 5 on"
	for _, c := range []struct {
		name    string
		open    []replay.PreparedXA
		after   time.Duration // since they were seen first
		ageMax  time.Duration
		why     string
		overdue []replay.PreparedXA
	}{
		{"none", nil, time.Hour, time.Hour, "", nil},
		{"young", []replay.PreparedXA{young}, 59 * time.Second, time.Hour, "", nil},
		{"a minute", []replay.PreparedXA{young}, time.Minute, time.Hour,
			"XA transaction 'young','b' is prepared since 2026-01-02 03:04:05 UTC (1m): no log can be purged from entry 9 on; the primary rolls it back after 1h", nil},
		{"just seen", []replay.PreparedXA{old}, 59 * time.Second, time.Hour,
			"XA transaction X'6f006c64','b' is prepared since 2026-01-02 01:04:05 UTC (2h59s): no log can be purged from entry 5 on; the primary rolls it back after 1h", nil},
		{"old by its clock", []replay.PreparedXA{old, young}, time.Minute, time.Hour,
			named + ", 1 more are prepared; the primary rolls it back after 1h", nil},
		{"just known for as long", []replay.PreparedXA{old, young}, time.Hour, time.Hour,
			"XA transaction X'6f006c64','b' is prepared since 2026-01-02 01:04:05 UTC (3h): no log can be purged from entry 5 on, 1 more are prepared; the primary rolls it back after 1h",
			[]replay.PreparedXA{old}},
		{"both", []replay.PreparedXA{old, young}, 2 * time.Hour, time.Hour,
			"XA transaction X'6f006c64','b' is prepared since 2026-01-02 01:04:05 UTC (4h): no log can be purged from entry 5 on, 1 more are prepared; the primary rolls it back after 1h",
			[]replay.PreparedXA{old, young}},
		{"never", []replay.PreparedXA{old}, time.Minute, 0, named, nil},
		{"from the future", []replay.PreparedXA{skewed}, time.Hour, time.Hour, "", nil},
	} {
		var w xaWatch
		w.note(c.open, start)
		now := start.Add(c.after)
		w.note(c.open, now)
		if got := w.why(now, c.ageMax); got != c.why {
			t.Errorf("%s: %q, want %q", c.name, got, c.why)
		}
		if diff := cmp.Diff(c.overdue, w.overdue(now, c.ageMax), cmp.AllowUnexported(replay.PreparedXA{})); diff != "" {
			t.Errorf("%s: overdue (-want +got):\n%s", c.name, diff)
		}
	}
}
