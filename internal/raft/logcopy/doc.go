// Package logcopy copies committed entries, and the stages that they name, from peers into a log. Heal heals a
// damaged log, and Copy.Join begins a new log; these logs take no part in Raft meanwhile. A Learner copies into
// a log that takes part in Raft: the log of a learner that has a source. A Source is the other end of that, and
// a Feeder makes the leader send nothing to such learners. The agent and the simulator both run this code over
// package bulk.
//
//	who leads, and how far ──► HealTarget ──► entries from the leader, then from others ──► finish
//
// A Copy owns the log until it returns. Its entries are durable when Append has returned. It has no time limit
// of its own: it tries again until its context ends, because some peer may have what it needs.
//
// A Learner knows which node feeds this node, and since when that node is silent. FedBy may be called at any
// time.
//
// The package starts no goroutine, and waits by a clock.Clock. Its memory is one group of entries
// (GroupBytesMax) and one entry more.
package logcopy
