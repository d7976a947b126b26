// Package ship takes what an agent gives for backups to a repository, and back: a full backup (Full),
// the log as it grows (Follow), and the pieces that a restore reads as one log (Chain).
//
//	agent ── backup.data ──► Full ──► full-….data, pieces of the log, full-….json
//	agent ── backup.log ───► Follow ──► pieces of the log
//	repository ──► Chain ──► entries, one after the other
//
// # Invariants
//
//   - A piece is in the repository whole, or not at all, and follows on what is there: what is missing
//     in between is an error (ErrGap), never left out.
//   - Nothing goes on behind a piece that a command was killed in the middle of: it is stored again first.
//   - Nothing is added to the repository of another history (ErrHistory).
//
// # Bounds
//
// A piece ends at PieceBytesMax, but for one transaction that is longer. It is made, as it will be
// stored, in a temporary file without a name. Nothing else is kept.
//
// Functions run in their caller's goroutine; Full has one more for the log. All end with their context.
package ship
