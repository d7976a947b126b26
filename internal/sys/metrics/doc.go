// Package metrics is the list of all metrics that a node shows: name, type, labels, what each
// means, and when to look at it.
//
// The package that has a figure uses the metric's name: with Of or Bool if the figure is read at each scrape, with
// Histogram or Counter if it is kept. Help and type come only from the list, and docs/metrics.md is the
// list as a page (TestPage). A metric that is not in the list cannot be shown: a scrape with it fails, and
// TestNames finds it earlier.
//
// Labels have few values: states, kinds, members, readers in the configuration. A label never has a value that
// clients choose.
//
// The package owns no state and starts no goroutine.
package metrics
