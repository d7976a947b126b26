package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// failure returns the name and the detail of the failure of f, "" if f does not fail.
func failure(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = r.(*Failure).Name + ": " + r.(*Failure).Detail
		}
	}()
	f()
	return ""
}

func wantFailure(t *testing.T, name, want string, f func()) {
	t.Helper()
	got := failure(f)
	if want == "" && got != "" || want != "" && !strings.HasPrefix(got, want) {
		t.Errorf("%s: failed with %q, want %q", name, got, want)
	}
}

func appended(value string, call, end time.Duration) *request {
	return &request{kind: appending, value: value, call: call, end: end, outcome: succeeded}
}

func readOf(call, end time.Duration, values ...string) *request {
	return &request{kind: selecting, call: call, end: end, outcome: succeeded, read: values}
}

// TestLedgerJudges: the checker notices every kind of wrong answer to a client.
func TestLedgerJudges(t *testing.T) {
	a, b := appended("a", 1, 2), appended("b", 3, 4)
	lost := appended("c", 5, 6)
	pending := &request{kind: appending, value: "d", call: 1}
	for _, c := range []struct {
		name, want string
		final      []string
		history    []*request
	}{
		{"all well", "", []string{"a", "b"}, []*request{a, b, readOf(1, 9, "a"), readOf(5, 6, "a", "b")}},
		{"a read beside a write", "", []string{"a", "b"}, []*request{a, b, readOf(3, 4, "a"), readOf(3, 4, "a", "b")}},
		{"an answer that never came", "", []string{"a", "d", "b"}, []*request{a, b, pending}},
		{"a request without effect", "", []string{"a", "b"}, []*request{a, b, pending}},
		{"lost", "I7", []string{"a", "b"}, []*request{a, b, lost}},
		{"twice", "ledger", []string{"a", "b", "a"}, []*request{a, b}},
		{"stale read", "ledger", []string{"a", "b"}, []*request{a, b, readOf(5, 6, "a")}},
		{"dirty read", "ledger", []string{"a", "b"}, []*request{a, b, readOf(5, 6, "a", "b", "x")}},
		{"out of order", "ledger", []string{"b", "a"}, []*request{a, b}},
		{"a read that goes back", "ledger", []string{"a", "d"}, []*request{a, pending, readOf(5, 6, "a", "d"), readOf(7, 8, "a")}},
	} {
		w := newWorld(Options{Nodes: 3})
		wantFailure(t, c.name, c.want, func() { w.check.table("t", c.final, c.history) })
	}
}

// TestMajorityIsOfDisks: an entry counts only when its append has returned.
func TestMajorityIsOfDisks(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	run := consensus.AppendRun{Entries: []seglog.Entry{{Index: 1, Term: 1}, {Index: 2, Term: 1}}}
	w.nodes[0].durable.appended(run)
	wantFailure(t, "one of three", "I1", func() { w.check.majority("OK", 2, 1) })
	w.nodes[1].durable.appended(run)
	wantFailure(t, "two of three", "", func() { w.check.majority("OK", 2, 1) })
	wantFailure(t, "another term", "I1", func() { w.check.majority("OK", 2, 2) })
	w.nodes[1].durable.cut([]consensus.AppendRun{{Entries: []seglog.Entry{{Index: 2, Term: 3}}}})
	wantFailure(t, "cut while it was replaced", "I1", func() { w.check.majority("OK", 2, 1) })
	wantFailure(t, "before what was cut", "", func() { w.check.majority("OK", 1, 1) })
}

// TestHealedLogCounts: a healing must bring back every entry that the majority counts on this log for.
func TestHealedLogCounts(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	entries := []seglog.Entry{{Index: 1, Term: 1}, {Index: 2, Term: 1}}
	for _, n := range w.nodes[:2] {
		n.durable.appended(consensus.AppendRun{Entries: entries})
	}
	w.check.entries = []committedEntry{{term: 1}, {term: 1}}
	log, err := seglog.Open(w.nodes[0].logOptions(false))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(entries[:1], nil); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, "an entry is missing", "I1: healing of entry 2", func() { w.check.healed(w.nodes[0], log) })
	if err := log.Append(entries[1:], nil); err != nil {
		t.Fatal(err)
	}
	w.nodes[0].durable.appended(consensus.AppendRun{Entries: entries})
	wantFailure(t, "it has all", "", func() { w.check.healed(w.nodes[0], log) })
}

// TestEngineMustFollowTheLog: an engine commit is checked against all of the committed log before it.
func TestEngineMustFollowTheLog(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	for n := range uint64(3) {
		w.check.transaction(committedTransaction{gtid: gtid.GTID{N: n + 1}, index: n + 1, changes: n != 1})
	}
	c, n := w.check, w.nodes[0]
	wantFailure(t, "nothing yet", "", func() { c.engine(n) })
	wantFailure(t, "it says that it has all", "I4", func() { c.complete(n) })
	c.engines[n] = engineCheck{place: 3}
	wantFailure(t, "it has all", "", func() { c.complete(n) })
	wantFailure(t, "a GTID again", "I9", func() { c.transaction(committedTransaction{gtid: gtid.GTID{N: 2}}) })
}
