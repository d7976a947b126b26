// Package archive says what a backup consists of: the objects of a repository, what is in them, and
// which of them bring back a point in time. It reads and writes streams; where those are kept is
// package repository's, who makes them the agent's and the commands'.
//
//	a full backup                                   the log
//	full-20261127T150000Z-b.json   its manifest     log-000…001-000…214-20261127T150000Z-….qlog
//	full-20261127T150000Z-b.data   the files        log-000…215-000…390-20261127T150100Z-….qlog
//	                               of mysqld        …
//
// A full backup is a copy of one mysqld's data, and the manifest that says where the log goes on
// from there. A piece is a run of committed entries of the log, with the transactions that they
// name. An entry is the same on every node, so pieces of several nodes may overlap.
//
// # Invariants
//
//   - The manifest is written last: a full backup without one does not exist.
//   - A piece has all entries from its first to its last, and is complete only with its END.
//   - A repository holds one history of one cluster: where two pieces have the same index, they have
//     the same entry there. The name of a piece has the sum of its last entry, so that whoever goes on
//     sees whether the log is of that history, without reading the piece.
//   - A full backup brings back no point before its own end: its data may hold all up to there
//     (Choose).
//
// # Formats
//
// The manifest is JSON (Manifest). The data are a tar: START (backup.json, Start), data/…, and
// END (end.json, End) as the last file; without it the copy is not whole. A piece is a sequence of
// frames, in docs/formats.md, "Backups". All of them may be compressed, and encrypted, as a whole.
//
// The package starts no goroutine, and keeps nothing.
package archive
