package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/quorate/quorate/lab/result"
)

// Run is one side of a comparison.
type Run struct {
	Name    string
	Results result.Results
}

// compared is a metric that a comparison looks at, in an experiment. sign 1 = more is
// better, -1 = less is better. count: every difference counts, because a count has no noise.
type compared struct {
	metric string
	sign   float64
	count  bool
}

func comparedIn(experiment string) []compared {
	switch experiment {
	case result.Throughput:
		return []compared{{result.TPS, 1, false}, {result.P95MS, -1, false}, {result.EffectiveTPS, 1, false}}
	case result.Jitter:
		return []compared{{result.TPS, 1, false}, {result.CVPercent, -1, false}}
	case result.RTO:
		return []compared{{result.GapMS, -1, false}, {result.RejoinGapMS, -1, false}, {result.DetectMS, -1, false}, {result.RestoredMS, -1, false}, {result.DipPercent, -1, false}, {result.Lost, -1, true}, {result.Diverged, -1, true}, {result.HumanSteps, -1, true}}
	case result.RPO:
		return []compared{{result.Lost, -1, true}, {result.Diverged, -1, true}, {result.HumanSteps, -1, true}}
	case result.Apply:
		return []compared{{result.ApplyS, -1, false}}
	case result.Large:
		return []compared{{result.Committed, 1, true}, {result.StallMS, -1, false}, {result.Expelled, -1, true}}
	}
	return nil
}

const (
	// smallChange: a smaller change gets no line, however narrow the spreads are.
	smallChange = 0.05
)

// change is a metric that differs between two runs.
type change struct {
	cell, metric string
	a, b         spread
	relative     float64 // relative to a; NaN if a is 0
	better       bool
	score        float64 // the size of the change, for the order
}

// Compare writes, as Markdown, what changed from a to b and by how much: metrics that
// are apart, cells that began or stopped to fail, cells that only one run has.
func Compare(w io.Writer, a, b Run) error {
	x, y := cellsOf(a.Results.Latest()), cellsOf(b.Results.Latest())
	m := markdown{bufio.NewWriter(w)}
	fmt.Fprintf(m.w, "# From %s to %s\n", escape(a.Name), escape(b.Name))
	var changes []change
	var status, onlyA, onlyB []string
	figures, same := 0, 0
	for _, c := range x.list {
		other := y.find(c.Cell)
		if other == nil {
			onlyA = append(onlyA, c.Name())
			continue
		}
		if s := statusChange(c, other); s != "" {
			status = append(status, c.Name()+": "+s)
		}
		for _, k := range comparedIn(c.Experiment) {
			if k.metric == result.Lost && c.control() {
				continue // how much it loses is chance; flaws has whether it loses
			}
			change, both := k.compare(c, other)
			switch {
			case !both:
				continue
			case change == nil:
				same++
			default:
				changes = append(changes, *change)
			}
			figures++
		}
	}
	for _, c := range y.list {
		if x.find(c.Cell) == nil {
			onlyB = append(onlyB, c.Name())
		}
	}
	m.line(fmt.Sprintf("%d figures are in both: %d changed, %d did not (within the spread, or less than %.0f %%; a single repetition is taken to be within %.0f %%).", figures, len(changes), same, smallChange*100, unknownSpread*100))
	m.changes("Worse", changes, false, a.Name, b.Name)
	m.changes("Better", changes, true, a.Name, b.Name)
	m.list("Other status", status)
	m.list("Only in "+a.Name, onlyA)
	m.list("Only in "+b.Name, onlyB)
	if err := m.w.Flush(); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// compare returns the change of the metric from a to b, nil if there is none; and whether both have the metric.
func (k compared) compare(a, b *cell) (*change, bool) {
	x, y := a.metric(k.metric), b.metric(k.metric)
	if x.n == 0 || y.n == 0 {
		return nil, false
	}
	c := change{cell: a.Name(), metric: k.metric, a: x, b: y, relative: (y.median - x.median) / x.median}
	if k.count {
		// A loss that one repetition of several shows is a loss.
		worst := func(s spread) float64 {
			if k.sign > 0 {
				return s.min
			}
			return s.max
		}
		c.better = k.sign*(worst(y)-worst(x)) > 0
		c.score = math.Inf(1)
		c.relative = math.NaN()
		if worst(x) == worst(y) {
			return nil, true
		}
		return &c, true
	}
	if !apart(x, y) || x.median != 0 && math.Abs(c.relative) < smallChange {
		return nil, true
	}
	c.better = k.sign*(y.median-x.median) > 0
	c.score = math.Abs(math.Log(max(y.median, 1e-9) / max(x.median, 1e-9)))
	if x.median == 0 {
		c.relative = math.NaN()
	}
	return &c, true
}

func statusChange(a, b *cell) string {
	words := func(c *cell) string {
		if len(c.bad) == 0 {
			return "ok" + flaws(c)
		}
		return fmt.Sprintf("%d of %d not ok (%s)", len(c.bad), len(c.bad)+len(c.ok), c.bad[0].Reason)
	}
	if (len(a.bad) == 0) == (len(b.bad) == 0) && (len(a.ok) == 0) == (len(b.ok) == 0) && flaws(a) == flaws(b) {
		return ""
	}
	return words(a) + " → " + words(b)
}

// flaws names what repetitions that are ok do not know or show, so that a figure does not vanish without a word.
func flaws(c *cell) (names string) {
	for _, f := range []struct{ text, name string }{
		{result.TextNotBack, "not back"}, {result.TextLagging, "diverged not known"}, {result.TextNoWitness, "lost not known"},
	} {
		if c.said(f.text) != "" {
			names += ", " + f.name
		}
	}
	if s := c.metric(result.Lost); c.control() && s.n > 0 && s.max == 0 {
		names += ", the control lost nothing"
	}
	return names
}

func (m markdown) changes(title string, all []change, better bool, a, b string) {
	t := table{Head: []string{"cell", "metric", a, b, "change"}}
	chosen := slices.DeleteFunc(slices.Clone(all), func(c change) bool { return c.better != better })
	slices.SortStableFunc(chosen, func(x, y change) int { return cmp.Compare(y.score, x.score) })
	for _, c := range chosen {
		by := "–"
		if !math.IsNaN(c.relative) {
			by = fmt.Sprintf("%+.0f %%", c.relative*100)
			if c.relative > 1 {
				by = times(1 + c.relative)
			}
		}
		t.Rows = append(t.Rows, tableRow{Name: c.cell, Cells: []entry{{Value: c.metric}, {Value: number(c.a.median), Note: span(c.a)}, {Value: number(c.b.median), Note: span(c.b)}, {Value: by}}})
	}
	m.section(fmt.Sprintf("%s: %d", title, len(chosen)), t)
}

func (m markdown) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	m.title(2, fmt.Sprintf("%s: %d", title, len(lines)))
	m.line("- " + strings.Join(lines, "\n- "))
}
