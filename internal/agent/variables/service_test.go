package variables

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

// TestNotesOfVariables: the answer says which values do not hold at once.
func TestNotesOfVariables(t *testing.T) {
	want := []string{
		"mysqld shows sql_mode as ANSI",
		"innodb_read_io_threads: a running mysqld does not take it; restart each, the primary last: quorate restart-mysqld NODE",
	}
	got := notesOf(cluster.VariablesTried{Restart: []string{"innodb_read_io_threads"}, Made: map[string]string{"sql_mode": "ANSI"}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestApplierNotes: values that an applier has until it starts again are named when they are set, and when they are
// taken back.
func TestApplierNotes(t *testing.T) {
	const takes = ": a replica takes it when its replication starts again; restart the replicas: quorate restart-mysqld NODE"
	for _, c := range []struct {
		change cluster.VariablesChange
		want   []string
	}{
		{cluster.VariablesChange{Set: map[string]string{"slave_parallel_workers": "8", "max_connections": "5"}}, []string{"slave_parallel_workers" + takes}},
		{cluster.VariablesChange{Set: map[string]string{"div_precision_increment": "10"}, Unset: []string{"block_encryption_mode", "sql_mode"}},
			[]string{"div_precision_increment, block_encryption_mode" + takes}},
		{cluster.VariablesChange{Unset: []string{"default_week_format"}}, []string{"default_week_format" + takes}},
		{cluster.VariablesChange{Set: map[string]string{"sql_mode": "ansi"}}, nil},
	} {
		if diff := cmp.Diff(c.want, applierNotes(c.change)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.change, diff)
		}
	}
}

// TestRefusalNamesItsNodeOnce: an operator reads another node's refusal as that node says it.
func TestRefusalNamesItsNodeOnce(t *testing.T) {
	refused := control.Errorf(control.CodeInvalid, "mysqld 9.7.4 of node c refuses max_connections=0")
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("ask node c: %w", refused), "mysqld 9.7.4 of node c refuses max_connections=0"},
		{fmt.Errorf("ask node c: %w", control.Errorf(control.CodeFailed, "no mysqld")), "ask node c: no mysqld"},
		{errors.New("ask node c: i/o timeout"), "ask node c: i/o timeout"},
	} {
		if got := plain(tc.err); got.Error() != tc.want {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
	if plain(nil) != nil {
		t.Error("no error becomes one")
	}
}
