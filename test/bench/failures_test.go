package main

import (
	"strings"
	"testing"
)

func TestNearestRank(t *testing.T) {
	var twenty []float64
	for n := range 20 {
		twenty = append(twenty, float64(20-n))
	}
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{[]float64{7}, 0.5, 7}, {[]float64{7}, 0.99, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
		{twenty, 0.5, 10}, {twenty, 0.99, 20},
	} {
		if got := nearestRank(c.values, c.q); got != c.want {
			t.Errorf("nearestRank(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
}

// TestReportFailures: what was missed is said, and every ledger is shown.
func TestReportFailures(t *testing.T) {
	kinds := failureClusters()[false]
	frozen, killed := newFailureSeries(kinds[0], []float64{1500}), newFailureSeries(kinds[1], []float64{400, 600, 700})
	frozen.Ledger = &killVerdict{Acknowledged: 5}
	var out strings.Builder
	(&result{Failures: []failureSeries{killed, frozen}}).reportFailures(&out)
	for _, want := range []string{"600", "MISSED", "1500", "met", "5 rows acknowledged", "X-Paxos 8 s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}
