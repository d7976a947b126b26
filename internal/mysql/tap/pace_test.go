package tap

import (
	"math"
	"strings"
	"testing"
	"time"
)

const megabyte = 1e6

func TestLagBound(t *testing.T) {
	const bound = 10 * time.Second
	for name, c := range map[string]struct {
		bound time.Duration
		// before are the replicas at the decision before this one.
		before, replicas []Lag
		limited          bool
		rate             float64
		reason           string
	}{
		"off":        {bound: 0, replicas: []Lag{{"b", 99, 99, megabyte}}},
		"no replica": {bound: bound, reason: "no replica could take over"},
		"none left":  {bound: bound, before: []Lag{{"b", 20, 20, megabyte}}, reason: "no replica could take over"},
		"no lag":     {bound: bound, replicas: []Lag{{"b", 0, 0, megabyte}}},
		"half":       {bound: bound, replicas: []Lag{{"b", 5, 5, megabyte}}},
		"a burst that may be gone already": {
			bound: bound, before: []Lag{{"b", 0, 0, megabyte}}, replicas: []Lag{{"b", 1.9, 20, megabyte}}},
		"more than half": {bound: bound, replicas: []Lag{{"b", 7.5, 7.5, megabyte}},
			limited: true, rate: 2.5 * megabyte, reason: "slowed down"},
		"at the bound": {bound: bound, replicas: []Lag{{"b", 10, 10, megabyte}},
			limited: true, rate: megabyte, reason: "slowed down"},
		"above it": {bound: bound, before: []Lag{{"b", 9, 9, megabyte}}, replicas: []Lag{{"b", 12, 12.5, megabyte}},
			limited: true, rate: 0.5 * megabyte, reason: "b, needs 12.5 s to apply what it lacks, the bound is 10.0 s"},
		"far above it": {bound: bound, before: []Lag{{"b", 9, 9, megabyte}}, replicas: []Lag{{"b", 99, 99, megabyte}},
			limited: true, rate: 0, reason: "slowed down"},
		"the best counts": {bound: bound, before: []Lag{{"b", 0, 0, megabyte}, {"c", 0, 0, megabyte}},
			replicas: []Lag{{"b", 99, 99, megabyte}, {"c", 3, 3, megabyte}}},
		"it came with a backlog": {bound: bound, replicas: []Lag{{"b", 99, 99, megabyte}},
			limited: true, rate: 0.5 * megabyte, reason: "slowed down"},
		"it was away": {bound: bound, before: []Lag{{"c", 0, 0, megabyte}}, replicas: []Lag{{"b", 99, 99, megabyte}},
			limited: true, rate: 0.5 * megabyte, reason: "slowed down"},
		"no rate is known, and it has stopped": {bound: bound, before: []Lag{{"b", 9, 9, 0}}, replicas: []Lag{{"b", 10.5, 10.5, 0}},
			limited: true, rate: 0, reason: "slowed down"},
		"no rate is known, and it has just come": {bound: bound, replicas: []Lag{{"b", 99, 99, 0}}, reason: "is catching up"},
		"a short bound": {bound: time.Second, replicas: []Lag{{"b", 0.8, 0.75, megabyte}},
			limited: true, rate: 2.5 * megabyte, reason: "slowed down"},
	} {
		b := NewLagBound(c.bound)
		if c.before != nil {
			b.Decide(c.before)
		}
		p := b.Decide(c.replicas)
		if p.Limited != c.limited || c.limited && math.Abs(p.BytesPerSecond-c.rate) > 1 {
			t.Errorf("%s: limited %t to %.0f, want %t to %.0f", name, p.Limited, p.BytesPerSecond, c.limited, c.rate)
		}
		if !strings.Contains(p.Reason, c.reason) || c.reason == "" && p.Reason != "" {
			t.Errorf("%s: reason %q, want %q", name, p.Reason, c.reason)
		}
	}
}

// TestLagBoundForgets: a replica that was away counts as one that has just come.
func TestLagBoundForgets(t *testing.T) {
	b := NewLagBound(10 * time.Second)
	far := []Lag{{"b", 99, 99, megabyte}}
	b.Decide([]Lag{{"b", 0, 0, megabyte}})
	if p := b.Decide(far); p.BytesPerSecond != 0 {
		t.Fatalf("a replica that falls behind: %+v", p)
	}
	b.Decide(nil)
	if p := b.Decide(far); p.BytesPerSecond != 0.5*megabyte {
		t.Fatalf("one that was away: %+v", p)
	}
}

// TestLagBoundConverges closes the loop: writers that want more than the replica
// can apply end at its rate, with a backlog near the bound; writers that want
// less are never slowed down.
func TestLagBoundConverges(t *testing.T) {
	const bound, tick = 10.0, 0.5
	for _, c := range []struct{ wanted, applied float64 }{
		{8, 1}, {1.2, 1}, {100, 1}, {0.9, 1}, {50, 20},
	} {
		b := NewLagBound(bound * time.Second)
		backlog, age, through, peak := 0.0, 0.0, 0.0, 0.0
		for range 600 {
			p := b.Decide([]Lag{{"b", age, backlog / c.applied, c.applied}})
			rate := c.wanted
			if p.Limited {
				rate = min(rate, p.BytesPerSecond)
			}
			through = rate
			backlog = max(0, backlog+(rate-c.applied)*tick)
			age = backlog / max(rate, c.applied) // the time in which the missing transactions came
			peak = max(peak, backlog/c.applied)
		}
		want := min(c.wanted, c.applied)
		if math.Abs(through-want) > 0.05*want {
			t.Errorf("wanted %v, applied %v: writers end at %.2f", c.wanted, c.applied, through)
		}
		if backlog/c.applied > bound*1.1 || c.wanted > c.applied && backlog/c.applied < bound*paceFrom {
			t.Errorf("wanted %v, applied %v: the backlog ends at %.1f s", c.wanted, c.applied, backlog/c.applied)
		}
		// There is no limit before the lag counts: that much may come at once.
		if most := bound*1.6 + (paceAgeMin+2*tick)*c.wanted/c.applied; peak > most {
			t.Errorf("wanted %v, applied %v: the backlog went up to %.1f s, expected at most %.1f", c.wanted, c.applied, peak, most)
		}
	}
}

func TestPacer(t *testing.T) {
	now := 1000 * time.Second
	at := func(rate, best float64) Pace {
		return Pace{Limited: true, BytesPerSecond: rate, Best: Lag{BytesPerSecond: best}}
	}
	for name, c := range map[string]struct {
		pace  Pace
		bytes uint64
		want  time.Duration
	}{
		"no limit":                      {Pace{}, 1 << 30, 0},
		"its share":                     {at(megabyte, megabyte), 250_000, 250 * time.Millisecond},
		"the least is one a second":     {at(0, megabyte), 1000, time.Second},
		"... and so without a rate":     {at(0, 0), 1 << 30, time.Second},
		"a large one waits longer":      {at(0, megabyte), 500_000, 5 * time.Second},
		"... but not for ever":          {at(0, megabyte), 1 << 30, 10 * time.Second},
		"slow, but not slower than one": {at(10, megabyte), 1000, time.Second},
	} {
		p := &Pacer{}
		p.Set(c.pace)
		if w := p.Wait(now); w != 0 {
			t.Errorf("%s: the first waits for %v", name, w)
		}
		p.Went(now, c.bytes)
		if w := p.Wait(now); w != c.want {
			t.Errorf("%s: the next waits for %v, want %v", name, w, c.want)
		}
		if w := p.Wait(now + c.want); w != 0 {
			t.Errorf("%s: it waits for %v longer than it said", name, w)
		}
		p.Set(at(1, 1))
		if w := p.Wait(now); w != c.want {
			t.Errorf("%s: another pace makes it wait for %v", name, w)
		}
		p.Set(Pace{})
		if w := p.Wait(now); w != 0 {
			t.Errorf("%s: without a limit it waits for %v", name, w)
		}
	}
}
