// Package ship carries backups from an agent to a repository, and back: a full backup (Full), the log
// as it grows (Follow), and the pieces that a restore reads as one log (Chain).
//
//	agent ── backup.data ──► Full ──► full-….data, pieces of the log, full-….json
//	agent ── backup.log ───► Follow ──► pieces of the log
//	repository ──► Chain ──► entries, one after the other
//
// # Invariants
//
//   - A piece is in the repository whole or not at all, and follows directly on the last one: a gap
//     between them is an error (ErrGap).
//   - No piece is stored behind one that a killed command may have left incomplete: that piece is stored
//     again first.
//   - Nothing is added to the repository of another history (ErrHistory).
//
// # Bounds
//
// A piece ends at PieceBytesMax, unless a single transaction is longer. It is written, in its
// final form, to a temporary file without a name. A full backup keeps 200 bytes for each second of the log
// that comes while it runs, and repeats a step that the store fails for 10 min (StorePatience).
//
// Functions run in their caller's goroutine. Full has two more, for the data and for the log. All end
// with their context.
package ship
