// Package plan turns plan files into the list of the steps of a run.
//
// # Format
//
// TOML. A plan is a list of [[cells]]; each stands for every combination of its
// systems, networks, workloads and threads:
//
//	description = "what the articles measured, reduced"
//	tables = 8              # of sysbench
//	rows = 25000            # in each
//
//	[[cells]]
//	experiment  = "throughput"               # throughput, jitter, rto, rpo, apply, large
//	systems     = ["mgr", "async workers=1"] # a system with options as those of `up`
//	networks    = ["same-rack", "two-city"]
//	workloads   = ["oltp_write_only"]        # what that is depends on the experiment: Workloads
//	threads     = [1, 16, 64]                # of sysbench; absent = 0
//	seconds     = 10                         # of load, after warmup_seconds
//	repetitions = 3
//
// smoke, bench, failures, commit, ways, cities, tables, seeds and full are embedded; any other name is a file.
//
// # Order
//
// The first repetition of every cell comes before the second of any, so that a run
// that is cut short has a whole table, and so that a noisy hour of the machine does
// not fall on one cell alone. Within a repetition cells that can share a deployment
// follow each other (Step.Reuse): those of throughput and jitter, which leave a
// system as they found it. Every second repetition goes through networks and
// systems backwards, so that none of them is always the first.
//
// The package is pure: no goroutines, no clock, and no files but embedded ones.
package plan
