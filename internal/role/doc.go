// Package role decides what a node does: the role of its mysqld, promotion,
// demotion, fencing and whom to hand leadership to.
//
// A Machine is a pure state machine: Step takes one Input and returns the Effects
// that follow from it. It has no goroutine, clock, I/O or randomness; time
// comes in with Tick. The shell (primary.Shell) executes effects in order and
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
//	   │                             opening, primary, closing, settling
//	   └─► down, and through the phases again with a new incarnation
//
//	primary ─lost leadership─► settling ─Settle─► unverified, with the same mysqld
//
//	errant: mysqld holds what the committed log lacks; it stays down until a
//	        person has looked. fenced: mysqld could not be run as it must be;
//	        tried again after a back-off. logger: the only phase of a node of
//	        that kind, but for ended.
//
// Each phase, or family of phases, is a struct with the state that is valid in that phase alone: phase.go lists
// them. From outside, a primary that closes writes has the phase `closing`. In this package it is in one of the
// phases closing, awaiting, reopening and closed.
//
// # Rules
//
//   - At most one operation (an Effect with an Op) is under way. Its outcome is
//     taken only if it carries the current Op; Cancel takes the old one back.
//   - An effect carries the term for which it is right. At the moment of execution the
//     shell compares that term with Raft's, and fails the operation if they differ.
//   - From OpenWrites on, mysqld may have sessions that wait for an ACK, so the
//     only ways out are CloseWrites (proof that nothing waits) and KillMysqld
//     (I6). Before OpenWrites mysqld is read-only and simply replicates again.
//     During CatchUp it has never stopped replicating, and the transaction that it
//     applies is not restarted unless it stands still for three promotion timeouts.
//   - A term has one epoch and, after a transfer was asked for, no lease. A
//     leader that has to promote itself in such a term resigns first.
//   - A promotion that finds prepared XA transactions (XAPending) kills mysqld
//     and starts one whose applier binlogs, still in its term. Such a mysqld
//     never goes on as a replica: where the promotion ends, it is killed.
//   - The best leader is a live replica that was not asked lately, then the replica that
//     is furthest, where small differences do not count, then the heaviest. A leader that
//     is ready looks once in a term, before its first step to open, whether a heavier node
//     is as far, and hands over. From OpenWrites on, weights move nobody.
//   - A logger, and a node of weight 0, never promotes itself: it hands over as
//     soon as another can lead, to the same node less and less often.
//   - Unserve comes before every other effect of an unplanned demotion. A planned
//     one closes writes first, so that the commits in flight get their answer.
//   - A healthy primary that only lost leadership is settled: it becomes a replica in
//     place. Settle comes before Unserve, so that commits in flight still get their
//     answer. In any doubt, and after SettleTimeout, its mysqld is killed.
//   - There is at most one operator's plan (Move, Restart) at a time. A primary closes
//     writes first. Up to the hand-over the plan can be called off: writes are opened
//     again, in the same epoch. A failure after that fences. The target of a Move
//     is told (Chosen) that leadership is meant for it. A mysqld that was closed in
//     order goes on as a replica.
//   - While maintenance is on (Peers.Held), only one node may open. All others behave as
//     if their weight were 0. The named node asks nobody to lead.
//   - A mysqld that an operator has fenced (Fenced) stays down until an operator unfences it.
//
// Time limits are counted in Now of the ticks; Config names them.
package role
