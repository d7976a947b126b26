package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
)

// result is everything that was measured; the JSON names are an interface.
type result struct {
	Machine    machine      `json:"machine"`
	Points     []point      `json:"sysbench,omitempty"`
	Ratios     []ratio      `json:"ratios,omitempty"`
	SplitLoads []splitLoad  `json:"split_loads,omitempty"`
	Split      []stage      `json:"split,omitempty"`
	Kills      []killSeries `json:"kills,omitempty"`
	Ledger     *killVerdict `json:"ledger,omitempty"`
	// Failures have verdicts of their own.
	Failures    []failureSeries `json:"failures,omitempty"`
	Large       []largePoint    `json:"large,omitempty"`
	LargeRatios []largeRatio    `json:"large_ratios,omitempty"`
	Log         []goBenchmark   `json:"log,omitempty"`
	// logTables are lines for the eye; Log has their figures.
	logTables []string
	// Notes say what is missing, Faults what must not be.
	Notes  []string `json:"notes,omitempty"`
	Faults []string `json:"faults,omitempty"`
}

// machine is where and with what the figures were measured.
type machine struct {
	Began  string `json:"began"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	// LoadAverage is the machine's load over the minute before the run: what
	// is above a few tenths is somebody else's work.
	LoadAverage string `json:"load_average"`
	MySQL       string `json:"mysql,omitempty"`
	Sysbench    string `json:"sysbench,omitempty"`
	Warning     string `json:"warning,omitempty"`
}

// ratio compares two systems at one workload and number of threads: the median
// over the rounds of the one's figure divided by the other's.
type ratio struct {
	Workload     string  `json:"workload"`
	Threads      int     `json:"threads"`
	System       string  `json:"system"`
	Against      string  `json:"against"`
	TPS          float64 `json:"tps"`
	EffectiveTPS float64 `json:"effective_tps"`
	P95          float64 `json:"p95"`
	Rounds       int     `json:"rounds"`
}

// comparisons are the pairs of systems that ratios are made of.
func comparisons() [][2]string {
	return [][2]string{
		{systemQuorate, systemStandalone}, {systemQuorate, systemAsync}, {systemQuorate, systemDirect},
	}
}

func (r *result) faulty() bool {
	return len(r.Faults) > 0 || slices.ContainsFunc(r.Points, func(p point) bool { return p.Error != "" }) ||
		slices.ContainsFunc(r.Large, func(p largePoint) bool { return p.Error != "" })
}

// median returns the middle of the values, NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// setting is one workload at one number of threads.
type setting struct {
	workload string
	threads  int
}

// settings returns the measured ones in the order of the run.
func (r *result) settings() []setting {
	var all []setting
	for _, p := range r.Points {
		if s := (setting{p.Workload, p.Threads}); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// rounds returns the points of one system at one setting that have figures, by
// round.
func (r *result) rounds(s setting, system string) map[int]point {
	found := map[int]point{}
	for _, p := range r.Points {
		if p.System == system && p.Workload == s.workload && p.Threads == s.threads && p.Error == "" {
			found[p.Round] = p
		}
	}
	return found
}

// computeRatios fills Ratios from Points.
func (r *result) computeRatios() {
	r.Ratios = nil
	for _, s := range r.settings() {
		for _, c := range comparisons() {
			ours, theirs := r.rounds(s, c[0]), r.rounds(s, c[1])
			var tps, effective, p95 []float64
			for n, o := range ours {
				if t, ok := theirs[n]; ok {
					tps = append(tps, o.TPS/t.TPS)
					effective = append(effective, o.EffectiveTPS/t.EffectiveTPS)
					p95 = append(p95, o.P95Ms/t.P95Ms)
				}
			}
			if len(tps) == 0 {
				continue
			}
			r.Ratios = append(r.Ratios, ratio{
				Workload: s.workload, Threads: s.threads, System: c[0], Against: c[1], Rounds: len(tps),
				TPS: median(tps), EffectiveTPS: median(effective), P95: median(p95),
			})
		}
	}
}

// writeJSON writes the results to a file.
func (r *result) writeJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// report prints the results for people.
func (r *result) report(out io.Writer, o options) {
	r.computeRatios()
	m := r.Machine
	fmt.Fprintf(out, "quorate bench  %s  %d CPUs, load %s, Linux %s, MySQL %s, %s\n",
		m.Began, m.CPUs, m.LoadAverage, m.Kernel, m.MySQL, m.Sysbench)
	if m.Warning != "" {
		fmt.Fprintf(out, "WARNING: %s\n", m.Warning)
	}
	r.reportSysbench(out, o)
	r.reportRatios(out)
	r.reportSplit(out)
	r.reportKills(out)
	r.reportFailures(out)
	r.reportLarge(out)
	r.reportLog(out)
	for _, n := range r.Notes {
		fmt.Fprintf(out, "\nnote: %s\n", n)
	}
	for _, f := range r.Faults {
		fmt.Fprintf(out, "\nFAULT: %s\n", f)
	}
}

// table prints aligned columns: the first row is the heading.
func table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		for _, cell := range row {
			fmt.Fprintf(w, "%s\t", cell)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

func (r *result) reportSysbench(out io.Writer, o options) {
	if len(r.Points) == 0 {
		return
	}
	fmt.Fprintf(out, "\nsysbench, %d tables of %d rows, %v each, %d round(s); medians over the rounds; CPU in µs per transaction\n",
		o.tables, o.tableSize, o.duration, o.rounds)
	fmt.Fprintf(out, "quorate: through the primary's router; quorate-direct: on the primary's mysqld (%s); the others by TCP\n", o.direct)
	fmt.Fprint(out, "async: with few cores its replicas' coordinators, which wait by sched_yield, take CPU from all (test/bench/doc.go)\n")
	rows := [][]string{{"workload", "threads", "system", "tps", "effective", "p95 ms", "avg ms", "catch-up s", "agents", "mysqlds", "client"}}
	for _, s := range r.settings() {
		for _, name := range systemNames() {
			points := r.rounds(s, name)
			if len(points) == 0 {
				continue
			}
			med := func(f func(point) float64) float64 {
				var values []float64
				for _, p := range points {
					values = append(values, f(p))
				}
				return median(values)
			}
			rows = append(rows, []string{s.workload, fmt.Sprint(s.threads), name,
				fmt.Sprintf("%.0f", med(func(p point) float64 { return p.TPS })),
				fmt.Sprintf("%.0f", med(func(p point) float64 { return p.EffectiveTPS })),
				fmt.Sprintf("%.2f", med(func(p point) float64 { return p.P95Ms })),
				fmt.Sprintf("%.2f", med(func(p point) float64 { return p.AvgMs })),
				fmt.Sprintf("%.2f", med(func(p point) float64 { return p.CatchUpSeconds })),
				fmt.Sprintf("%.0f", med(func(p point) float64 { return p.AgentCPUMicros })),
				fmt.Sprintf("%.0f", med(func(p point) float64 { return p.MysqldCPUMicros })),
				fmt.Sprintf("%.0f", med(func(p point) float64 { return p.ClientCPUMicros })),
			})
		}
	}
	table(out, rows)
	for _, p := range r.Points {
		if p.Error != "" {
			fmt.Fprintf(out, "failed: %s\n", p.line())
		}
	}
}

func (r *result) reportRatios(out io.Writer) {
	if len(r.Ratios) == 0 {
		return
	}
	fmt.Fprint(out, "\nratios (tps and effective: more is better for the first; p95: less is)\n")
	rows := [][]string{{"workload", "threads", "ratio", "tps", "effective", "p95", "rounds"}}
	for _, q := range r.Ratios {
		rows = append(rows, []string{q.Workload, fmt.Sprint(q.Threads), q.System + " / " + q.Against,
			fmt.Sprintf("%.2f", q.TPS), fmt.Sprintf("%.2f", q.EffectiveTPS), fmt.Sprintf("%.2f", q.P95), fmt.Sprint(q.Rounds)})
	}
	table(out, rows)
}

func (r *result) reportSplit(out io.Writer) {
	if len(r.Split) == 0 {
		return
	}
	fmt.Fprintf(out, "\ncommit latency taken apart, %s through the router; times in ms, quantiles interpolated in their buckets\n", splitWorkload)
	for _, l := range r.SplitLoads {
		fmt.Fprintf(out, "%d threads: %.0f tps, a transaction takes %.2f ms on average, p95 %.2f ms\n", l.Threads, l.TPS, l.AvgMs, l.P95Ms)
	}
	rows := [][]string{{"threads", "node", "histogram", "count", "mean", "p50", "p99"}}
	for _, s := range r.Split {
		rows = append(rows, []string{fmt.Sprint(s.Threads), s.Node, s.Histogram, fmt.Sprintf("%.0f", s.Count),
			fmt.Sprintf("%.3f", s.MeanMs), fmt.Sprintf("%.3f", s.P50Ms), fmt.Sprintf("%.3f", s.P99Ms)})
	}
	table(out, rows)
}

func (r *result) reportKills(out io.Writer) {
	if len(r.Kills) > 0 {
		fmt.Fprint(out, "\nwrite gap over kills of the primary, in ms\n")
		rows := [][]string{{"killed", "kills", "min", "median", "max"}}
		for _, k := range r.Kills {
			rows = append(rows, []string{k.Kind, fmt.Sprint(k.Kills),
				fmt.Sprintf("%.0f", k.MinMs), fmt.Sprintf("%.0f", k.MedianMs), fmt.Sprintf("%.0f", k.MaxMs)})
		}
		table(out, rows)
	}
	r.Ledger.report(out)
}

// report prints what became of the rows, if it was looked at.
func (v *killVerdict) report(out io.Writer) {
	if v != nil {
		fmt.Fprintf(out, "ledger: %d rows acknowledged, %d of unknown outcome, %d lost, %d diverged\n",
			v.Acknowledged, v.Unknown, v.Lost, v.Diverged)
		for _, f := range v.Findings {
			fmt.Fprintf(out, "  %s\n", f)
		}
	}
}

func (r *result) reportLog(out io.Writer) {
	if len(r.Log) == 0 {
		return
	}
	fmt.Fprint(out, "\nthe log's own benchmarks\n")
	for _, line := range r.logTables {
		fmt.Fprintf(out, "  %s\n", line)
	}
	for _, g := range r.Log {
		if _, timed := g.Values["ns/op"]; !timed {
			continue // a comparison: it is in a table
		}
		fmt.Fprintf(out, "  %-40s %9d runs", g.Name, g.Runs)
		for _, unit := range g.order {
			fmt.Fprintf(out, "  %g %s", g.Values[unit], unit)
		}
		fmt.Fprintln(out)
	}
}
