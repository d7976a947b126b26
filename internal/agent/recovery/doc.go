// Package recovery decides about forced recoveries (quorate recover), by which one node
// goes on as a cluster of its own after a majority of the voters is gone for good. It is
// pure: package quorumloss tells it what the nodes say, and carries out what it decides.
//
//	on the survivor     Situation ──► Check ──► Verdict.Refusal ──► it may be done, or why not
//	on a former member  a notice  ──► Notices.Decide   ──► Accept, Defer, Reject
//	                    it stopped ─► Notices.Confirm ──► Accept, Reject
//	                    a question ─► Notices.Word    ──► what it says of the recovery
//
// # Whether it may be done
//
//   - The node whose log has the highest last term (among equals, the longest log) has
//     all that was committed, as far as these nodes can know: Raft elects no other. So a
//     node recovers only if no node that answers has a newer log, unless a person
//     names the transactions that are given up.
//   - A majority that is there elects by itself, and what it has acknowledged counts:
//     there is nothing to recover, whatever a person says. The same holds if voters
//     answer that refuse this node and may be a majority without it: its own data may
//     be the wrong ones.
//   - A survivor that was away may know none of the members that the cluster has now, so it
//     cannot ask them. But they dial it. So it listens while it judges, for as long as each of
//     them may take to dial (transport.FoundAfter). A node of the cluster that dials and that it
//     does not know ends the recovery, whatever a person says. Two nodes that are recovered at
//     the same time hear each other, too.
//   - The tail of the survivor's log that is not known to be committed becomes
//     committed. It may have been acknowledged: the majority that knew is gone. Nobody
//     was told that it failed.
//   - What only nodes have that do not answer cannot be known. The verdict names them.
//
// # Whether a former member accepts it
//
// A former member is a node without which the recovery went on. It comes back late, and is
// told of the recovery when it dials the recovered node, or a node that has accepted. It
// accepts by itself, with no operator: former members that elected one another would be a
// second cluster beside the recovered one. But if a majority runs, the recovery was a
// mistake, and accepting it would give up what that majority has acknowledged since.
//
//   - A node that has a leader rejects, for good, also after a restart.
//   - A node rejects, too, if a former member that it reaches rejects.
//   - A node defers while it, or a member that it reaches, had a leader less than LedWithin ago.
//   - Else it accepts: it has just started, or is without a leader for longer. It stops,
//     looks once more (a leader since then means Reject), and notes it.
//
// # Invariants
//
//   - A node gives up its log for a recovery only if neither it, nor any former member
//     that answers it within AskFor, has had a leader in the last LedWithin, nor rejects
//     that recovery. So a majority can be given up that could still serve, but only one
//     that is down: it has no leader, and no node that answers remembers one.
//   - Of two recoveries that exclude each other (neither knew of the other, so they have
//     the same generation) a node accepts at most one, and never a recovery that it has rejected.
//   - A node says that it rejects only what it has noted durably. A rejection that it could
//     not note counts until it restarts: others hear that it has a leader, and defer.
//   - A node says that it is out only after it has stopped and noted that.
//   - The list of rejections is bounded; the oldest are dropped first.
package recovery
