package agent

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
)

func openAudit(t *testing.T, path, node string) *auditLog {
	t.Helper()
	a := &auditLog{}
	if err := a.open(path, node); err != nil {
		t.Fatal(err)
	}
	return a
}

func auditWhats(t *testing.T, a *auditLog) (whats []string) {
	t.Helper()
	lines, err := a.newest(100)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		whats = append(whats, l.What)
	}
	return whats
}

// TestAuditIsCopied: a node's own lines come to the others once, in the order of
// their times, and not those of the log, which all have.
func TestAuditIsCopied(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 2, 12, 0, s, 0, time.UTC) }
	pathA, pathB := filepath.Join(t.TempDir(), auditFile), filepath.Join(t.TempDir(), auditFile)
	a, b := openAudit(t, pathA, "a"), openAudit(t, pathB, "b")
	if err := a.append(cluster.AuditEntry{At: at(1), What: "fence a"}, cluster.AuditEntry{At: at(1), What: "unfence a"},
		cluster.AuditEntry{At: at(2), What: "durability all", Index: 7}); err != nil {
		t.Fatal(err)
	}
	if err := b.append(cluster.AuditEntry{At: at(3), What: "restart b"}, cluster.AuditEntry{At: at(2), What: "durability all", Index: 7}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing new
		lines, err := a.since(0)
		if err != nil || len(lines) != 2 {
			t.Fatalf("%+v, %v", lines, err)
		}
		if err := b.append(lines...); err != nil {
			t.Fatal(err)
		}
		b = openAudit(t, pathB, "b")
	}
	if d := cmp.Diff([]string{"fence a", "unfence a", "durability all", "restart b"}, auditWhats(t, b)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if lines, err := a.since(b.seqOf("a")); err != nil || len(lines) != 0 {
		t.Errorf("still to be copied: %+v, %v", lines, err)
	}
	if lines, err := b.since(0); err != nil || len(lines) != 1 || lines[0].Node != "b" {
		t.Errorf("b passes on what is not its own: %+v, %v", lines, err)
	}
	// a's data are lost and made anew: what it does from now on is new to b.
	a = openAudit(t, filepath.Join(t.TempDir(), auditFile), "a")
	if err := a.append(cluster.AuditEntry{At: at(9), What: "fence a again"}); err != nil {
		t.Fatal(err)
	}
	if lines, err := a.since(b.seqOf("a")); err != nil || len(lines) != 1 {
		t.Errorf("after it was rebuilt: %+v, %v", lines, err)
	}
	// The clock of a goes back: its numbers do not.
	if err := a.append(cluster.AuditEntry{At: at(0), What: "later"}); err != nil || a.seqOf("a") <= uint64(at(9).UnixMicro()) {
		t.Errorf("number %d, %v", a.seqOf("a"), err)
	}
}

// TestAuditOfANodeThatJoins: it has all lines of the node that it copies, and of its own
// from before it was rebuilt, each once; what comes later is new.
func TestAuditOfANodeThatJoins(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 2, 12, 0, s, 0, time.UTC) }
	fenced := cluster.AuditEntry{At: at(1), What: "fence b", Node: "b", Seq: 11}
	weight := cluster.AuditEntry{At: at(2), What: "node b: weight 7", Index: 5}
	rebuilt := cluster.AuditEntry{At: at(0), What: "rebuild node b", Index: 9} // that host's clock is behind
	restarted := cluster.AuditEntry{At: at(4), What: "restart a", Node: "a", Seq: 3}
	b := openAudit(t, filepath.Join(t.TempDir(), auditFile), "b")
	if err := b.append(weight, fenced); err != nil {
		t.Fatal(err)
	}
	of := []cluster.AuditEntry{rebuilt, fenced, weight, {At: at(3), What: "of an older quorate"}, restarted}
	if err := b.take(of); err != nil {
		t.Fatal(err)
	}
	if err := b.append(rebuilt, cluster.AuditEntry{At: at(6), What: "promote node b to full", Index: 12}); err != nil { // its log begins here
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"rebuild node b", "fence b", "node b: weight 7", "restart a", "promote node b to full"}, auditWhats(t, b)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if b.seqOf("a") != 3 || b.seqOf("b") != 11 {
		t.Errorf("a's lines are known up to %d, its own up to %d", b.seqOf("a"), b.seqOf("b"))
	}
}

// TestAuditKnowsWhatRotatedOut: what a node has copied it does not copy again after a
// restart, although the lines are gone from its files; nor what a replay brings.
func TestAuditKnowsWhatRotatedOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), auditFile)
	b := openAudit(t, path, "b")
	quiet := []cluster.AuditEntry{{What: "fence a", Node: "a", Seq: 7}, {What: "durability all", Index: 9}}
	if err := b.append(quiet...); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", auditBytesMax/3)
	for range 12 { // a file holds two of these
		if err := b.append(cluster.AuditEntry{What: long}); err != nil {
			t.Fatal(err)
		}
		b = openAudit(t, path, "b")
	}
	if got := auditWhats(t, b); len(got) > 4 || strings.Contains(strings.Join(got, ""), "fence a") {
		t.Fatalf("%d lines are there: the test has tested nothing", len(got))
	}
	before := len(auditWhats(t, b))
	if err := b.append(quiet...); err != nil {
		t.Fatal(err)
	}
	if got := len(auditWhats(t, b)); b.seqOf("a") != 7 || b.last != 9 || got != before {
		t.Errorf("a's lines are known up to %d, the log's up to %d; %d lines, were %d", b.seqOf("a"), b.last, got, before)
	}
}

// TestAuditCopyIsBounded: one answer has so many lines, the next one the rest.
func TestAuditCopyIsBounded(t *testing.T) {
	a := openAudit(t, filepath.Join(t.TempDir(), auditFile), "a")
	lines := make([]cluster.AuditEntry, auditCopyMax+1)
	for i := range lines {
		lines[i].What = "x"
	}
	if err := a.append(lines...); err != nil {
		t.Fatal(err)
	}
	first, err := a.since(0)
	if err != nil || len(first) != auditCopyMax {
		t.Fatalf("%d lines, %v", len(first), err)
	}
	if rest, err := a.since(first[len(first)-1].Seq); err != nil || len(rest) != 1 {
		t.Errorf("%d lines, %v", len(rest), err)
	}
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"node.set", `{"name":"b","weight":7}`, "node b: weight 7"},
		{"cluster.set", `{"durability":"all"}`, "durability all"},
		{"maintenance", `{"on":true,"reason":"disks"}`, "maintenance on: disks"},
		{"maintenance", `{"on":false}`, "maintenance off"},
		{"switchover", `{"max_pause_ns":2000000000,"wait_ns":0}`, "switchover to the best node"},
		{"switchover", `{"to":"b"}`, "switchover to b"},
		{"restart", `{"node":"zz","max_pause_ns":2000000000}`, "restart mysqld of zz"},
		{"restart", `{"node":"zz","in_place":true}`, "restart mysqld of zz in place"},
		{"fence", `{"node":"zz"}`, "fence node zz"},
		{"fence", `{"node":"b","reason":"its disk"}`, "fence node b: its disk"},
		{"unfence", `{"node":"zz"}`, "unfence node zz"},
		{"node.add", `{"change":{"op":"add","name":"d","kind":"full","peer":"nohost"}}`, "add full node d at nohost"},
		{"node.remove", `{"change":{"op":"remove","name":"zz"},"dry_run":true}`, "remove node zz"},
		{"log.purge", `{}`, "purge the log"},
		{"log.purge", `{"retention_size":0}`, "purge the log, but for 0B"},
		{"node.set", `x`, "node.set x"},
		{"some.other", `{}`, "some.other {}"},
	} {
		if got := describe(control.Request{Name: c.name, Args: []byte(c.args)}); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.name, c.args, got, c.want)
		}
	}
	long := describe(control.Request{Name: "fence", Args: []byte(`{"reason":"` + strings.Repeat("x", 9000) + `"}`)})
	if len(long) > auditTextBytesMax {
		t.Errorf("%d bytes", len(long))
	}
}
