// Package quorumloss carries out what package recovery decides, where a majority of the
// voters is gone for good: it owns refused.json, recovery.json, and what a node says of a
// recovery.
//
//	on the survivor      OpenSurvivor, Survivor.Check, Survivor.Do
//	                     who dials or answers ──► Callers ──► Survivor.Check
//	                     Record.Make ──► recovery.json ──► the other files ──► Finish
//	                     Stance.Watch asks former members whether they refuse it
//	on any node          a rejection ──► Stance.Refused ──► Node.Leave, Hear, or the status
//	on a former member   a notice ──► Stance.Hear ──► Node.Leave, or it waits, or refuses
//	                     a question ─► Stance.Word
//	                     it stopped ─► Stance.Confirm
//	                     it is out: its peers ──► Outside
//
// # Invariants
//
//   - Once recovery.json is on disk, the recovery is made: Finish does what a crash has
//     interrupted, from the beginning, however often.
//   - A recovery that is refused stays refused, also after a restart, until a person has
//     moved the data directory away. If it cannot be noted, it counts until a restart.
//
// # Goroutines
//
// It starts some only to ask all others at once; they end with the question. It waits by a
// clock.Clock. Any goroutine may call the methods of a Stance and of Callers.
package quorumloss
