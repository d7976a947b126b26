package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scrapeTimeout bounds one request for metrics.
const scrapeTimeout = 5 * time.Second

// histogram is one Prometheus histogram at one moment, or the difference of
// two: per upper bound in seconds the cumulative count, +Inf included.
type histogram struct {
	buckets map[float64]float64
	sum     float64
	count   float64
}

// scrape reads all histograms quorate_*_seconds of an agent, by their names
// without the prefix, labels other than le appended.
func scrape(ctx context.Context, addr string) (map[string]histogram, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for metrics: %s", resp.Status)
	}
	return parseHistograms(resp.Body)
}

// parseHistograms reads Prometheus' text format (version 0.0.4), of which it
// keeps the histograms quorate_*_seconds.
func parseHistograms(r io.Reader) (map[string]histogram, error) {
	sample := regexp.MustCompile(`^quorate_(\w+_seconds)_(bucket|sum|count)(?:\{(.*)\})? (\S+)$`)
	bound := regexp.MustCompile(`(?:^|,)le="([^"]*)"`)
	found := map[string]histogram{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		m := sample.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			return nil, fmt.Errorf("read metrics: %q: %w", lines.Text(), err)
		}
		name := m[1]
		if labels := strings.Trim(bound.ReplaceAllString(m[3], ""), ","); labels != "" {
			name += "{" + labels + "}"
		}
		h, ok := found[name]
		if !ok {
			h.buckets = map[float64]float64{}
		}
		switch m[2] {
		case "sum":
			h.sum = value
		case "count":
			h.count = value
		case "bucket":
			le := bound.FindStringSubmatch(m[3])
			if le == nil {
				return nil, fmt.Errorf("read metrics: %q has no le", lines.Text())
			}
			upper, err := strconv.ParseFloat(le[1], 64) // reads +Inf, too
			if err != nil {
				return nil, fmt.Errorf("read metrics: %q: %w", lines.Text(), err)
			}
			h.buckets[upper] = value
		}
		found[name] = h
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	// A summary has _sum and _count as well, and no bucket.
	maps.DeleteFunc(found, func(_ string, h histogram) bool { return len(h.buckets) == 0 })
	return found, nil
}

// minus returns what h counted since before.
func (h histogram) minus(before histogram) histogram {
	d := histogram{buckets: map[float64]float64{}, sum: h.sum - before.sum, count: h.count - before.count}
	for upper, n := range h.buckets {
		d.buckets[upper] = n - before.buckets[upper]
	}
	return d
}

// quantile returns the value below which the share q of the observations lies,
// interpolated linearly inside its bucket, as Prometheus' histogram_quantile
// does. In the last, open bucket it is that bucket's lower bound; NaN without
// observations.
func (h histogram) quantile(q float64) float64 {
	if h.count == 0 {
		return math.NaN()
	}
	rank := q * h.count
	lower, below := 0.0, 0.0
	for _, upper := range slices.Sorted(maps.Keys(h.buckets)) {
		if n := h.buckets[upper]; n >= rank && n > below {
			if math.IsInf(upper, 1) {
				return lower
			}
			return lower + (upper-lower)*(rank-below)/(n-below)
		}
		lower, below = upper, h.buckets[upper]
	}
	return lower
}
