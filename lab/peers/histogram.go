package peers

import (
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// Histogram is a histogram of Prometheus at one moment, or the difference of two: the cumulative
// count below each upper bound in seconds.
type Histogram struct {
	Count   uint64
	buckets map[float64]uint64
}

func newHistogram(h *dto.Histogram) Histogram {
	made := Histogram{Count: h.GetSampleCount(), buckets: map[float64]uint64{}}
	for _, b := range h.GetBucket() {
		made.buckets[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	return made
}

// Since returns what h has counted since before; nothing if before comes from another process.
func (h Histogram) Since(before Histogram) Histogram {
	if h.Count < before.Count {
		return Histogram{}
	}
	d := Histogram{Count: h.Count - before.Count, buckets: map[float64]uint64{}}
	for upper, n := range h.buckets {
		d.buckets[upper] = n - before.buckets[upper]
	}
	return d
}

// Quantile returns the value in seconds below which the share q of the observations lies,
// interpolated linearly inside its bucket, as Prometheus' histogram_quantile does. In the
// last, open bucket it is that bucket's lower bound; NaN without observations.
func (h Histogram) Quantile(q float64) float64 {
	if h.Count == 0 {
		return math.NaN()
	}
	rank := q * float64(h.Count)
	lower, below := 0.0, 0.0
	for _, upper := range slices.Sorted(maps.Keys(h.buckets)) {
		if n := float64(h.buckets[upper]); n >= rank && n > below {
			if math.IsInf(upper, 1) {
				break
			}
			return lower + (upper-lower)*(rank-below)/(n-below)
		}
		if !math.IsInf(upper, 1) {
			lower, below = upper, float64(h.buckets[upper])
		}
	}
	return lower
}
