package history

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/consensus"
)

func change(index uint64) consensus.StateOutcome {
	weight := 7
	c := cluster.Change{By: "ann@db1", Node: &cluster.NodeChange{Name: "b", Weight: &weight}}
	return consensus.StateOutcome{Index: index, StateChange: cluster.StateChange{Change: c}}
}

// brokenFile is a disk on which a file cannot be made, or read, while broken is true.
type brokenFile struct {
	vfs.FS
	name   string
	broken bool
}

var errBroken = errors.New("broken")

func (b *brokenFile) Create(name string) (vfs.File, error) {
	if b.broken && name == b.name {
		return nil, errBroken
	}
	return b.FS.Create(name)
}

func (b *brokenFile) Open(name string) (vfs.File, error) {
	if b.broken && name == b.name {
		return nil, errBroken
	}
	return b.FS.Open(name)
}

// TestAuditIsTriedAgain: lines that could not be written wait for the next time.
func TestAuditIsTriedAgain(t *testing.T) {
	disk := &brokenFile{FS: vfs.NewMem(), name: AuditFile}
	r := New(disk, ".", "a", slog.New(slog.DiscardHandler))
	r.Open()
	r.Committed(change(5))
	disk.broken = true
	if err := r.WriteAudit(); !errors.Is(err, errBroken) {
		t.Fatalf("it was written: %v", err)
	}
	r.Committed(change(6))
	disk.broken = false
	for range 2 {
		if err := r.WriteAudit(); err != nil {
			t.Fatal(err)
		}
	}
	if lines, err := r.Audit.Newest(10); err != nil || len(lines) != 2 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// TestUnreadableRecords: a file that cannot be read, here of either log and of either age, keeps no node down. It is set
// aside, the other one still says what it says, and lines are written again.
func TestUnreadableRecords(t *testing.T) {
	for _, name := range []string{AuditFile, AuditFile + oldSuffix, File, File + oldSuffix} {
		fs := vfs.NewMem()
		for _, l := range []*Log{NewLog(fs, ".", AuditFile, "b"), NewLog(fs, ".", File, "b")} {
			if err := l.Open(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := l.Append(cluster.AuditEntry{At: time.Unix(1, 0), What: strings.Repeat("x", fileBytesMax*2/3)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		disk := &brokenFile{FS: fs, name: name, broken: true}
		r := New(disk, ".", "a", slog.New(slog.DiscardHandler))
		r.Open()
		if _, err := fs.Stat(name + damagedSuffix); err != nil {
			t.Errorf("%s was not set aside: %v", name, err)
		}
		disk.broken = false
		r.Committed(change(5))
		r.Tell(cluster.Event{Kind: cluster.EventLed, Term: 3})
		if err := r.WriteAudit(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.WriteHistory()
		for _, l := range []*Log{r.Audit, r.History} {
			want := 3
			if strings.HasPrefix(name, strings.TrimPrefix(l.path, "./")) {
				want = 2
			}
			if lines, err := l.Newest(10); err != nil || len(lines) != want {
				t.Errorf("%s: %s has %d lines, want %d: %v", name, l.path, len(lines), want, err)
			}
		}
	}
}

// TestHistoryIsInNobodysWay: a history that cannot be written does not keep the audit log from the disk, and no line
// is written twice; its lines are there as soon as that is possible.
func TestHistoryIsInNobodysWay(t *testing.T) {
	disk := &brokenFile{FS: vfs.NewMem(), name: File, broken: true}
	r := New(disk, ".", "a", slog.New(slog.DiscardHandler))
	r.Open()
	r.Committed(change(5))
	r.Tell(cluster.Event{Kind: cluster.EventLed, Term: 3})
	for range 3 {
		if err := r.WriteAudit(); err != nil {
			t.Fatal(err)
		}
		if r.WriteHistory(); r.History.Seq("a") != 0 {
			t.Fatal("a history was written on a broken disk")
		}
	}
	if lines, err := r.Audit.Newest(10); err != nil || len(lines) != 1 {
		t.Errorf("audit log: %+v, %v", lines, err)
	}
	disk.broken = false
	r.WriteHistory()
	if lines, err := r.History.Newest(10); err != nil || len(lines) != 1 || lines[0].Event.Term != 3 {
		t.Errorf("history: %+v, %v", lines, err)
	}
}

// TestNewestByTerm: the newest change is that of the highest term, whatever the clocks of the nodes said. Once a clock had
// run ahead, no node showed the failovers after that.
func TestNewestByTerm(t *testing.T) {
	r := New(vfs.NewMem(), ".", "b", slog.New(slog.DiscardHandler))
	r.Open()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at   time.Time
		e    cluster.Event
		what cluster.HistoryWhat
	}{
		{now.AddDate(3, 0, 0), cluster.Event{Kind: cluster.EventPrimary, Term: 5, From: "a"}, cluster.HistoryFailover},
		{now.AddDate(3, 0, -1), cluster.Event{Kind: cluster.EventLeft, Term: 5}, cluster.HistoryLost},
		{now, cluster.Event{Kind: cluster.EventPrimary, Term: 7, From: "c", Why: "the agent of c is gone"}, cluster.HistoryFailover},
		{now.Add(-time.Hour), cluster.Event{Kind: cluster.EventLeft, Term: 7}, cluster.HistoryLost},
		{now.Add(-time.Hour), cluster.Event{Kind: cluster.EventHealed}, cluster.HistoryLost},
	} {
		c.e.At = c.at
		r.Tell(c.e)
		r.WriteHistory()
		if got := r.LastChange(); got == nil || got.What != c.what || got.Term < c.e.Term || c.e.Term > 0 && !got.At.Equal(c.at) {
			t.Errorf("after %s of term %d at %s: %+v", c.e.Kind, c.e.Term, c.at, got)
		}
	}
}

// TestQueueIsBounded: what does not fit is counted, and the rest is written.
func TestQueueIsBounded(t *testing.T) {
	var logged bytes.Buffer
	r := New(vfs.NewMem(), ".", "a", slog.New(slog.NewTextHandler(&logged, nil)))
	r.Open()
	for range queuedMax + 3 {
		r.Note("x", "done")
	}
	if err := r.WriteAudit(); err != nil {
		t.Fatal(err)
	}
	if lines, err := r.Audit.Newest(2 * queuedMax); err != nil || len(lines) != queuedMax {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	if !strings.Contains(logged.String(), "missing=3") {
		t.Errorf("it is logged: %s", &logged)
	}
}

// TestHealedIsNoted: that a log was healed is on disk at once. An agent that starts later knows when that was,
// whatever others say of their own logs.
func TestHealedIsNoted(t *testing.T) {
	disk := vfs.NewMem()
	start := func() *Records {
		r := New(disk, ".", "a", slog.New(slog.DiscardHandler))
		r.Open()
		return r
	}
	at := time.Unix(1e8, 0) // once, the clock runs three years ahead
	for _, next := range []time.Duration{-3 * 365 * 24 * time.Hour, time.Hour, time.Hour} {
		New(disk, ".", "a", slog.New(slog.DiscardHandler)).Healed(at, "to entry 7") // before Open
		if got := start().HealedAt(); got != at.Unix() {
			t.Errorf("healed at %d, want %d", got, at.Unix())
		}
		at = at.Add(next)
	}
	r := start()
	nodes := []status.Node{{Name: "b", HistorySeq: 1, Reachable: true}, {Name: "c", HistorySeq: 1}, {Name: "a", HistorySeq: 9, Reachable: true}}
	asked := 0
	r.Copy(t.Context(), nodes, func(_ context.Context, _ cluster.NodeID, request string, _ any) ([]cluster.AuditEntry, error) {
		asked++
		if request != Since {
			t.Errorf("%s is asked for", request)
		}
		e := &cluster.Event{Kind: cluster.EventHealed}
		return []cluster.AuditEntry{
			{At: at, Node: "b", Seq: 1, What: "log healed", Event: e}, {At: at, Node: "a", Seq: 99, What: "log healed", Event: e},
		}, nil
	})
	if got := r.HealedAt(); asked != 1 || r.History.Seq("b") != 1 || got != at.Add(-time.Hour).Unix() {
		t.Errorf("asked %d times, b's lines are here up to %d; healed at %d, as another node was, or says of this one", asked, r.History.Seq("b"), got)
	}
}

// TestRebuiltNodeTellsTheSame: a node whose data are made again has its own old lines, too, so it
// tells the same history as before.
func TestRebuiltNodeTellsTheSame(t *testing.T) {
	lives := func(node string) *Records { return New(vfs.NewMem(), ".", node, slog.New(slog.DiscardHandler)) }
	a, b := lives("a"), lives("b")
	a.Open()
	b.Open()
	opened := func(r *Records, s int, term uint64, from string) {
		t.Helper()
		line := r.line(time.Unix(int64(s), 0), cluster.Event{Kind: cluster.EventPrimary, Term: term, From: from, Why: "the agent of " + from + " is gone"})
		if err := r.History.Append(line); err != nil {
			t.Fatal(err)
		}
	}
	copied := func(to, from *Records) {
		to.Copy(t.Context(), []status.Node{{Name: from.node, HistorySeq: from.History.Seq(from.node), Reachable: true}},
			func(_ context.Context, _ cluster.NodeID, _ string, args any) ([]cluster.AuditEntry, error) {
				return from.History.Since(args.(cluster.AuditSince).Seq)
			})
	}
	opened(a, 1, 1, "")
	copied(b, a)
	opened(b, 2, 2, "a")
	copied(a, b)
	opened(a, 3, 3, "b")
	if err := a.Audit.Append(cluster.AuditEntry{At: time.Unix(3, 0), What: "fence b"}); err != nil {
		t.Fatal(err)
	}
	b = lives("b")
	err := b.TakeOver(t.Context(), 1, func(_ context.Context, _ cluster.NodeID, request string, args any) ([]cluster.AuditEntry, error) {
		of := map[string]*Log{Audit: a.Audit, Lines: a.History}[request]
		return of.Newest(args.(cluster.LastRequest).Last)
	})
	if err != nil {
		t.Fatal(err)
	}
	opened(b, 4, 4, "a")
	copied(a, b)
	theirs, err := a.Rows(10)
	own, ownErr := b.Rows(10)
	if d := cmp.Diff(theirs, own); err != nil || ownErr != nil || len(own) != 4 || own[2].From != "b" || d != "" {
		t.Errorf("%+v, %v, %v (-a +b):\n%s", own, err, ownErr, d)
	}
	if lines, err := b.Audit.Newest(10); err != nil || len(lines) != 1 {
		t.Errorf("its audit log: %+v, %v", lines, err)
	}
}
