package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestStatusTellsTheQuorum: above the table the status says how many failures are survived, or, without
// a primary, which agents to start.
func TestStatusTellsTheQuorum(t *testing.T) {
	t.Parallel()
	st := status.Cluster{
		Cluster: "orders", Self: "a", Primary: "a",
		Quorum:   &status.Quorum{Voters: []string{"a", "b", "c"}, Running: []string{"a", "b"}, Needed: 2, Away: []string{"c is not heard of"}},
		Failover: &status.Failover{From: "a", To: "b", ProcessSeconds: 0.3, Until: [][]string{{"a"}, {"c"}}},
	}
	head := func(colour bool) string {
		text, _, _ := strings.Cut(statusTable(st, colour), "\n\n")
		return text
	}
	want := `cluster orders, primary a, as node a sees it
survives no further failure: 2 of 3 voters run, c is not heard of
if a's mysqld dies, b takes over in ≈ 0.3 s; if a's agent or host dies, no writes until a or c is back`
	if d := cmp.Diff(want, head(false)); d != "" {
		t.Errorf("with a primary (-want +got):\n%s", d)
	}
	st.Primary, st.Failover = "", nil
	st.NoPrimarySince, st.NoPrimarySeconds = time.Date(2026, 11, 22, 12, 30, 54, 0, time.UTC), 50.4
	st.Quorum = &status.Quorum{Voters: []string{"a", "b", "c"}, Running: []string{"a"}, Needed: 2, Survives: -1,
		Away: []string{"b and c are not heard of"}, Start: [][]string{{"b"}, {"c"}}}
	want = `cluster orders, NO PRIMARY since 2026-11-22 12:30:54 UTC (50s), as node a sees it
` + strings.Join(st.Quorum.NoPrimary("a"), "\n")
	if d := cmp.Diff(want, head(false)); d != "" {
		t.Errorf("without (-want +got):\n%s", d)
	}
	if !strings.HasPrefix(head(true), "\x1b["+ansiRed+"mcluster orders, NO PRIMARY") {
		t.Errorf("it is not red: %q", head(true))
	}
}

// TestStatusOfANodeOutside: a node that takes no part in the cluster says why. It says
// nothing of a quorum, which it cannot judge.
func TestStatusOfANodeOutside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role            status.Role
		reason, primary string
		want            string
	}{
		{status.RoleRemoved, "it was\nremoved", "", "cluster orders, node a: this node is not in the cluster: it was removed\n"},
		{status.RoleJoining, "", "", "cluster orders, node a: this node joins the cluster\n"},
		{status.RoleJoining, "log, 3 s left", "b", "cluster orders, primary b, as node a sees it\nthis node joins the cluster: log, 3 s left\n"},
		{status.RoleForming, "node b has not answered", "",
			"cluster orders, node a: the cluster forms, all its initial members must start: node b has not answered\n"},
	} {
		st := status.Cluster{Cluster: "orders", Self: "a", Primary: c.primary, Nodes: []status.Node{
			{ID: 1, Name: "a", Kind: cluster.KindFull, Role: c.role, Reason: c.reason, Reachable: true, Weight: 5}, {ID: 2, Name: "b", Kind: cluster.KindFull},
		}}
		if c.primary == "" { // an older agent shows a quorum all the same
			st.Quorum = &status.Quorum{Voters: []string{"a", "b", "c"}, Needed: 2, Survives: -1, Start: [][]string{{"b", "c"}}}
		}
		head, table, _ := strings.Cut(statusTable(st, false), "\nNODE")
		if d := cmp.Diff(c.want, head); d != "" || strings.Contains(table, "\n\n") {
			t.Errorf("%s (-want +got):\n%s\nthe reason is said once: %s", c.role, d, table)
		}
		if text := statusTable(st, true); c.primary == "" && !strings.HasPrefix(text, "\x1b["+nodeColour(st.Nodes[0])+"mcluster orders, node a: ") {
			t.Errorf("%s: no colour: %q", c.role, text)
		}
	}
}

// TestStatusOfARefusedNode: other nodes refuse a node, so they run. The status of that node says so, and
// says nothing of starting them, nor of a lost majority.
func TestStatusOfARefusedNode(t *testing.T) {
	t.Parallel()
	refusal := &status.Refusal{By: "a", Of: "b", Why: "node b comes with\nanother data directory", Data: true}
	twice := *refusal
	twice.By = "c"
	st := status.Cluster{Cluster: "orders", Self: "b", Nodes: []status.Node{
		{ID: 1, Name: "a", Kind: cluster.KindFull, Refusal: refusal}, {ID: 3, Name: "c", Kind: cluster.KindFull, Refusal: &twice},
		{ID: 2, Name: "b", Kind: cluster.KindFull, Role: status.RoleUnverified, Reachable: true, Reason: "no leader: waiting for a majority"},
	}, Quorum: &status.Quorum{Voters: []string{"a", "b", "c"}, Running: []string{"b"}, Needed: 2, Survives: -1, Start: [][]string{{"a"}, {"c"}}}}
	want := `cluster orders, node b: a and c run, and refuse this node: node b comes with another data directory
Look at ` + "`quorate status`" + ` on a or c: there may be a primary. If node b has the wrong data_dir, give it the right one; else "quorate node rebuild b" there rebuilds it.

NODE  KIND  ROLE        WEIGHT  LOG  SIZE  LAG   MYSQLD
a     full  refused     0       -    -     -     -
c     full  refused     0       -    -     -     -
b     full  unverified  0       0    0B    0.0s

a: it runs, and a refuses b: node b comes with another data directory
c: it runs, and c refuses b: node b comes with another data directory
b: no leader: waiting for a majority
`
	if d := cmp.Diff(want, statusTable(st, false)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := noPrimaryText(st); got != "other nodes refuse this node: a, c" {
		t.Errorf("the command ends with %q", got)
	}
	st.Nodes[1].Refusal = nil
	if text := statusTable(st, true); !strings.HasPrefix(text, "\x1b["+ansiRed+"mcluster orders, node b: a runs, and refuses this node: ") {
		t.Errorf("one refuses it: %q", text)
	}
	st.Primary = "c"
	if head, _, _ := strings.Cut(statusTable(st, false), "\n"); head != "cluster orders, primary c, as node b sees it" {
		t.Errorf("with a primary: %s", head)
	}
	heard := st.Nodes[0]
	heard.Role = status.RoleReplica
	if row := statusRow(heard, st.Nodes); row[2] != "refused" {
		t.Errorf("one that was heard before: %q", row)
	}
	for by, want := range map[string]string{
		"b": "a: it runs, and b refuses a: node a is another", "": "a: another node is at its address: node a is another",
	} {
		st.Primary, st.Nodes[0].Refusal = "", &status.Refusal{By: by, Of: "a", Why: "node a is another"}
		if text := statusTable(st, false); !strings.Contains(text, want) || !strings.Contains(text, "NO PRIMARY") {
			t.Errorf("by %q:\n%s", by, text)
		}
	}
}

// TestStatusOfAWrongKey: a wrong node.key does not concern the node's data. Both sides say what helps, and nothing of
// a rebuild.
func TestStatusOfAWrongKey(t *testing.T) {
	t.Parallel()
	refusal := &status.Refusal{By: "b", Of: "a", Why: "the node does not know this node's key q1:x", Key: "q1:x"}
	st := status.Cluster{Cluster: "orders", Self: "a", Nodes: []status.Node{
		{ID: 1, Name: "a", Kind: cluster.KindFull, Role: status.RoleUnverified, Reachable: true}, {ID: 2, Name: "b", Kind: cluster.KindFull, Refusal: refusal},
	}}
	const remedy = `ut the right node.key back on a, or, if its key is right, run "quorate node set a --key q1:x" on the host of the node that leads`
	text := statusTable(st, false)
	if line := strings.Split(text, "\n")[1]; line != "Look at `quorate status` on b: there may be a primary. P"+remedy+"." || strings.Contains(text, "rebuild") {
		t.Errorf("on the node:\n%s", text)
	}
	// A refusal without a key, or without a reason, hides none with a key, and advises no rebuild.
	st.Nodes = append(slices.Clone(st.Nodes[:1]), status.Node{ID: 3, Name: "c", Kind: cluster.KindFull, Refusal: &status.Refusal{By: "c", Of: "a"}}, st.Nodes[1])
	if text := statusTable(st, false); !strings.Contains(text, "c and b run, and refuse this node: "+refusal.Why) || !strings.Contains(text, "P"+remedy) || strings.Contains(text, "rebuild") {
		t.Errorf("another refuses it, too:\n%s", text)
	}
	st.Nodes = st.Nodes[:2]
	if text := statusTable(st, false); !strings.Contains(text, "c runs, and refuses this node: it does not say why\n") || strings.Contains(text, "rebuild") {
		t.Errorf("no reason:\n%s", text)
	}
	st.Nodes[1] = status.Node{ID: 2, Name: "b", Kind: cluster.KindFull}
	st.Self, st.Primary, st.Nodes[0].Refusal, st.Nodes[0].Reachable, st.Nodes[1].Refusal = "b", "b", refusal, false, nil
	// Here the key may be that of any process at node a's address, so no command names it.
	const looked = `. Put the right node.key back on a, or, if "quorate key show" on its host prints q1:x, run "quorate node set a --key KEY" with that key on the host of the node that leads`
	if text = statusTable(st, false); !strings.Contains(text, "a: it runs, and b refuses a: "+refusal.Why+looked) || strings.Contains(text, "rebuild") {
		t.Errorf("on the others:\n%s", text)
	}
}

// TestStatusOfAnUnreachedNode: the status names both addresses, on the leader and on the node. The node
// takes none of its peers to be down.
func TestStatusOfAnUnreachedNode(t *testing.T) {
	t.Parallel()
	d := cluster.Member{Name: "d", Kind: cluster.KindLearner, Peer: "d:7500"}
	n := status.Node{ID: 4, Name: "d", Kind: cluster.KindLearner, Role: status.RoleUnverified, AgeMs: 100,
		Unreached: d.UnreachedBy("c", "d:7400", "connection refused")}
	st := status.Cluster{Cluster: "orders", Self: "c", Primary: "c", Nodes: []status.Node{
		{ID: 3, Name: "c", Kind: cluster.KindFull, Role: status.RolePrimary, Reachable: true}, n}}
	want := "d: c cannot reach it at d:7500 (connection refused); it says that it listens on d:7400: \"quorate node set d --peer d:7400\"\n"
	if text := statusTable(st, false); !strings.Contains(text, want) || strings.Contains(text, "last heard") {
		t.Errorf("on the leader:\n%s", text)
	}
	n.Reachable, n.Unreached = true, d.UnreachedByAll("d:7400")
	st = status.Cluster{Cluster: "orders", Self: "d", Nodes: []status.Node{n},
		Quorum: &status.Quorum{Voters: []string{"a", "c"}, Needed: 2, Survives: -1, Start: [][]string{{"a", "c"}}}}
	head := "cluster orders, node d: the other nodes look for this node at d:7500, and it listens on d:7400; on one of them: \"quorate node set d --peer d:7400\"\n" +
		"There may be a primary: look at `quorate status` on another node.\n"
	if text := statusTable(st, false); !strings.HasPrefix(text, head) || strings.Contains(text, "NO PRIMARY") {
		t.Errorf("on the node:\n%s", text)
	}
	if got := noPrimaryText(st); got != "the other nodes do not reach this node" {
		t.Errorf("the command ends with %q", got)
	}
	st.Nodes[0].Role = status.RoleJoining
	if text := statusTable(st, false); !strings.Contains(text, "d: the other nodes look for this node at d:7500") {
		t.Errorf("while it joins:\n%s", text)
	}
}
