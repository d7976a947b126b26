package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/role"
)

// TestChronicle: which steps of the role machine are worth a line.
func TestChronicle(t *testing.T) {
	begin := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	kill := func(why string) []role.Effect { return []role.Effect{{Kind: role.KillMysqld, Reason: why}} }
	serve := Step{In: role.Done{}, Before: role.PhaseOpening, After: role.PhasePrimary, Effects: []role.Effect{{Kind: role.Serve, Term: 7}}}
	elected := Step{In: role.RaftChanged{Term: 7, Leading: true}, Before: role.PhaseReplica, After: role.PhaseCatchingUp}
	opened := cluster.Event{Kind: cluster.EventPrimary, Term: 7}
	left := func(why string, planned bool) cluster.Event {
		return cluster.Event{Kind: cluster.EventLeft, Term: 7, Why: why, Planned: planned, Deposed: why == "lost leadership of term 7"}
	}
	for _, tc := range []struct {
		name  string
		steps []Step
		want  []cluster.Event
	}{
		{"elected and opened", []Step{elected, serve}, []cluster.Event{opened}},
		{"chosen by an operator", []Step{{In: role.Chosen{Term: 7}}, elected, serve},
			[]cluster.Event{{Kind: cluster.EventPrimary, Term: 7, Planned: true}}},
		{"elected, and never opened", []Step{elected,
			{In: role.RaftChanged{Term: 8}, Before: role.PhaseCatchingUp, After: role.PhaseUnverified, Reason: "lost leadership of term 7"},
		}, []cluster.Event{{Kind: cluster.EventLed, At: begin, Term: 7, Why: "lost leadership of term 7"}}},
		{"settled", []Step{serve,
			{In: role.RaftChanged{Term: 8}, Before: role.PhasePrimary, After: role.PhaseSettling, Reason: "lost leadership of term 7"},
			{In: role.Done{}, Before: role.PhaseSettling, After: role.PhaseUnverified, Reason: "lost leadership of term 7"},
		}, []cluster.Event{opened, left("lost leadership of term 7", false)}},
		{"killed for a doubt", []Step{serve,
			{In: role.Doubt{}, Before: role.PhasePrimary, After: role.PhaseKilling, Reason: "the tap ended", Effects: kill("the tap ended")},
		}, []cluster.Event{opened, left("the tap ended", false)}},
		{"its mysqld ended", []Step{serve,
			{In: role.MysqldExited{Reason: "mysqld ended: signal: killed"}, Before: role.PhasePrimary, After: role.PhaseDown},
		}, []cluster.Event{opened, left("mysqld ended: signal: killed", false)}},
		{"switchover", []Step{serve,
			{In: role.Move{Reason: "switchover by ann"}, Before: role.PhasePrimary, After: role.PhaseClosing},
			{In: role.Done{}, Before: role.PhaseClosing, After: role.PhaseUnverified, Effects: []role.Effect{{Kind: role.PlanEnded}}},
		}, []cluster.Event{opened, left("switchover by ann", true)}},
		{"a switchover that is called off, then a failure", []Step{serve,
			{In: role.Move{Reason: "switchover by ann"}, Before: role.PhasePrimary, After: role.PhaseClosing},
			{In: role.Done{}, Before: role.PhaseClosing, After: role.PhasePrimary, Effects: []role.Effect{{Kind: role.PlanEnded, Reason: "too slow"}, {Kind: role.Serve, Term: 7}}},
			{In: role.Tick{}, Before: role.PhasePrimary, After: role.PhaseKilling, Effects: kill("its disk is full")},
		}, []cluster.Event{opened, left("its disk is full", false)}},
		{"stopped", []Step{serve,
			{In: role.Stop{}, Before: role.PhasePrimary, After: role.PhaseClosing},
			{In: role.Done{}, Before: role.PhaseClosing, After: role.PhaseStopping},
		}, []cluster.Event{opened, left("its agent was stopped in order", true)}},
		{"a replica's mysqld ends, twice the same", []Step{
			{In: role.MysqldExited{Reason: "mysqld ended"}, Before: role.PhaseReplica, After: role.PhaseDown},
			{In: role.MysqldExited{Reason: "mysqld ended"}, Before: role.PhaseReplica, After: role.PhaseDown},
			{In: role.MysqldExited{Reason: "mysqld ended: signal: killed"}, Before: role.PhaseReplica, After: role.PhaseDown},
		}, []cluster.Event{{Kind: cluster.EventMysqld, Why: "mysqld ended"}, {Kind: cluster.EventMysqld, Why: "mysqld ended: signal: killed"}}},
		{"fenced by an operator, twice", []Step{
			{In: role.Fenced{Reason: "fenced by ann"}, Before: role.PhaseReplica, After: role.PhaseKilling, Effects: kill("fenced by ann")},
			{In: role.Tick{}, Before: role.PhaseKilling, After: role.PhaseFenced, Reason: "fenced by ann"},
			{In: role.Fenced{}, Before: role.PhaseFenced, After: role.PhaseStarting},
			{In: role.Fenced{Reason: "fenced by ann"}, Before: role.PhaseReplica, After: role.PhaseFenced, Reason: "fenced by ann"},
		}, []cluster.Event{{Kind: cluster.EventFenced, Why: "fenced by ann"}, {Kind: cluster.EventUnfenced}, {Kind: cluster.EventFenced, Why: "fenced by ann"}}},
		{"errant", []Step{
			{In: role.Done{}, Before: role.PhaseUnverified, After: role.PhaseErrant, Reason: "errant: u:1", Effects: kill("errant: u:1")},
		}, []cluster.Event{{Kind: cluster.EventErrant, Why: "errant: u:1"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, got := &Chronicle{}, []cluster.Event(nil)
			for i, s := range tc.steps {
				s.Now = begin.Add(time.Duration(i) * time.Second)
				got = append(got, c.Note(s)...)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestEachUnfenceIsTold: what an operator does is never a repetition, however soon it comes again.
func TestEachUnfenceIsTold(t *testing.T) {
	now, c := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), &Chronicle{}
	var got []cluster.Event
	for range 2 {
		got = append(got, c.Note(Step{Now: now, In: role.Fenced{Reason: "by ann"}, Before: role.PhaseReplica, After: role.PhaseFenced, Reason: "by ann"})...)
		got = append(got, c.Note(Step{Now: now, In: role.Fenced{}, Before: role.PhaseFenced, After: role.PhaseStarting})...)
	}
	fenced, unfenced := cluster.Event{Kind: cluster.EventFenced, Why: "by ann"}, cluster.Event{Kind: cluster.EventUnfenced}
	if d := cmp.Diff([]cluster.Event{fenced, unfenced, fenced, unfenced}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestLoopIsToldOnce: a mysqld that cannot start is tried again and again, and the history says so once, until
// something else was the reason, or it went well for a while.
func TestLoopIsToldOnce(t *testing.T) {
	now, c := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), &Chronicle{}
	told := func(times int, why string) (n int) {
		for range times {
			now = now.Add(7 * time.Second)
			n += len(c.Note(Step{Now: now, In: role.Done{}, Before: role.PhaseStarting, After: role.PhaseFenced, Reason: why}))
		}
		return n
	}
	for i, c := range []struct {
		times int
		why   string
		want  int
	}{{100, "page size", 1}, {3, "disk full", 1}, {1, "page size", 1}} {
		if got := told(c.times, c.why); got != c.want {
			t.Errorf("step %d: told %d times, want %d", i, got, c.want)
		}
	}
	now = now.Add(repeatAfter)
	if got := told(5, "page size"); got != 1 {
		t.Errorf("after a while told %d times", got)
	}
}

// TestElectedIsStampedAsElected: an event that is told at its end has the time of its beginning, even if the next one
// begins at once.
func TestElectedIsStampedAsElected(t *testing.T) {
	begin, c := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), &Chronicle{}
	var got []cluster.Event
	for i, in := range []role.Input{role.RaftChanged{Term: 7, Leading: true}, role.RaftChanged{Term: 8, Leading: true}, role.Tick{}, role.RaftChanged{Term: 9}} {
		got = append(got, c.Note(Step{Now: begin.Add(time.Duration(i) * time.Second), In: in, Reason: fmt.Sprintf("step %d", i)})...)
	}
	want := []cluster.Event{
		{Kind: cluster.EventLed, At: begin, Term: 7, Why: "step 1"}, {Kind: cluster.EventLed, At: begin.Add(time.Second), Term: 8, Why: "step 3"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestOutage: how long there was no primary and how long no write, from what a node has
// seen and from its log.
func TestOutage(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	const never = -1
	for _, tc := range []struct {
		name                         string
		sign, seen, logged           time.Duration // before now; the log's time is of whole seconds
		wantNoPrimary, wantLastWrite time.Duration // 0: not known
	}{
		{"writes until the end", time.Second, 900 * time.Millisecond, time.Second, 900 * time.Millisecond, 900 * time.Millisecond},
		{"a host stood still, on a quiet cluster", 1100 * time.Millisecond, 47600 * time.Millisecond, 48 * time.Second, 1100 * time.Millisecond, 47600 * time.Millisecond},
		{"mysqld stood still, and its agent did not", 119 * time.Millisecond, 4500 * time.Millisecond, 5 * time.Second, 119 * time.Millisecond, 4500 * time.Millisecond},
		{"mysqld was restarted in its place", 7300 * time.Millisecond, 21600 * time.Millisecond, 22 * time.Second, 7300 * time.Millisecond, 21600 * time.Millisecond},
		{"a full outage after a quiet night", never, 900 * time.Millisecond, 532 * time.Second, 0, 532 * time.Second},
		{"no write since this agent started", time.Second, never, 3 * time.Hour, time.Second, 3 * time.Hour},
		{"the log was read at this agent's start", time.Second, 10 * time.Minute, 3 * time.Hour, time.Second, 3 * time.Hour},
		{"the rest of the log came without a primary", time.Minute, time.Second, 2 * time.Minute, time.Minute, 2 * time.Minute},
		{"the same, and another clock", time.Minute, time.Second, 3 * time.Second, time.Minute, time.Minute},
		{"an empty log", time.Second, never, never, time.Second, 0},
		{"a purged log", time.Minute, time.Second, never, time.Minute, 0},
		{"nothing is known", never, never, never, 0, 0},
	} {
		at := func(ago time.Duration) time.Time {
			if ago == never {
				return time.Time{}
			}
			return now.Add(-ago)
		}
		h := past{board.LastPrimary{At: at(tc.sign)}, newestCommit(at(tc.sign), at(tc.seen), at(tc.logged))}
		noPrimary, lastWrite := h.outage(now)
		if noPrimary != tc.wantNoPrimary.Milliseconds() || lastWrite != tc.wantLastWrite.Milliseconds() {
			t.Errorf("%s: no primary for %d ms, last write %d ms before; want %v, %v", tc.name, noPrimary, lastWrite, tc.wantNoPrimary, tc.wantLastWrite)
		}
	}
}
