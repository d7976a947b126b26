// Package result is the schema of results.jsonl, the results of the lab: a row for
// each cell and repetition of the run, also for those that failed.
//
// # Format
//
// One JSON object a line, each with "schema": 1. A line with "kind": "facts" says
// what ran (versions, settings, machine); rows name it by id. One without a variant begins
// a run, and has what all its cells must share: tables, rows, the programs. Every other line is a
// Row. A later row of the same Key supersedes an earlier one (Results.Latest), and counts it if it failed.
//
// # What an experiment fills
//
// Cell.Workload says what was done, and Metrics has these (names end in their unit;
// what could not be measured is left out, never 0):
//
//	throughput, jitter   workload: the sysbench script; threads: its threads
//	  tps qps p50_ms p95_ms p99_ms errors reconnects cv_percent tps_min
//	  lag_tx lag_bytes      the furthest replica, when the load ends
//	  drain_s               until every replica has applied everything
//	  effective_tps         transactions / (time of the load + drain)
//	  cpu_us.COMPONENT      per transaction, all nodes together: mysqld, agent, router, switch, client
//	  node_cpu_us.NODE.COMPONENT  the same by node: what hosts of their own would carry
//	  primary_cpu_us        of all components on the primary's node: what its host would carry
//	  wakeups               voluntary context switches per transaction, of all threads on all nodes, until the load ends
//	  messages              between agents per transaction, heartbeats too; quorate alone
//	  stage_p50_ms.STAGE, stage_p99_ms.STAGE  where a commit's time goes in quorate: histograms of the primary's agent
//	  switch_full_packets   dropped by the lab's own network, if any: then the row says little
//	  series tps            acknowledged transactions, every second
//	rto                  workload: the fault; threads: sysbench beside the prober
//	  detect_ms             from the fault until the system says that a node is gone; text detection says what that is
//	  gap_ms                the longest time without an acknowledged write, from the fault until it is mended; if it
//	                        is open then (text open), until it ends
//	  rejoin_gap_ms         the longest one after that: the victim comes back
//	  writable_ms           from the fault to the first acknowledged write after the gap
//	  restored_ms           from the restart or the healing until all nodes are in again; text restored: why they are not
//	  dip_percent           of the median rate before, lost in the worst second: the prober's after a fault of the
//	                        primary, else that of sysbench, if it runs
//	  low_s                 seconds below half of the median rate before
//	  attempts acknowledged unknown failed lost diverged human_steps
//	  text catch_up         why there is no diverged: replicas lag; text witness: why there is no lost: no node takes writes
//	  series acknowledged   the prober's, every 100 ms
//	  series tps            of sysbench beside it, every second, from the same beginning
//	  events                the fault first (AtMS from the beginning of the series), then what followed
//	  text verdict          if it never took writes again; steps: what people did
//	rpo                  workload: majority-crash, power-loss
//	  acknowledged lost diverged unknown human_steps recover_s
//	  series and events, text catch_up and witness as in rto
//	  text verdict, examples, steps
//	apply                workload: the transactions queued, such as 50k; option workers
//	  transactions apply_s apply_tps queue_tps cpu_us.COMPONENT
//	large                workload: the size, such as 100MB
//	  committed (1 or 0) commit_s total_s stall_ms expelled; text verdict
//	  series acknowledged   of the others meanwhile, every 100 ms; events
//	  text verdict
//
// Every row also has setup_s (time for deployment and data, if this cell had to make them). text teardown: the failure
// when its system was taken down; the file has such a row twice, first without that text.
//
// # Durability
//
// File.Append writes a line with one write and fsyncs. If a crash tore the last line, that line is
// cut off when the file is opened for appending, and Read ignores it. File holds
// an advisory lock: only one run at a time writes to a file.
//
// # Limits
//
// A line has at most 8 MiB, a series 20 000 values.
//
// The package has no goroutines.
package result
