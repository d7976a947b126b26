package history

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
)

func openLog(t *testing.T, fs vfs.FS, node string) *Log {
	t.Helper()
	l := NewLog(fs, ".", AuditFile, node)
	if err := l.Open(); err != nil {
		t.Fatal(err)
	}
	return l
}

func auditWhats(t *testing.T, a *Log) (whats []string) {
	t.Helper()
	lines, err := a.Newest(100)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		whats = append(whats, l.What)
	}
	return whats
}

// TestAuditIsCopied: a node's own lines come to the others once, in the order of their times. Lines of log entries
// are not copied: all nodes have them.
func TestAuditIsCopied(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 2, 12, 0, s, 0, time.UTC) }
	diskB := vfs.NewMem()
	a, b := openLog(t, vfs.NewMem(), "a"), openLog(t, diskB, "b")
	if err := a.Append(cluster.AuditEntry{At: at(1), What: "fence a"}, cluster.AuditEntry{At: at(1), What: "unfence a"},
		cluster.AuditEntry{At: at(2), What: "durability all", Index: 7}); err != nil {
		t.Fatal(err)
	}
	if err := b.Append(cluster.AuditEntry{At: at(3), What: "restart b"}, cluster.AuditEntry{At: at(2), What: "durability all", Index: 7}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing new
		lines, err := a.Since(0)
		if err != nil || len(lines) != 2 {
			t.Fatalf("%+v, %v", lines, err)
		}
		if err := b.Append(lines...); err != nil {
			t.Fatal(err)
		}
		b = openLog(t, diskB, "b")
	}
	if d := cmp.Diff([]string{"fence a", "unfence a", "durability all", "restart b"}, auditWhats(t, b)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if lines, err := a.Since(b.Seq("a")); err != nil || len(lines) != 0 {
		t.Errorf("still to be copied: %+v, %v", lines, err)
	}
	if lines, err := b.Since(0); err != nil || len(lines) != 1 || lines[0].Node != "b" {
		t.Errorf("b passes on what is not its own: %+v, %v", lines, err)
	}
	// a's data are lost, and a is rebuilt: what it does from now on is new to b.
	a = openLog(t, vfs.NewMem(), "a")
	if err := a.Append(cluster.AuditEntry{At: at(9), What: "fence a again"}); err != nil {
		t.Fatal(err)
	}
	if lines, err := a.Since(b.Seq("a")); err != nil || len(lines) != 1 {
		t.Errorf("after it was rebuilt: %+v, %v", lines, err)
	}
	// The clock of a goes back: its numbers do not.
	if err := a.Append(cluster.AuditEntry{At: at(0), What: "later"}); err != nil || a.Seq("a") <= uint64(at(9).UnixMicro()) {
		t.Errorf("number %d, %v", a.Seq("a"), err)
	}
}

// TestAuditOfANodeThatJoins: it has all lines of the node that it copies, and its own lines from before it was
// rebuilt, each once; what comes later is new.
func TestAuditOfANodeThatJoins(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 2, 12, 0, s, 0, time.UTC) }
	fenced := cluster.AuditEntry{At: at(1), What: "fence b", Node: "b", Seq: 11}
	weight := cluster.AuditEntry{At: at(2), What: "node b: weight 7", Index: 5}
	rebuilt := cluster.AuditEntry{At: at(0), What: "rebuild node b", Index: 9} // that host's clock is behind
	restarted := cluster.AuditEntry{At: at(4), What: "restart a", Node: "a", Seq: 3}
	b := openLog(t, vfs.NewMem(), "b")
	if err := b.Append(weight, fenced); err != nil {
		t.Fatal(err)
	}
	of := []cluster.AuditEntry{rebuilt, fenced, weight, {At: at(3), What: "of an older quorate"}, restarted}
	if err := b.Take(of); err != nil {
		t.Fatal(err)
	}
	if err := b.Append(rebuilt, cluster.AuditEntry{At: at(6), What: "promote node b to full", Index: 12}); err != nil { // its log begins here
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"rebuild node b", "fence b", "node b: weight 7", "restart a", "promote node b to full"}, auditWhats(t, b)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if b.Seq("a") != 3 || b.Seq("b") != 11 {
		t.Errorf("a's lines are known up to %d, its own up to %d", b.Seq("a"), b.Seq("b"))
	}
}

// TestAuditKnowsWhatRotatedOut: after a restart, a node does not copy again what it has copied, although the lines
// are gone from its files; nor does it write again what a replay brings.
func TestAuditKnowsWhatRotatedOut(t *testing.T) {
	disk := vfs.NewMem()
	b := openLog(t, disk, "b")
	quiet := []cluster.AuditEntry{{What: "fence a", Node: "a", Seq: 7}, {What: "durability all", Index: 9}}
	if err := b.Append(quiet...); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", fileBytesMax/3)
	for range 12 { // a file holds two of these
		if err := b.Append(cluster.AuditEntry{What: long}); err != nil {
			t.Fatal(err)
		}
		b = openLog(t, disk, "b")
	}
	if got := auditWhats(t, b); len(got) > 4 || strings.Contains(strings.Join(got, ""), "fence a") {
		t.Fatalf("%d lines are there: the test has tested nothing", len(got))
	}
	before := len(auditWhats(t, b))
	if err := b.Append(quiet...); err != nil {
		t.Fatal(err)
	}
	if got := len(auditWhats(t, b)); b.Seq("a") != 7 || b.last != 9 || got != before {
		t.Errorf("a's lines are known up to %d, the log's up to %d; %d lines, were %d", b.Seq("a"), b.last, got, before)
	}
}

// TestAuditCopyIsBounded: one answer has at most sinceMax lines, the next one has the rest.
func TestAuditCopyIsBounded(t *testing.T) {
	a := openLog(t, vfs.NewMem(), "a")
	lines := make([]cluster.AuditEntry, sinceMax+1)
	for i := range lines {
		lines[i].What = "x"
	}
	if err := a.Append(lines...); err != nil {
		t.Fatal(err)
	}
	first, err := a.Since(0)
	if err != nil || len(first) != sinceMax {
		t.Fatalf("%d lines, %v", len(first), err)
	}
	if rest, err := a.Since(first[len(first)-1].Seq); err != nil || len(rest) != 1 {
		t.Errorf("%d lines, %v", len(rest), err)
	}
}

// TestAuditLogIsBounded: old lines are dropped. A line that a crash has cut does not spoil the next one.
func TestAuditLogIsBounded(t *testing.T) {
	disk := vfs.NewMem()
	a := openLog(t, disk, "a")
	line := cluster.AuditEntry{What: strings.Repeat("x", 10_000), Result: "done"}
	const n = 3 * fileBytesMax / 10_000
	for i := range n {
		line.By = fmt.Sprint(i)
		if err := a.Append(line); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{AuditFile, AuditFile + oldSuffix} {
		if info, err := disk.Stat(name); err != nil || info.Size > fileBytesMax {
			t.Errorf("%s: %v, %v", name, info.Size, err)
		}
	}
	f, err := disk.OpenReadWrite(AuditFile)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err == nil {
		_, err = f.WriteAt([]byte(`{"by":"cut`), size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	line.By = "after"
	if err := a.Append(line); err != nil {
		t.Fatal(err)
	}
	lines, err := a.Newest(2)
	if err != nil || len(lines) != 2 || lines[0].By != fmt.Sprint(n-1) || lines[1].By != "after" {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// TestLogCrashes ends the process at each operation of each Append, also of those that begin a new file, and looks at
// each legal disk: a line whose Append returned is there, once, and its number is known.
func TestLogCrashes(t *testing.T) {
	broken := errors.New("broken")
	entry := func(i uint64) cluster.AuditEntry {
		return cluster.AuditEntry{What: fmt.Sprint(i), Result: strings.Repeat("x", fileBytesMax/5), Index: i, Node: "a"}
	}
	for n := int64(1); ; n++ {
		mem := vfs.NewMem()
		fs := vfs.Wrap(mem, vfs.FailNth(n, broken, func(op vfs.Op, _ string) bool { return op.Changes() }))
		l, done, failed := NewLog(fs, ".", AuditFile, "a"), uint64(0), error(nil)
		if err := l.Open(); err != nil {
			t.Fatal(err)
		}
		for failed == nil && done < 6 {
			if failed = l.Append(entry(done + 1)); failed == nil {
				done++
			}
		}
		if failed == nil {
			if n < 10 {
				t.Fatalf("there are %d operations alone", n-1)
			}
			return
		}
		if !errors.Is(failed, broken) {
			t.Fatal(failed)
		}
		for seed := range uint64(8) {
			again := openLog(t, mem.CrashClone(seed), "a")
			if again.last != done && again.last != done+1 {
				t.Fatalf("operation %d, disk %d: %d lines were written, and the log goes to %d", n, seed, done, again.last)
			}
			var want []string
			for i := range done + 1 { // the log is replayed
				if err := again.Append(entry(i + 1)); err != nil {
					t.Fatal(err)
				}
				want = append(want, fmt.Sprint(i+1))
			}
			if d := cmp.Diff(want, auditWhats(t, again)); d != "" {
				t.Fatalf("operation %d, disk %d (-want +got):\n%s", n, seed, d)
			}
		}
	}
}

// TestStatusWaitsForNoDisk: how far a log of lines goes can be told while its disk hangs.
func TestStatusWaitsForNoDisk(t *testing.T) {
	a := openLog(t, vfs.NewMem(), "a")
	a.files.Lock() // a write that does not come back
	defer a.files.Unlock()
	told := make(chan uint64, 1)
	go func() { told <- a.Seq("a") }()
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the disk")
	}
}
