// Package logcopy copies committed entries, and the stages that they name, from peers into a
// log that takes no part in Raft meanwhile: to heal it where it is damaged (Heal), or to
// begin it (Copy.Join). A log that does take part gets them from its node's source where that is
// a learner that has one (Learner); Source is the other end, and a Feeder has the leader leave such
// learners alone. Agent and simulator both run it over package bulk.
//
//	who leads, and how far ──► HealTarget ──► entries from the leader, then from others ──► finish
//
// A Copy owns the log until it returns. What it has copied is durable when Append has
// returned. It ends in time only by its context: it tries again as long as somebody may have
// what it needs.
//
// A Learner owns who feeds its node, and since when that is silent. FedBy may be called at any time.
//
// The package starts no goroutine, and waits by a clock.Clock. Its memory is one group of
// entries, GroupBytesMax, and one entry more.
package logcopy
