// Package restoring makes a node's data directory from a full backup and the log behind it: the first
// node of a new cluster, with the data of a point in time ("quorate restore").
//
//	Clear      removes what an interrupted restore has left, restoring.json last
//	Begin      restoring.json
//	MakeLog    log/: the entries from where the backup's data need them to the point
//	           (mysqld's data are unpacked by package mysqld)
//	Finish     durable.json ──► cluster.json ──► identity.json ──► restored.json,
//	           then restoring.json is removed
//
// Nothing is applied here. The node that starts then is one whose mysqld lags its log: it is judged,
// fed from its log, and opens when it holds all of it, as after any restart.
//
// # The log
//
// It has the entries of the log that was backed up, under their indexes and terms, all committed. The
// last one may have lost its last transactions. Changes of the members are not carried out again: the
// cluster state of the new node holds through the last entry.
//
// # Invariants
//
//   - While restoring.json is there no agent starts (agent.New).
//   - The log holds all that the data may hold: the point is behind the end of the full backup
//     (archive.Choose), and MakeLog fails if the log does not reach that end.
//   - The whole log passes the commit check before it counts (consensus.SurveyLog).
//   - The new cluster follows no source: what the restore leaves out must not come from there again, and
//     the cluster that was backed up may still follow that source.
//   - No event of the scheduler runs there until an operator says so: it could change what was restored.
//   - The version of the cluster state continues at the next million, as after a recovery: the cluster
//     that was backed up may live, and have made changes of its own.
//
// # Durability
//
// restoring.json is on disk before anything else is made, and is removed last. The same command
// throws away what an interrupted restore has left, and begins again.
//
// The package starts no goroutine.
package restoring
