// Package recovery decides whether a node may go on as a cluster of its own after a
// majority of the voters is gone for good (quorate recover), and says what that
// loses. It is pure: package agent asks the nodes, and carries it out.
//
// What stands for the decision:
//
//   - Who has the log of the highest last term, and of those the longest, has all
//     that was committed as far as any of them can know: Raft elects nobody else. So a
//     node recovers only if no node that answers has a newer log, unless a person
//     names the transactions that are given up.
//   - A majority that is there elects by itself, and what it has acknowledged counts:
//     there is nothing to recover, whatever a person says. Nor is there beside voters
//     that answer, and refuse this node: it may be the one that is wrong.
//   - The tail of the survivor's log that is not known to be committed becomes so. It
//     may have been acknowledged: the majority that knew is gone. Nobody was told that
//     it was not.
//   - What only those have that do not answer cannot be known, and is said so.
package recovery
