// Package entry encodes and decodes the data of one Raft log entry.
//
// An entry's data is a fixed header (kind, version, count, term, number) and a body, which
// depends on the kind. The layout is in docs/formats.md, "Entry".
//
// term and number make I2 checkable. A term has at most one epoch, so the term names the epoch: a leader that
// has to open a second epoch resigns and campaigns first. number counts the epoch's proposals from 1 without a
// gap (the epoch entry itself has number 0). Both fields are checked when the entry is proposed and again when
// it commits. State entries belong to no epoch and are not counted. Order is this rule, for code that reads a
// sequence of entries: consensus, and tools that verify a log.
//
// Raft's own empty entry (the no-op of a new leader) has no header: empty data.
//
// The package is pure: no goroutine, clock, I/O or randomness. The layout is part of the on-disk and wire
// format (docs/formats.md). Do not change it; raise Version instead.
package entry
