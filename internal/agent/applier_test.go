package agent

import (
	"testing"

	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/mysqld"
)

// TestApplierWatch: what has stopped counts as stopped until it has got somewhere, also
// while it is started again and again.
func TestApplierWatch(t *testing.T) {
	runs := mysqld.ReplicaStatus{Configured: true, IORunning: true, SQLRunning: true, Executed: "u:1-5"}
	with := func(f func(*mysqld.ReplicaStatus)) mysqld.ReplicaStatus { s := runs; f(&s); return s }
	poison := with(func(s *mysqld.ReplicaStatus) { s.SQLRunning, s.SQLError = false, "Duplicate entry" })
	relay := with(func(s *mysqld.ReplicaStatus) { s.IORunning, s.IOError = false, "relay log" })
	comes := with(func(s *mysqld.ReplicaStatus) { s.IORunning, s.IOConnecting, s.IOError = false, true, "lost" })
	stopped := with(func(s *mysqld.ReplicaStatus) { s.IORunning, s.SQLRunning = false, false })
	further := with(func(s *mysqld.ReplicaStatus) { s.Executed = "u:1-6" })
	behind, none := consensus.Lag{Transactions: 3}, consensus.Lag{}
	type poll struct {
		s     mysqld.ReplicaStatus
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
		var w applierWatch
		for i, p := range polls {
			if got := w.observe(p.s, p.full, p.l, p.stuck); got != p.want {
				t.Errorf("%s, poll %d: %q, want %q", name, i, got, p.want)
			}
		}
	}
}
