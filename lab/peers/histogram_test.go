package peers

import (
	"math"
	"testing"
)

func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	h := Histogram{buckets: map[float64]uint64{0.001: 10, 0.002: 90, 0.004: 90, inf: 100}, Count: 100}
	for _, c := range []struct{ q, want float64 }{
		{0.05, 0.0005}, // half of the first bucket, which begins at 0
		{0.10, 0.001},
		{0.50, 0.0015},
		{0.90, 0.002},
		{0.99, 0.004}, // in the open bucket: its lower bound
	} {
		if got := h.Quantile(c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile %g is %g, want %g", c.q, got, c.want)
		}
	}
	if got := (Histogram{}).Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("a quantile of nothing is %g", got)
	}
	before := Histogram{buckets: map[float64]uint64{0.001: 10, 0.002: 10, 0.004: 10, inf: 10}, Count: 10}
	if got, want := h.Since(before).Quantile(0.5), 0.001+0.001*45/80; math.Abs(got-want) > 1e-9 {
		t.Errorf("the window's median is %g, want %g", got, want)
	}
	if got := before.Since(h); got.Count != 0 {
		t.Errorf("an agent that began again has counted %d", got.Count)
	}
}
