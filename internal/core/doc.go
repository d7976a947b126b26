// Package core decides what a node does: the role of its mysqld, promotion,
// demotion, fencing and whom to hand leadership to.
//
// A Node is a pure state machine: Step takes one Input and returns the Effects
// that follow from it. It has no goroutine, clock, I/O or randomness; time
// comes in with Tick. The shell (package agent) executes effects in order and
// feeds their outcome back as Done. The hot path (tap, proposals, ACKs) does
// not pass through here.
//
// # Phases
//
//	down ─StartMysqld─► starting ─► unverified ─Judge─► verified ─Replicate─► replica
//	                                                                            │ leads
//	  ┌─────────────────────────────────────────────────────────────────────────┘
//	  ▼
//	catching-up ─► judging ─► tapping ─► opening-epoch ─► opening ─► primary
//	  CatchUp        Judge      OpenTap    CommitEpoch      OpenWrites    │ Stop
//	                                                                      ▼
//	killing ◄── lost leadership, drift, tap lost, doubt ── any of   closing ─► stopping ─► ended
//	   │                                       opening, primary, closing
//	   └─► down, and through the phases again with a new incarnation
//
//	errant: mysqld holds what the committed log lacks; it stays down until a
//	        person has looked. fenced: mysqld could not be run as it must be;
//	        tried again after a back-off.
//
// # Rules
//
//   - At most one operation (an Effect with an Op) is under way. Its outcome is
//     taken only if it carries the current Op; Cancel takes the old one back.
//   - An effect carries the term for which it is right. The shell checks it
//     against Raft at the moment of execution and fails the operation otherwise.
//   - From OpenWrites on, mysqld may have sessions that wait for an ACK, so the
//     only ways out are CloseWrites (proof that nothing waits) and KillMysqld
//     (I6). Before OpenWrites mysqld is read-only and simply replicates again.
//   - A term has one epoch and, after a transfer was asked for, no lease. A
//     leader that has to promote itself in such a term resigns first.
//   - A promotion that finds prepared XA transactions (XAPending) kills mysqld
//     and starts one whose applier binlogs, still in its term. Such a mysqld
//     never goes on as a replica: where the promotion ends, it is killed.
//   - Unserve comes before every other effect of an unplanned demotion. A planned
//     one closes writes first, so that the commits in flight get their answer.
//
// Time limits are counted in Now of the ticks; Config names them.
package core
