package workload

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sample is what a run of sysbench reports.
type Sample struct {
	Transactions int64
	Seconds      float64
	TPS, QPS     float64
	// P50MS, P95MS and P99MS are percentiles of the time of a transaction, from sysbench's histogram, whose
	// buckets are some percent apart.
	P50MS, P95MS, P99MS float64
	// Errors are transactions that were rolled back and tried again.
	Errors, Reconnects int64
	// PerSecond are the transactions of each second.
	PerSecond []float64
	// ClientCPU is the CPU time of sysbench itself.
	ClientCPU time.Duration
}

var (
	reportLine    = regexp.MustCompile(`(?m)^\[ \d+s \] thds: \d+ tps: ([0-9.]+) `)
	histogramLine = regexp.MustCompile(`(?m)^\s*([0-9.]+) \|[* ]+ (\d+)\s*$`)
)

// parse reads the report that sysbench 1.0 prints.
func parse(out string) (Sample, error) {
	var s Sample
	var transactions, queries, ignored, reconnects float64
	for _, f := range []struct {
		pattern string
		dest    *float64
	}{
		{`(?m)^\s*transactions:\s+([0-9]+)\s`, &transactions},
		{`(?m)^\s*queries:\s+([0-9]+)\s`, &queries},
		{`(?m)^\s*ignored errors:\s+([0-9]+)\s`, &ignored},
		{`(?m)^\s*reconnects:\s+([0-9]+)\s`, &reconnects},
		{`(?m)^\s*total time:\s+([0-9.]+)s`, &s.Seconds},
	} {
		m := regexp.MustCompile(f.pattern).FindStringSubmatch(out)
		if m == nil {
			return s, fmt.Errorf("read sysbench's report: nothing matches %s: %s", f.pattern, failureText(out))
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return s, fmt.Errorf("read sysbench's report: %w", err)
		}
		*f.dest = v
	}
	s.Transactions, s.Errors, s.Reconnects = int64(transactions), int64(ignored), int64(reconnects)
	for _, m := range reportLine.FindAllStringSubmatch(out, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return s, fmt.Errorf("read sysbench's report: %w", err)
		}
		s.PerSecond = append(s.PerSecond, v)
	}
	if s.Transactions == 0 || s.Seconds == 0 {
		return s, fmt.Errorf("read sysbench's report: %d transactions in %g s, %d errors", s.Transactions, s.Seconds, s.Errors)
	}
	s.TPS, s.QPS = transactions/s.Seconds, queries/s.Seconds
	return s, s.readHistogram(out)
}

func (s *Sample) readHistogram(out string) error {
	var values, counts []float64
	for _, m := range histogramLine.FindAllStringSubmatch(out, -1) {
		value, err := strconv.ParseFloat(m[1], 64)
		count, err2 := strconv.ParseFloat(m[2], 64)
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("read sysbench's histogram: %w", err)
		}
		values, counts = append(values, value), append(counts, count)
	}
	if len(values) == 0 || !slices.IsSorted(values) {
		return fmt.Errorf("read sysbench's histogram: there is none: %s", strings.TrimSpace(out[:min(len(out), outputTailBytes)]))
	}
	s.P50MS, s.P95MS, s.P99MS = percentile(values, counts, 50), percentile(values, counts, 95), percentile(values, counts, 99)
	return nil
}

// percentile returns the least value so that percent of what was counted is at most that value.
func percentile(values, counts []float64, percent float64) float64 {
	total := 0.0
	for _, n := range counts {
		total += n
	}
	sum := 0.0
	for i, n := range counts {
		if sum += n; sum >= total*percent/100 {
			return values[i]
		}
	}
	return values[len(values)-1]
}

// CV is the coefficient of variation of values: the standard deviation in percent of the
// mean.
func CV(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	mean := sum / float64(len(values))
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return 100 * math.Sqrt(squares/float64(len(values))) / mean
}
