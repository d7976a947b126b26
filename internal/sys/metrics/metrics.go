package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is a metric's type, as Prometheus calls it.
type Type string

// The types.
const (
	TypeGauge     Type = "gauge"
	TypeCounter   Type = "counter"
	TypeHistogram Type = "histogram"
)

// Desc describes a metric.
type Desc struct {
	Name string
	Type Type
	// Help says what it means, Look when to look at it.
	Help, Look string
	// Labels are the names of its labels.
	Labels []string
}

// Section is a part of the list.
type Section struct {
	Title, Text string
	Metrics     []Desc
}

// Sections returns the list, in the order in which to read it.
func Sections() []Section { return sections }

// Find returns a metric of the list.
func Find(name string) (d Desc, ok bool) {
	for _, s := range sections {
		for _, d := range s.Metrics {
			if d.Name == name {
				return d, true
			}
		}
	}
	return Desc{}, false
}

// Sample is what a metric is at one moment.
type Sample struct {
	Name  string
	Value float64
	// Labels are the values of its labels, in the order of the list.
	Labels []string
}

// Of makes a sample.
func Of[N ~int | ~int64 | ~uint64 | ~float64](name string, value N, labels ...string) Sample {
	return Sample{name, float64(value), labels}
}

// Bool makes a sample that is 1 or 0.
func Bool(name string, yes bool, labels ...string) Sample {
	if yes {
		return Of(name, 1, labels...)
	}
	return Of(name, 0, labels...)
}

// OneOf makes a sample for each of all states: 1 for the present one.
func OneOf[S ~string](name string, all []S, present S) (samples []Sample) {
	for _, s := range all {
		samples = append(samples, Bool(name, s == present, string(s)))
	}
	return samples
}

// Collector shows at each scrape the samples of that moment. It describes none in advance, because the node's
// state decides which samples there are.
func Collector(samples func() []Sample) prometheus.Collector {
	return collector{samples}
}

type collector struct{ samples func() []Sample }

func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect reports a sample that is not in the list as an error of the scrape; it never panics.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.samples() {
		out <- s.metric()
	}
}

func (s Sample) metric() prometheus.Metric {
	d, _ := Find(s.Name)
	desc, kind := prometheus.NewDesc(s.Name, d.Help, d.Labels, nil), prometheus.GaugeValue
	err := error(nil)
	switch d.Type {
	case TypeCounter:
		kind = prometheus.CounterValue
	case TypeGauge:
	default:
		err = fmt.Errorf("metric %s is not in the list of package metrics, or is kept", s.Name)
	}
	if err == nil {
		var m prometheus.Metric
		if m, err = prometheus.NewConstMetric(desc, kind, s.Value, s.Labels...); err == nil {
			return m
		}
	}
	return prometheus.NewInvalidMetric(desc, err)
}

// Histogram makes a histogram of the list.
func Histogram(name string, buckets []float64) prometheus.Histogram {
	d, _ := Find(name)
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: d.Help, Buckets: buckets})
}

// Counter makes a counter of the list. If the metric has a label, this counter has one fixed value of it: the
// caller needs no table of counters.
func Counter(name string, label ...string) prometheus.Counter {
	d, _ := Find(name)
	labels := prometheus.Labels{}
	for i, value := range label {
		labels[d.Labels[i]] = value
	}
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: d.Help, ConstLabels: labels})
}

// FineSeconds are buckets from 50 µs to 41 s, in steps of 1.25: a quantile is right within 12 %.
func FineSeconds() []float64 { return prometheus.ExponentialBuckets(50e-6, 1.25, 62) }

// CoarseSeconds are buckets from 20 µs to 10 s, in steps of 2: enough to see where time goes.
func CoarseSeconds() []float64 { return prometheus.ExponentialBuckets(20e-6, 2, 20) }
