package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// logPackage holds the log's benchmarks.
	logPackage = "./internal/seglog"
	// logBenchTime is go test's -benchtime, logBenchWait the limit for it all.
	// The comparisons run for as long as they need, whatever it says.
	logBenchTime = 3 * time.Second
	logBenchWait = 5 * time.Minute
	// logTableMark begins each line of a table that they print.
	logTableMark = "| "
)

// goBenchmark is one line of go test -bench.
type goBenchmark struct {
	Name string `json:"name"`
	Runs int64  `json:"runs"`
	// Values holds the figures by their units, such as "ns/op" and "p99-us".
	Values map[string]float64 `json:"values"`
	// order keeps the units as they were printed.
	order []string
}

// runLog is part log: the log's own benchmarks, run in the repository's root.
func (b *bench) runLog(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, logBenchWait)
	defer cancel()
	b.say("log: go test -bench . %s", logPackage)
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".",
		"-benchtime", logBenchTime.String(), "-timeout", logBenchWait.String(), logPackage)
	// They write where the servers do.
	cmd.Env = append(os.Environ(), "QUORATE_BENCH_DIR="+b.dir)
	// go test's own children end with its process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("go test -bench %s: %w: %s", logPackage, err, out[max(0, len(out)-outputTailBytes):])
	}
	b.result.Log, b.result.logTables = parseBenchmarks(string(out)), parseTables(string(out))
	if len(b.result.Log) == 0 {
		b.result.Notes = append(b.result.Notes, logPackage+" has no benchmark")
	}
	return nil
}

// parseBenchmarks reads the benchmark lines of go test's output:
// BenchmarkName-CPUS, the number of runs, then pairs of value and unit.
func parseBenchmarks(out string) []goBenchmark {
	var all []goBenchmark
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		runs, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue // a log line that begins like one
		}
		g := goBenchmark{Name: strings.TrimPrefix(f[0], "Benchmark"), Runs: runs, Values: map[string]float64{}}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				g.Values[f[i+1]] = v
				g.order = append(g.order, f[i+1])
			}
		}
		all = append(all, g)
	}
	return all
}

// parseTables returns the lines of the tables in go test's output.
func parseTables(out string) []string {
	var lines []string
	for line := range strings.Lines(out) {
		if row, ok := strings.CutPrefix(line, logTableMark); ok {
			lines = append(lines, strings.TrimRight(row, "\n"))
		}
	}
	return lines
}
