package freshness

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/raft/consensus"
)

// answers says, after a time, that all is committed up to index.
func answers(index uint64, after time.Duration) func(context.Context) (uint64, error) {
	return func(ctx context.Context) (uint64, error) {
		select {
		case <-time.After(after):
			return index, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// TestHear: the time for which a replica may be read counts from when it asked, not from the answer.
func TestHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = time.Second
		h := NewHeard(consensus.RealMachine{})
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {900 * time.Millisecond, true}, {1100 * time.Millisecond, false}} {
			asked, before := time.Now(), h.Window()
			if got := h.Hear(t.Context(), life, answers(1, c.after), func() uint64 { return 1 }); got != c.want {
				t.Errorf("answered after %v: %t", c.after, got)
			}
			w := h.Window()
			if c.want && w.Wall != time.Duration(asked.Add(life).UnixNano()) || !c.want && w != before {
				t.Errorf("answered after %v: it may be read until %v, it asked at %v", c.after, w.Wall, asked)
			}
		}
	})
}

// TestLagOfAReplicaThatMissedSomething: a replica that was down or cut off knows its lag again when its mysqld has
// what it has missed. An entry that it gets meanwhile was committed a moment ago by this node's clock, and an hour
// ago elsewhere.
func TestLagOfAReplicaThatMissedSomething(t *testing.T) {
	h := NewHeard(consensus.RealMachine{})
	commit := uint64(10)
	hear := func(index uint64) {
		t.Helper()
		if !h.Hear(t.Context(), time.Hour, answers(index, 0), func() uint64 { return commit }) {
			t.Fatal("no answer")
		}
	}
	expect := func(what string, applied uint64, oldest time.Duration, want bool) {
		t.Helper()
		if got := h.KnowsLag(commit, applied, oldest); got != want {
			t.Errorf("%s: known %t", what, got)
		}
	}
	lapse := func() { // all that was answered is over
		for i := range h.answers {
			h.answers[i].until = WindowOf(h.clocks, -time.Minute)
		}
		h.known = WindowOf(h.clocks, -time.Minute)
	}
	expect("no leader has answered", 10, 0, false)
	hear(1000)
	expect("it fetches the log", 10, 0, false)
	commit = 999
	hear(1001)
	expect("all but the newest entry is here", 999, 0, false)
	commit = 1001
	expect("the log is here, mysqld applies it", 1000, time.Second, false)
	expect("mysqld has it", 1001, 0, true)
	commit = 1005
	hear(1005)
	expect("mysqld lags", 1002, 7*time.Second, true)
	hear(1010)
	expect("what is new is not here yet", 1002, 7*time.Second, true)
	lapse()
	expect("it is cut off", 1005, 0, false)
	hear(2000)
	expect("it hears again, and lacks entries", 1005, 0, false)
	commit = 2000
	expect("what mysqld lacks has come since", 1500, 59*time.Second, false)
	hear(2001)
	expect("and another answer changes nothing", 1500, time.Second, false)
	expect("what mysqld lacks had come before", 1003, 2*time.Minute, true)
	expect("mysqld has all that it missed", 2000, 0, true)
	expect("mysqld lags once more", 1999, time.Second, true)
	for i := range h.answers {
		h.answers[i].until.Wall = h.clocks.Wall() - 1
	}
	expect("the wall clock was set forward since", 2000, 0, false)
}

// TestLagOfAKilledMysqld: a mysqld that was killed may lack what it had, and the age of that is not known.
func TestLagOfAKilledMysqld(t *testing.T) {
	h := NewHeard(consensus.RealMachine{})
	h.Hear(t.Context(), time.Hour, answers(10, 0), func() uint64 { return 10 })
	for i, c := range []struct {
		applied uint64
		want    bool
	}{{10, true}, {0, false}, {9, false}, {10, true}, {9, false}} {
		if i == 4 {
			c.want = true // it lacks what was committed lately
		}
		h.Hear(t.Context(), time.Hour, answers(10, 0), func() uint64 { return 10 })
		if got := h.KnowsLag(10, c.applied, time.Second); got != c.want {
			t.Errorf("%d: applied %d: known %t", i, c.applied, got)
		}
	}
}

// TestHeardIsBounded: what is over is removed.
func TestHeardIsBounded(t *testing.T) {
	h := NewHeard(consensus.RealMachine{})
	for range 100 {
		h.Hear(t.Context(), time.Hour, answers(1, 0), func() uint64 { return 1 })
		for i := range h.answers[:max(0, len(h.answers)-4)] {
			h.answers[i].until = WindowOf(h.clocks, -1)
		}
	}
	if len(h.answers) != 5 {
		t.Errorf("%d answers", len(h.answers))
	}
}

// TestLasted: neither clock alone is believed.
func TestLasted(t *testing.T) {
	h := NewHeard(consensus.RealMachine{})
	open := WindowOf(h.clocks, time.Hour)
	for name, c := range map[string]struct {
		w    Window
		ago  time.Duration
		want bool
	}{
		"open":                {open, 0, true},
		"never open":          {Window{}, 0, false},
		"over by the wall":    {Window{Boot: open.Boot, Wall: open.Wall - 2*time.Hour}, 0, false},
		"over since it slept": {Window{Boot: open.Boot - 2*time.Hour, Wall: open.Wall}, 0, false},
		"it was open":         {WindowOf(h.clocks, -time.Minute), time.Hour, true},
		"it was over":         {WindowOf(h.clocks, -time.Hour), time.Minute, false},
	} {
		if got := c.w.Lasted(h.clocks, c.ago); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
