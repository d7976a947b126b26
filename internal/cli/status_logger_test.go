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

// TestStatusOfLag: a figure that nobody can know is not shown, nor that of a primary.
func TestStatusOfLag(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*cluster.NodeStatus){
		"0.0s":          func(*cluster.NodeStatus) {},
		"unknown":       func(n *cluster.NodeStatus) { n.LagUnknown = true },
		"0.0s, stopped": func(n *cluster.NodeStatus) { n.ApplierStopped = "error 1146" },
		"-":             func(n *cluster.NodeStatus) { n.Role = cluster.RolePrimary },
	} {
		n := cluster.NodeStatus{Name: "c", Kind: cluster.KindFull, Reachable: true, Role: cluster.RoleReplica, Mysqld: cluster.MysqldRunning, LogState: cluster.LogOK}
		change(&n)
		if row := statusRow(n, nil); row[6] != want {
			t.Errorf("lag %q, want %q", row[6], want)
		}
		if colour := nodeColour(n); (colour == "33") != n.LagUnknown {
			t.Errorf("unknown %t: colour %s", n.LagUnknown, colour)
		}
	}
}

// TestStatusOfAStoppedReplica: it was not demoted.
func TestStatusOfAStoppedReplica(t *testing.T) {
	t.Parallel()
	n := cluster.NodeStatus{Name: "c", Kind: cluster.KindFull, Role: cluster.RoleDemoting, AgeMs: 5000}
	want := []string{"last heard 5s ago, as its mysqld was being stopped or closed"}
	if d := cmp.Diff(want, statusReasons(cluster.Status{Self: "a"}, n)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
