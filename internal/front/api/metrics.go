package api

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quorate/quorate/internal/sys/strangers"
)

// Metric is one figure at one moment.
type Metric struct {
	// Name is the full name with the unit last, such as
	// "quorate_log_fsync_seconds_total". Metrics of one name share Help, Counter
	// and the names of their labels.
	Name string
	// Help is one sentence.
	Help string
	// Counter: the figure only grows while the agent runs. Otherwise it is a gauge.
	Counter bool
	Labels  map[string]string
	Value   float64
}

// collector turns the provider's metrics into Prometheus' at each scrape. It
// describes none in advance, since the provider decides what there is.
type collector struct{ provider Provider }

func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect reports a metric that Prometheus refuses (a bad name, the same one
// twice) as an error of the scrape; it never panics.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, m := range c.provider.Metrics() {
		names := slices.Sorted(maps.Keys(m.Labels))
		values := make([]string, 0, len(names))
		for _, name := range names {
			values = append(values, m.Labels[name])
		}
		desc := prometheus.NewDesc(m.Name, m.Help, names, nil)
		kind := prometheus.GaugeValue
		if m.Counter {
			kind = prometheus.CounterValue
		}
		metric, err := prometheus.NewConstMetric(desc, kind, m.Value, values...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		out <- metric
	}
}

// newRegistry makes a registry with the provider's metrics, the histograms that
// packages keep, and the Go runtime's and the process' own.
func newRegistry(provider Provider, room *strangers.Room) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{provider},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(provider.Collectors()...)
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "quorate_api_expelled_total", Help: "Connections to the API port that asked nothing, closed for others.",
	}, func() float64 { return float64(room.Stats().Expelled) }))
	return registry
}
