package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/lab/result"
)

// spread is a metric over the repetitions of a cell.
type spread struct {
	n                int
	min, median, max float64
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	median := v[len(v)/2]
	if len(v)%2 == 0 {
		median = (v[len(v)/2-1] + median) / 2
	}
	return spread{len(v), v[0], median, v[len(v)-1]}
}

// unknownSpread is assumed as the spread of a single repetition: machines are noisy.
const unknownSpread = 0.1

// apart tells whether the ranges do not touch after they were widened, because few repetitions do not show the whole
// range. With three repetitions each of the same system the ranges do not touch in one case of ten; widened, in one of
// fifty.
func apart(a, b spread) bool {
	a, b = a.widened(), b.widened()
	return a.min > b.max || b.min > a.max
}

// widened adds the width divided by n-1 to each end.
func (s spread) widened() spread {
	by := unknownSpread / 2 * math.Abs(s.median)
	if s.n > 1 {
		by = (s.max - s.min) / float64(s.n-1)
	}
	return spread{s.n, s.min - by, s.median, s.max + by}
}

// cell has the results of all repetitions of a cell.
type cell struct {
	result.Cell
	ok, bad []result.Row
}

// metric is a metric over the repetitions that are ok.
func (c *cell) metric(name string) spread {
	if c == nil {
		return spread{}
	}
	var values []float64
	for _, r := range c.ok {
		if v, there := r.Metric(name); there {
			values = append(values, v)
		}
	}
	return spreadOf(values)
}

// reason says why the cell has no result; "" = it has one, or none was asked for.
func (c *cell) reason() string {
	if c == nil || len(c.ok) > 0 || len(c.bad) == 0 {
		return ""
	}
	return string(c.bad[0].Status) + ": " + c.bad[0].Reason
}

// failedBefore says, after sep, how often the cell failed before it was ok; "" = never.
func (c *cell) failedBefore(sep string) string {
	n := 0
	if c != nil {
		for _, r := range c.ok {
			n += r.FailedBefore
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s%d failed before", sep, n)
}

// typical is the repetition whose metric is the median (of an even number of repetitions the lower one).
func (c *cell) typical(metric string) *result.Row {
	if c == nil || len(c.ok) == 0 {
		return nil
	}
	rows := slices.Clone(c.ok)
	slices.SortStableFunc(rows, func(a, b result.Row) int { return cmp.Compare(a.Metrics[metric], b.Metrics[metric]) })
	return &rows[(len(rows)-1)/2]
}

// cells are the results, grouped by cell.
type cells struct {
	byName map[string]*cell
	list   []*cell // in the order of the file
}

func cellsOf(rows []result.Row) cells {
	cs := cells{byName: map[string]*cell{}}
	for _, r := range rows {
		c := cs.byName[r.Name()]
		if c == nil {
			c = &cell{Cell: r.Cell}
			cs.byName[r.Name()] = c
			cs.list = append(cs.list, c)
		}
		if r.Status == result.OK {
			c.ok = append(c.ok, r)
		} else {
			c.bad = append(c.bad, r)
		}
	}
	return cs
}

func (cs cells) find(c result.Cell) *cell { return cs.byName[c.Name()] }

// of filters.
func (cs cells) of(keep func(*cell) bool) cells {
	out := cells{byName: map[string]*cell{}}
	for _, c := range cs.list {
		if keep(c) {
			out.list = append(out.list, c)
			out.byName[c.Name()] = c
		}
	}
	return out
}

func (cs cells) experiment(name string) cells {
	return cs.of(func(c *cell) bool { return c.Experiment == name })
}

// distinct returns the values of a dimension, sorted.
func distinct[T cmp.Ordered](cs cells, get func(*cell) T, compare func(a, b T) int) []T {
	seen := map[T]bool{}
	for _, c := range cs.list {
		seen[get(c)] = true
	}
	return slices.SortedFunc(maps.Keys(seen), compare)
}

func (cs cells) networks() []string {
	return distinct(cs, func(c *cell) string { return c.Network }, byRank(networkOrder))
}

func (cs cells) workloads() []string {
	return distinct(cs, func(c *cell) string { return c.Workload }, byRank(workloadOrder))
}

func (cs cells) threads() []int {
	return distinct(cs, func(c *cell) int { return c.Threads }, cmp.Compare[int])
}

func (cs cells) variants() []string {
	return distinct(cs, func(c *cell) string { return c.Variant() }, func(a, b string) int {
		systemOf := func(v string) string { return strings.SplitN(v, ",", 2)[0] }
		return cmp.Or(byRank(systemOrder)(systemOf(a), systemOf(b)), cmp.Compare(a, b))
	})
}

// at finds a cell by its dimensions.
func (cs cells) at(variant, network, workload string, threads int) *cell {
	for _, c := range cs.list {
		if c.Threads == threads && c.Network == network && c.Workload == workload && c.Variant() == variant {
			return c
		}
	}
	return nil
}

// The orders in the reports. Names that are not listed come after, in alphabetical order.
var (
	systemOrder   = []string{"standalone", "async", "semisync", "mgr", "mgr-after", "mgr-multi", "galera", "router", ours}
	networkOrder  = []string{"same-rack", "same-city", "two-city", "three-city"}
	workloadOrder = []string{
		"oltp_write_only", "oltp_read_write", "oltp_read_only", "oltp_update_index", "point_select", "point_update",
		"kill-primary", "kill-secondary", "restart-primary", "restart-secondary", "freeze-primary", "freeze-secondary",
		"partition-primary", "partition-secondary", "crash-primary", "switchover-primary", "kill-city", "switchover-city", "majority-crash", "power-loss", "50k", "100k", "200k", "100MB", "1GB",
	}
)

// ours is the system that the others are compared with.
const ours = "quorate"

func byRank(order []string) func(a, b string) int {
	rank := func(s string) int {
		if i := slices.Index(order, s); i >= 0 {
			return i
		}
		return len(order)
	}
	return func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) }
}

func label(variant string) string { return strings.ReplaceAll(variant, ",", " ") }

// number writes three digits, and groups those of large numbers: 12 345, 123, 12.3, 1.23, 0.123.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a >= 99.95:
		return grouped(math.Round(v))
	case a >= 9.995:
		return trim(strconv.FormatFloat(v, 'f', 1, 64))
	case a >= 0.9995:
		return trim(strconv.FormatFloat(v, 'f', 2, 64))
	}
	return trim(strconv.FormatFloat(v, 'f', 3, 64))
}

func trim(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// grouped writes an integer with thin spaces, which do not break.
func grouped(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	var b strings.Builder
	if v < 0 {
		b.WriteByte('-')
	}
	for i, digit := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

// duration writes milliseconds as people do: 45 ms, 2.3 s, 3 min 20 s.
func duration(ms float64) string {
	switch {
	case ms < 1000:
		return number(math.Round(ms)) + " ms"
	case ms < 99_950:
		return trim(strconv.FormatFloat(ms/1000, 'f', 1, 64)) + " s"
	}
	s := int(math.Round(ms / 1000))
	return fmt.Sprintf("%d min %d s", s/60, s%60)
}

// times writes a ratio: ×1.47, ×12, ×0.25.
func times(r float64) string {
	switch {
	case math.IsNaN(r) || math.IsInf(r, 0) || r <= 0:
		return "–"
	case r >= 9.95:
		return "×" + grouped(math.Round(r))
	case r >= 1.995:
		return "×" + strconv.FormatFloat(r, 'f', 1, 64)
	}
	return "×" + strconv.FormatFloat(r, 'f', 2, 64)
}
