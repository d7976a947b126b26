package variables

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// TestNotesOfVariables: the answer says which values do not hold at once.
func TestNotesOfVariables(t *testing.T) {
	set := map[string]string{"slave_parallel_workers": "8", "max_connections": "5", "innodb_read_io_threads": "8", "sql_mode": "ansi"}
	want := []string{
		"mysqld shows sql_mode as ANSI",
		"innodb_read_io_threads: a running mysqld does not take it; restart each, the primary last: quorate restart-mysqld NODE",
		"slave_parallel_workers: a replica takes it when its replication starts again; restart the replicas: quorate restart-mysqld NODE",
	}
	got := notesOf(set, cluster.VariablesTried{Restart: []string{"innodb_read_io_threads"}, Made: map[string]string{"sql_mode": "ANSI"}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
