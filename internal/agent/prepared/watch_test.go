package prepared

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// TestWatch: an XA transaction is named after a minute. It is rolled back only if it is too old, and if this agent
// has known it for as long: the clock of the server that prepared it may be wrong.
func TestWatch(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	xa := func(gtrid string, index uint64, at time.Duration) replay.PreparedXA {
		return replay.PreparedXA{XID: binlog.XID{GTRID: gtrid, BQUAL: "b"}, Index: index, At: start.Add(at)}
	}
	young, old, skewed := xa("young", 9, 0), xa("o\x00ld", 5, -2*time.Hour), xa("old", 5, 2*time.Hour)
	const named = "XA transaction X'6f006c64','b' is prepared since 2026-01-02 01:04:05 UTC (2h1m): no log can be purged from entry 5 on"
	for _, c := range []struct {
		name    string
		open    []replay.PreparedXA
		after   time.Duration // since the transactions were seen first
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
		w := New(Config{AgeMax: c.ageMax})
		w.note(c.open, start)
		now := start.Add(c.after)
		w.note(c.open, now)
		if got := w.Why(now); got != c.why {
			t.Errorf("%s: %q, want %q", c.name, got, c.why)
		}
		if diff := cmp.Diff(c.overdue, w.allOverdue(now), cmp.AllowUnexported(replay.PreparedXA{})); diff != "" {
			t.Errorf("%s: overdue (-want +got):\n%s", c.name, diff)
		}
	}
}

// server is a primary's mysqld that records what it was asked to roll back, and fails if it is told to.
type server struct {
	asked []string
	err   error
}

func (s *server) RollbackXA(_ context.Context, gtrid, bqual string) error {
	s.asked = append(s.asked, gtrid+"/"+bqual)
	return s.err
}

// TestLook: an overdue transaction is rolled back only on a primary whose writes are open. Each rollback has a line
// in the audit log, and a failure is named until it is over.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serving, noted := true, []string(nil)
		w := New(Config{AgeMax: time.Hour, Serving: func() bool { return serving }, Note: func(s string) { noted = append(noted, s) }, Logger: slog.New(slog.DiscardHandler)})
		open := []replay.PreparedXA{{XID: binlog.XID{GTRID: "g", BQUAL: "b"}, Index: 5, At: time.Now()}}
		s := &server{}
		w.Look(t.Context(), s, open)
		time.Sleep(2 * time.Hour)
		serving = false
		w.Look(t.Context(), s, open)
		if len(s.asked) > 0 {
			t.Errorf("asked to roll back %q", s.asked)
		}
		serving, s.err = true, errors.New("lock wait timeout")
		w.Look(t.Context(), s, open)
		if why := w.Why(time.Now()); !strings.HasSuffix(why, "it cannot be rolled back: lock wait timeout") || len(noted) > 0 {
			t.Errorf("it failed: %q, %q", why, noted)
		}
		s.err = mysqld.ErrNoXA
		w.Look(t.Context(), s, open)
		if why := w.Why(time.Now()); strings.Contains(why, "cannot") || len(noted) > 0 {
			t.Errorf("it has just ended: %q, %q", why, noted)
		}
		s.err = nil
		w.Look(t.Context(), s, open)
		if d := cmp.Diff([]string{"g/b", "g/b", "g/b"}, s.asked); d != "" || len(noted) != 1 {
			t.Errorf("asked to roll back (-want +got):\n%s\nnoted %q", d, noted)
		}
	})
}
