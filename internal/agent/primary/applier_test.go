package primary

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/raft/consensus"
)

// TestApplierStopped: an applier that has stopped counts as stopped until it has made progress, also while it is
// started again and again.
func TestApplierStopped(t *testing.T) {
	runs := ReplicaStatus{Receives: true, Applies: true, Executed: "u:1-5"}
	with := func(f func(*ReplicaStatus)) ReplicaStatus { s := runs; f(&s); return s }
	poison := with(func(s *ReplicaStatus) { s.Applies, s.Error = false, "Duplicate entry" })
	relay := with(func(s *ReplicaStatus) { s.Receives, s.ReadError = false, "relay log" })
	comes := with(func(s *ReplicaStatus) { s.Connects, s.ReadError = true, "lost" })
	stopped := with(func(s *ReplicaStatus) { s.Receives, s.Applies = false, false })
	further := with(func(s *ReplicaStatus) { s.Executed = "u:1-6" })
	behind, none := consensus.Lag{Transactions: 3}, consensus.Lag{}
	type poll struct {
		s     ReplicaStatus
		full  string
		l     consensus.Lag
		stuck float64
		want  string
	}
	const noSpace = "mysqld's disk is full: No space left"
	for name, polls := range map[string][]poll{
		"it applies":     {{runs, "", behind, 0, ""}, {runs, "", behind, 60, ""}},
		"a poison entry": {{poison, "", behind, 1, "replication has stopped: Duplicate entry"}, {runs, "", behind, 2, "replication has stopped: Duplicate entry"}, {poison, "", behind, 3, "replication has stopped: Duplicate entry"}},
		"it was helped":  {{poison, "", behind, 1, "replication has stopped: Duplicate entry"}, {further, "", behind, 0, ""}},
		"nothing to do":  {{stopped, "", none, 0, "replication is not running"}, {runs, "", none, 0, ""}},
		"the relay log":  {{relay, "", behind, 0, "replication cannot read: relay log"}},
		"it reconnects":  {{comes, "", behind, 0.5, ""}, {comes, "", behind, 2, "replication cannot read: lost"}, {further, "", behind, 0, ""}},
		"a full disk":    {{runs, noSpace, behind, 0, ""}, {runs, noSpace, behind, 2.5, noSpace}, {runs, noSpace, behind, 60, noSpace}, {further, noSpace, behind, 0, ""}},
	} {
		var a Applier
		for i, p := range polls {
			a.rate.lag, a.rate.busy = p.l, time.Duration(p.stuck*float64(time.Second))
			if got := a.Stopped(p.s, p.full); got != p.want {
				t.Errorf("%s, poll %d: %q, want %q", name, i, got, p.want)
			}
		}
	}
}

// TestNotStuckBeforeItsMarks: a mysqld applies what was committed before its agent started. Nobody has counted the bytes of
// that, and it is not stuck.
func TestNotStuckBeforeItsMarks(t *testing.T) {
	var r applyRate
	now := time.Unix(1000, 0)
	for lacks := int64(1000); lacks > 0; lacks -= 10 {
		now = now.Add(WatchInterval)
		r.observe(now, consensus.Lag{AppliedBytes: 1, Transactions: lacks, Seconds: 60})
		if r.stuck() > 0 {
			t.Fatalf("stuck for %.1f s, and it lacks %d", r.stuck(), lacks)
		}
	}
	for range 4 {
		now = now.Add(WatchInterval)
		r.observe(now, consensus.Lag{AppliedBytes: 1, Transactions: 10, Seconds: 60})
	}
	if r.stuck() != (4 * WatchInterval).Seconds() {
		t.Errorf("stuck for %.1f s after four polls without progress", r.stuck())
	}
}

// TestApplyRate: there is one poll each half second. Given are the MB that are applied in between, and the lag in MB
// and seconds.
func TestApplyRate(t *testing.T) {
	type poll struct {
		applied float64
		lag     float64
	}
	many := func(n int, p poll) []poll { return slices.Repeat([]poll{p}, n) }
	for name, c := range map[string]struct {
		polls []poll
		want  float64 // MB a second
	}{
		"never behind":       {many(20, poll{5, 0.2}), 0},
		"always behind":      {many(20, poll{5, 3}), 10},
		"from slow to fast":  {append(many(20, poll{1, 3}), many(20, poll{5, 3})...), 10},
		"from fast to slow":  {append(many(20, poll{5, 3}), many(20, poll{1, 3})...), 2},
		"blocked":            {append(many(20, poll{5, 3}), many(100, poll{0, 9})...), 10},
		"large transactions": {slices.Repeat(append(many(7, poll{0, 5}), poll{40, 5}), 20), 10}, // 40 MB in four seconds each
		"idle after it":      {append(many(20, poll{5, 3}), many(20, poll{0.1, 0})...), 10},
		"faster than ever":   {append(many(20, poll{5, 3}), many(4, poll{9, 0})...), 18},
		"only one is behind": {append(many(20, poll{5, 0.3}), poll{5, 1.5}), 0},
		"blocked, then fast": {append(append(many(20, poll{5, 3}), many(100, poll{0, 9})...), many(20, poll{5, 3})...), 10},
	} {
		var r applyRate
		now, l, got := time.Unix(1000, 0), consensus.Lag{AppliedBytes: 1}, 0.0
		r.observe(now, l)
		for _, p := range c.polls {
			now = now.Add(WatchInterval)
			l.AppliedBytes += uint64(p.applied * 1e6)
			l.Seconds = p.lag
			got = r.observe(now, l)
		}
		if math.Abs(got/1e6-c.want) > 0.02*c.want {
			t.Errorf("%s: %.2f MB/s, want %.2f", name, got/1e6, c.want)
		}
	}
}
