package experiment

import (
	"errors"
	"testing"
	"time"

	"github.com/quorate/quorate/lab/check"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/result"
	"github.com/quorate/quorate/lab/workload"
)

// acknowledged is a ledger with an acknowledgement every 10 ms, except in the pauses (from, to, in ms).
func acknowledged(end int, pauses ...[2]int) (line workload.Timeline) {
	for at := 10; at <= end; at += 10 {
		quiet := false
		for _, p := range pauses {
			quiet = quiet || at > p[0] && at < p[1]
		}
		if !quiet {
			line = append(line, workload.Attempt{At: time.Duration(at) * time.Millisecond, Outcome: workload.Acknowledged})
		}
	}
	return line
}

// TestOutageEndsWithTheFault: a stall at the victim's return does not count as part of the fault's gap.
func TestOutageEndsWithTheFault(t *testing.T) {
	const at, mended, end = 5000, 30_000, 60_000
	for _, tc := range []struct {
		name        string
		line        workload.Timeline
		gap, rejoin int // ms
		open, never bool
	}{
		{"a longer stall at the return", acknowledged(end, [2]int{5000, 6400}, [2]int{40_000, 45_000}), 1400, 5000, false, false},
		{"a stall that begins as the fault ends", acknowledged(end, [2]int{5000, 6400}, [2]int{29_990, 33_000}), 1400, 3000, false, false},
		{"nobody takes over", acknowledged(end, [2]int{5000, 41_000}), 36_000, 10, true, false},
		{"never again", acknowledged(5000), 55_000, 0, true, true},
		{"no gap at all", acknowledged(end), 10, 10, false, false},
		{"down again before the fault ends", acknowledged(end, [2]int{5000, 6000}, [2]int{20_000, 31_000}), 11_000, 10, true, false},
	} {
		o := outageOf(tc.line, at*time.Millisecond, mended*time.Millisecond, end*time.Millisecond)
		if gap := int((o.stop - o.start).Milliseconds()); gap != tc.gap || int(o.rejoin.Milliseconds()) != tc.rejoin || o.open != tc.open || o.never != tc.never {
			t.Errorf("%s: gap %d, rejoin %v, open %v, never %v; want %d, %d ms, %v, %v", tc.name, gap, o.rejoin, o.open, o.never, tc.gap, tc.rejoin, tc.open, tc.never)
		}
	}
	// A cell that failed before the fault was mended.
	if o := outageOf(acknowledged(8000, [2]int{5000, 6000}), 5*time.Second, 0, 8*time.Second); o.stop-o.start != time.Second || o.rejoin != 0 {
		t.Errorf("without a return: %+v", o)
	}
}

// TestWitnessIsInTheGroup: the witness is a server that is still in the group. Before, a killed member of a group of
// several primaries that did not come back was the witness: then everything acknowledged after the kill counted as
// lost, although the two other members had it.
func TestWitnessIsInTheGroup(t *testing.T) {
	alive := []peers.Endpoint{{Node: "b"}, {Node: "c"}}
	for _, tc := range []struct {
		primary string
		writers []peers.Endpoint
		want    string
	}{
		{"", alive, "b"},
		{"c", alive, "c"},
		{"a", nil, "a"},
		{"", nil, ""}, // nobody: see TestNobodyJudgesWithoutAWitness
	} {
		if got := witness(tc.primary, tc.writers); got != tc.want {
			t.Errorf("primary %q, writers %v: witness %q, want %q", tc.primary, tc.writers, got, tc.want)
		}
	}
}

// TestNobodyJudgesWithoutAWitness: a row has no figure for what was not found out. Before, a node that had not come back
// made its lag look like divergence, and if nobody took writes, node a decided what was lost, whatever it had.
func TestNobodyJudgesWithoutAWitness(t *testing.T) {
	found := check.Verdict{Lost: 7, Diverged: 9}
	for _, tc := range []struct {
		name           string
		witnessed      bool
		lagging        error
		lost, diverged bool // the row has them
	}{
		{"all is known", true, nil, true, true},
		{"a replica lags", true, errors.New("node c lags behind"), true, false},
		{"no node takes writes", false, nil, false, true},
	} {
		c := &cell{row: &result.Row{}}
		v := c.recordVerdict(found, tc.witnessed, tc.lagging)
		_, lost := c.row.Metric(result.Lost)
		_, diverged := c.row.Metric(result.Diverged)
		if lost != tc.lost || diverged != tc.diverged || v.Lost > 0 != tc.lost {
			t.Errorf("%s: lost %v (%d), diverged %v, want %v and %v", tc.name, lost, v.Lost, diverged, tc.lost, tc.diverged)
		}
		if (c.row.Text[result.TextNoWitness] == "") != tc.witnessed || (c.row.Text[result.TextLagging] == "") != (tc.lagging == nil) {
			t.Errorf("%s: the row says %q", tc.name, c.row.Text)
		}
	}
}
