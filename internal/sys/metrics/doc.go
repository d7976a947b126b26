// Package metrics is the list of all metrics that a node shows: name, type, labels, what each
// means, and when to look at it.
//
// The package that has a figure names it, by Of or Bool where it is read at each scrape, by Histogram or
// Counter where it is kept. Help and type come from the list alone, and docs/metrics.md is the
// list as a page (TestPage). What is not in the list cannot be shown: a scrape with it fails, and
// TestNames finds it before.
//
// Labels have few values: states, kinds, members, readers of the configuration. Never what
// clients choose.
//
// The package owns no state and starts no goroutine.
package metrics
