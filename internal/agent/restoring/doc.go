// Package restoring makes a node's data directory of a full backup and the log behind it: the first
// node of a new cluster, as it was at a point in time ("quorate restore").
//
//	Begin      restoring.json ──► what an interrupted one has left is removed
//	MakeLog    log/: the entries from where the backup's data need them to the point
//	           (mysqld's data are unpacked by package mysqld)
//	Finish     durable.json ──► cluster.json ──► identity.json ──► the file's name becomes restored.json
//
// Nothing is applied here. The node that starts then is one whose mysqld lags its log: it is judged,
// fed from its log, and opens when it holds all of it, as after any restart.
//
// # The log
//
// It has the entries of the log that was backed up, under their indexes and terms, all committed. The
// last one may have lost its last transactions. What changes members is not carried out again: the
// cluster state of the new node holds through the last entry.
//
// # Invariants
//
//   - While restoring.json is there no agent starts (agent.New).
//   - The log holds all that the data may hold: the point is behind the end of the full backup
//     (archive.Choose), and MakeLog fails if it does not come so far.
//   - The whole log passes the commit check before it counts (consensus.SurveyLog).
//   - The new cluster follows nobody: what is to be restored without must not come from a source again, and
//     the cluster that was backed up may follow it.
//   - No event of the scheduler runs there until an operator says so: it would change what is looked for.
//   - The version of the cluster state continues at the next million, as after a recovery: the cluster
//     that was backed up may live, and have made changes of its own.
//
// # Durability
//
// restoring.json is on disk before anything else is made, and loses its name last. What was
// interrupted is thrown away, and begun again by the same command.
//
// The package starts no goroutine.
package restoring
