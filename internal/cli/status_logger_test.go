package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// TestStatusOfLogger: a node without mysqld shows no figures of one.
func TestStatusOfLogger(t *testing.T) {
	t.Parallel()
	row := statusRow(cluster.NodeStatus{
		Name: "c", Kind: cluster.KindLogger, Reachable: true, Role: cluster.RoleLogger, Term: 7,
		LogFirst: 1, LogLast: 120, LogBytes: 96 << 10, LogCommit: 119, Mysqld: cluster.MysqldNone,
	}, nil)
	if d := cmp.Diff([]string{"-", "120", "96KiB", "-", "-"}, row[len(row)-5:]); d != "" {
		t.Errorf("weight to mysqld (-want +got):\n%s", d)
	}
	if text := strings.Join(row, " "); !strings.HasPrefix(text, "c logger logger") {
		t.Errorf("row %q", text)
	}
}

// TestStatusOfUnknownLag: a figure that nobody can know is not shown.
func TestStatusOfUnknownLag(t *testing.T) {
	t.Parallel()
	n := cluster.NodeStatus{Name: "c", Kind: cluster.KindFull, Reachable: true, Role: cluster.RoleReplica, Mysqld: cluster.MysqldRunning}
	for unknown, want := range map[bool]string{false: "0.0s", true: "unknown"} {
		n.LagUnknown = unknown
		if row := statusRow(n, nil); row[6] != want {
			t.Errorf("lag %q, want %q", row[6], want)
		}
		if colour := nodeColour(n); (colour == "0") == unknown {
			t.Errorf("unknown %t: colour %s", unknown, colour)
		}
	}
}
