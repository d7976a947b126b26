package api

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quorate/quorate/internal/sys/metrics"
)

// newRegistry makes a registry with the metrics of the provider, the histograms that packages
// keep, and the metrics of the API port, the Go runtime and the process.
func (s *Server) newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Collector(func() []metrics.Sample {
		open, refused := s.streams.counts()
		return append(s.provider.Metrics(), metrics.Of("quorate_api_expelled_total", s.room.Stats().Expelled),
			metrics.Of("quorate_api_denied_total", s.denied.Load()), metrics.Of("quorate_api_streams", open),
			metrics.Of("quorate_api_streams_refused_total", refused))
	}), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(s.provider.Collectors()...)
	return registry
}
