// Package logcopy copies committed entries, and the stages that they name, from peers into a
// log that takes no part in Raft meanwhile: to heal it where it is damaged (Healing), or to
// begin it (Copy.Join). The agent runs it with its bulk connections, the simulator with its
// own, so both copy in the same steps.
//
//	who leads, and how far ──► HealTarget ──► entries from the leader, then from others ──► finish
//
// A Copy owns the log until it returns. What it has copied is durable when Append has
// returned. It ends in time only by its context: it tries again as long as somebody may have
// what it needs.
//
// The package starts no goroutine, and waits by a clock.Clock. Its memory is one group of
// entries, GroupBytesMax, and one entry more.
package logcopy
