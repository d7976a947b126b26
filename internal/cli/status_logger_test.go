package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestStatusOfLogger: a node without a mysqld shows no figures of a mysqld.
func TestStatusOfLogger(t *testing.T) {
	t.Parallel()
	row := statusRow(status.Node{
		Name: "c", Kind: cluster.KindLogger, Reachable: true, Role: status.RoleLogger, Term: 7,
		LogFirst: 1, LogLast: 120, LogBytes: 96 << 10, LogCommit: 119, Mysqld: status.MysqldNone,
	}, nil)
	if d := cmp.Diff([]string{"-", "120", "96KiB", "-", "-"}, row[len(row)-5:]); d != "" {
		t.Errorf("weight to mysqld (-want +got):\n%s", d)
	}
	if text := strings.Join(row, " "); !strings.HasPrefix(text, "c logger logger") {
		t.Errorf("row %q", text)
	}
}

// TestStatusOfLag: a lag that nobody can know is shown as unknown, and a primary has none.
func TestStatusOfLag(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*status.Node){
		"0.0s":          func(*status.Node) {},
		"unknown":       func(n *status.Node) { n.LagUnknown = true },
		"0.0s, stopped": func(n *status.Node) { n.ApplierStopped = "error 1146" },
		"-":             func(n *status.Node) { n.Role = status.RolePrimary },
	} {
		n := status.Node{Name: "c", Kind: cluster.KindFull, Reachable: true, Role: status.RoleReplica, Mysqld: status.MysqldRunning, LogState: status.LogOK}
		change(&n)
		if row := statusRow(n, nil); row[6] != want {
			t.Errorf("lag %q, want %q", row[6], want)
		}
		if colour := nodeColour(n); (colour == "33") != n.LagUnknown {
			t.Errorf("unknown %t: colour %s", n.LagUnknown, colour)
		}
	}
}

// TestStatusOfAStoppedReplica: a replica whose mysqld is stopped also has the role demoting. The text must not say
// that it was demoted.
func TestStatusOfAStoppedReplica(t *testing.T) {
	t.Parallel()
	n := status.Node{Name: "c", Kind: cluster.KindFull, Role: status.RoleDemoting, AgeMs: 5000}
	want := []string{"last heard 5s ago, as its mysqld was being stopped or closed"}
	if d := cmp.Diff(want, status.Cluster{Self: "a"}.AboutNode(n)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestStatusOfANodeToBeRebuilt: the status says that the node is to be rebuilt, and not only its former role.
func TestStatusOfANodeToBeRebuilt(t *testing.T) {
	t.Parallel()
	n := status.Node{Name: "b", Kind: cluster.KindLearner, Role: status.RoleReplica, AgeMs: 86000, Leaving: true}
	want := []string{"last heard 1m26s ago, as replica", "to be rebuilt: that begins once its agent runs"}
	if d := cmp.Diff(want, status.Cluster{Self: "a"}.AboutNode(n)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	unheard := status.Node{Name: "b", Kind: cluster.KindLearner, Role: status.RoleUnknown, Leaving: true}
	want[0] = "not heard since this agent started"
	if d := cmp.Diff(want, status.Cluster{Self: "a"}.AboutNode(unheard)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	unheard.Refusal = &status.Refusal{By: "a", Of: "b", Why: "it is another"} // its agent runs
	if d := cmp.Diff([]string{"it runs, and a refuses b: it is another", "to be rebuilt"}, status.Cluster{Self: "a"}.AboutNode(unheard)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	n.Reachable = true
	if d := cmp.Diff([]string{"to be rebuilt"}, status.Cluster{Self: "a"}.AboutNode(n)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
