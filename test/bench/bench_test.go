package main

import (
	"bytes"
	"context"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const sysbenchReport = `SQL statistics:
    queries performed:
        total:                           27907
    transactions:                        4648   (1547.72 per sec.)
    queries:                             27907  (9292.64 per sec.)

General statistics:
    total time:                          3.0024s
    total number of events:              4648

Latency (ms):
         min:                                    0.46
         avg:                                    2.58
         max:                                  102.67
         95th percentile:                        6.21
         sum:                                11995.21

Threads fairness:
    events (avg/stddev):           1162.0000/16.42
`

func TestParseLoad(t *testing.T) {
	got, err := parseLoad(sysbenchReport)
	if err != nil {
		t.Fatal(err)
	}
	want := load{transactions: 4648, seconds: 3.0024, p95Ms: 6.21, avgMs: 2.58}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, missing := range []string{"    transactions:", "    total time:", "95th percentile", "avg:"} {
		if _, err := parseLoad(strings.ReplaceAll(sysbenchReport, missing, "x")); err == nil {
			t.Errorf("a report without %q is taken", missing)
		}
	}
	if _, err := parseLoad(strings.ReplaceAll(sysbenchReport, "4648", "0")); err == nil {
		t.Error("a run without a transaction is taken")
	}
}

func TestFailureText(t *testing.T) {
	out := "Threads started!\nFATAL: error 1045: Access denied\nFATAL: second\n"
	if got, want := failureText(out), "FATAL: error 1045: Access denied"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// metrics is the end of a scrape: a counter with a like name, a histogram with
// and one without labels, a summary.
const metrics = `# HELP quorate_log_append_seconds Time.
# TYPE quorate_log_append_seconds histogram
quorate_log_append_seconds_bucket{le="0.001"} 10
quorate_log_append_seconds_bucket{le="0.002"} 90
quorate_log_append_seconds_bucket{le="+Inf"} 100
quorate_log_append_seconds_sum 0.5
quorate_log_append_seconds_count 100
quorate_log_sync_seconds_total 12.5
quorate_x_seconds_bucket{peer="b",le="1"} 1
quorate_x_seconds_bucket{peer="b",le="+Inf"} 2
quorate_x_seconds_sum{peer="b"} 3
quorate_x_seconds_count{peer="b"} 2
quorate_y_seconds{quantile="0.5"} 3
quorate_y_seconds_sum 3
quorate_y_seconds_count 2
go_gc_duration_seconds_sum 1
`

func TestParseHistograms(t *testing.T) {
	got, err := parseHistograms(strings.NewReader(metrics))
	if err != nil {
		t.Fatal(err)
	}
	inf := math.Inf(1)
	want := map[string]histogram{
		"log_append_seconds":  {buckets: map[float64]float64{0.001: 10, 0.002: 90, inf: 100}, sum: 0.5, count: 100},
		`x_seconds{peer="b"}`: {buckets: map[float64]float64{1: 1, inf: 2}, sum: 3, count: 2},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(histogram{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if _, err := parseHistograms(strings.NewReader(`quorate_x_seconds_bucket{peer="b"} 1` + "\n")); err == nil {
		t.Error("a bucket without le is taken")
	}
}

func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	h := histogram{buckets: map[float64]float64{0.001: 10, 0.002: 90, 0.004: 90, inf: 100}, count: 100}
	for _, c := range []struct{ q, want float64 }{
		{0.05, 0.0005}, // half of the first bucket, which begins at 0
		{0.10, 0.001},
		{0.50, 0.0015},
		{0.90, 0.002},
		{0.99, 0.004}, // in the open bucket: its lower bound
	} {
		if got := h.quantile(c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile %g is %g, want %g", c.q, got, c.want)
		}
	}
	if got := (histogram{}).quantile(0.5); !math.IsNaN(got) {
		t.Errorf("a quantile of nothing is %g", got)
	}
	before := histogram{buckets: map[float64]float64{0.001: 10, 0.002: 10, 0.004: 10, inf: 10}, count: 10}
	if got, want := h.minus(before).quantile(0.5), 0.001+0.001*45/80; math.Abs(got-want) > 1e-9 {
		t.Errorf("the window's median is %g, want %g", got, want)
	}
}

func TestParseCPUTime(t *testing.T) {
	// A command may hold blanks and parentheses (proc_pid_stat(5)).
	stat := "4242 (ld-linux (x) 1) S 1 4242 4242 0 -1 4194560 100 0 0 0 250 125 0 0 20 0 40 0 1000 1 2 3"
	got, err := parseCPUTime([]byte(stat))
	if err != nil {
		t.Fatal(err)
	}
	if want := 3750 * time.Millisecond; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := parseCPUTime([]byte("4242 (x) Z 1")); err == nil {
		t.Error("a short line is taken")
	}
}

func TestParseBenchmarks(t *testing.T) {
	out := "goos: linux\nBenchmarkAppend/1KiB-2  \t 8467\t 397318 ns/op\t 158 p50-µs\nBenchmark notes: none of them\nPASS\n"
	want := []goBenchmark{{
		Name: "Append/1KiB-2", Runs: 8467, Values: map[string]float64{"ns/op": 397318, "p50-µs": 158},
		order: []string{"ns/op", "p50-µs"},
	}}
	if d := cmp.Diff(want, parseBenchmarks(out), cmp.AllowUnexported(goBenchmark{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestReportLog: a comparison is shown as its table, all else as a line.
func TestReportLog(t *testing.T) {
	const output = "BenchmarkAppend/1x1KiB-2 \t 1\t 154.0 group-p50-µs\n" +
		"| group commit\n|          group-p50-µs\n|   1x1KiB          154\n" +
		"BenchmarkOpen-2 \t 20\t 50000 ns/op\nPASS\n"
	r := result{Log: parseBenchmarks(output), logTables: parseTables(output)}
	var got strings.Builder
	r.reportLog(&got)
	want := "\nthe log's own benchmarks\n" +
		"  group commit\n           group-p50-µs\n    1x1KiB          154\n" +
		"  Open-2                                          20 runs  50000 ns/op\n"
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestRatios: a ratio is made within each round, and a failed turn makes none.
func TestRatios(t *testing.T) {
	p := func(round int, system string, tps float64) point {
		return point{Round: round, System: system, Workload: "w", Threads: 4, TPS: tps, EffectiveTPS: tps / 2, P95Ms: 1000 / tps}
	}
	failed := p(4, systemQuorate, 9000)
	failed.Error = "broken"
	r := result{Points: []point{
		p(1, systemQuorate, 100), p(1, systemStandalone, 100),
		p(2, systemQuorate, 90), p(2, systemStandalone, 30), // the machine was slow
		p(3, systemQuorate, 200), p(3, systemStandalone, 100),
		failed, p(4, systemStandalone, 100),
	}}
	r.computeRatios()
	want := []ratio{{Workload: "w", Threads: 4, System: systemQuorate, Against: systemStandalone,
		TPS: 2, EffectiveTPS: 2, P95: 0.5, Rounds: 3}}
	if d := cmp.Diff(want, r.Ratios, cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if !r.faulty() {
		t.Error("a run with a failed turn passes")
	}
	var out bytes.Buffer
	r.report(&out, options{rounds: 4})
	for _, text := range []string{"quorate / standalone", "2.00", "failed: round 4"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the report lacks %q:\n%s", text, out.String())
		}
	}
}

func TestFill(t *testing.T) {
	var p point
	p.fill(load{transactions: 1000, seconds: 8, p95Ms: 3, avgMs: 2, clientCPU: 100 * time.Millisecond},
		2*time.Second, usage{agents: 200 * time.Millisecond, servers: time.Second})
	want := point{Transactions: 1000, Seconds: 8, TPS: 125, CatchUpSeconds: 2, EffectiveTPS: 100, P95Ms: 3, AvgMs: 2,
		AgentCPUMicros: 200, MysqldCPUMicros: 1000, ClientCPUMicros: 100}
	if d := cmp.Diff(want, p, cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range []string{
		"--only disk", "--systems galera", "--threads 0", "--threads x", "--rounds 0", "--time 10ms",
		"--direct tls", "--set x", "--kills 0", "--failures 0", "--writers 0", "stray",
	} {
		if err := run(context.Background(), strings.Fields(args), io.Discard, io.Discard); err == nil {
			t.Errorf("%s is taken", args)
		}
	}
}

// TestLarge: what ends before the large COMMIT is its background, what is under
// way with it is held up by it; a ratio is made within each round.
func TestLarge(t *testing.T) {
	start := time.Now()
	at := func(began, ended int) commit {
		return commit{start.Add(time.Duration(began) * time.Millisecond), start.Add(time.Duration(ended) * time.Millisecond)}
	}
	var p largePoint
	p.fill(at(100, 500), []commit{at(0, 4), at(4, 10), at(10, 12), at(98, 130), at(110, 505), at(490, 520), at(501, 2000)})
	if want := (largePoint{CommitMs: 400, StallMs: 395, SmallMs: 4}); p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
	var r result
	for round, ms := range []float64{100, 300, 200} {
		r.Large = append(r.Large, largePoint{Round: round, System: systemStandalone, MiB: 64, CommitMs: 100, StallMs: 100},
			largePoint{Round: round, System: systemQuorate, MiB: 64, CommitMs: ms, StallMs: 2 * ms})
	}
	var out bytes.Buffer
	r.reportLarge(&out)
	want := []largeRatio{{MiB: 64, Against: systemStandalone, Commit: 2, Stall: 4}}
	if d := cmp.Diff(want, r.LargeRatios); d != "" {
		t.Errorf("-want +got:\n%s\n%s", d, out.String())
	}
}
