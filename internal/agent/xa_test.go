package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/seglog"
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

// TestXAWatchBeginsAtTheMark: the log is read once mysqld has seen an XA transaction,
// from the durable mark on, and from the beginning for another mysqld.
func TestXAWatchBeginsAtTheMark(t *testing.T) {
	var w xaWatch
	if w.follow("a", 7) != nil {
		t.Error("the log is read although nobody uses XA")
	}
	w.used.Store(true)
	first := w.follow("a", 7)
	if first == nil || w.follow("a", 20) != first {
		t.Error("what was read is forgotten")
	}
	if diff := cmp.Diff(replay.NewPrepared(8), first, cmp.AllowUnexported(replay.Prepared{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if w.follow("b", 0) == first {
		t.Error("another mysqld goes on where the first one was")
	}
}

// TestXAWatchEndsWithItsContext: the look through a long log ends when the agent is to
// stop, and goes on there the next time.
func TestXAWatchEndsWithItsContext(t *testing.T) {
	var w xaWatch
	w.used.Store(true)
	w.follow("a", 0)
	log := &countingLog{}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := w.read(stopped, log, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if err := w.read(t.Context(), log, 5); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3, 4, 5}, log.asked); diff != "" {
		t.Errorf("what was read (-want +got):\n%s", diff)
	}
}

// countingLog is a log of entries without transactions, one at a time.
type countingLog struct {
	replay.CommittedLog
	asked []uint64
}

func (l *countingLog) FirstIndex() uint64 { return 1 }

func (l *countingLog) ReadCommitted(index, _ uint64) ([]seglog.Entry, bool, error) {
	l.asked = append(l.asked, index)
	return []seglog.Entry{{Index: index, Type: 1}}, true, nil
}
