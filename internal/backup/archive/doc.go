// Package archive defines what a backup consists of: the objects of a repository, their content,
// and which of them bring back a point in time. It reads and writes streams. Package repository
// stores them; the agent and the commands make them.
//
//	a full backup                                   the log
//	full-20261127T150000Z-b.json   its manifest     log-000…001-000…214-20261127T150000Z-….qlog
//	full-20261127T150000Z-b.data   the files        log-000…215-000…390-20261127T150100Z-….qlog
//	                               of mysqld        …
//
// A full backup is a copy of one mysqld's data, and a manifest that says where the log goes on
// from there. A piece is a run of committed entries of the log, with the staged transactions
// that they name. An entry is the same on every node, so pieces from several nodes may overlap.
//
// # Invariants
//
//   - The manifest is written last: a full backup without one does not exist.
//   - A piece has all entries from its first to its last. Without its END it is not complete.
//   - A repository holds one history of one cluster: where two pieces have the same index, they have
//     the same entry there. The name of a piece has the sum of its last entry. So a node that goes on
//     with the log can check, without reading the piece, that its log has the same history.
//   - A full backup cannot bring back a point before its own end, because its data may have
//     everything up to there (Choose).
//
// # Formats
//
// The manifest is JSON (Manifest). The data are a tar: START (backup.json, Start), data/…, and END
// (end.json, End) as the last file; without it the copy is not whole. A piece is a sequence of
// frames, in docs/formats.md, "Backups". Each object may be compressed and encrypted as a whole.
//
// The package starts no goroutine, and keeps no state.
package archive
