// Package primary has the operations with which the role machine makes the local mysqld the primary or a
// replica, and decides about an epoch: one tenure of it as the primary, from its tap to its
// end. It is what package agent does around mysqld, without a mysqld and its sockets:
// the agent gives it the real ones, the simulator its own, so both run the same steps in the
// same order.
//
//	Inbox ──► Shell ──► role.Node ──► Shell: Service, and Steps, one at a time: Duties, which are
//	what happens        what follows
//
//	CatchUp ──► Judge ──► AwaitTap ──► Open ──► OpenWrites ──► Epoch: Committed, Acknowledge
//	 it has all  nothing   mysqld waits  epoch entry              what is let go (I2)
//	             else (I3) for the tap   is committed
//
//	Epoch: RoleChanged ──► Settling ──────────────────► Judge ──► Replicate
//	       deposed         what becomes of it             a former primary is a replica
//	Slot: Serving, Answering  who serves: the router asks, and mysqld's own port
//	Orders ──► Plan: CloseWrites, AwaitTarget, or CloseWrites ──► Target ──► (leadership goes)
//	       what an operator asks for                              the other node
//
//	Applier ──► a replica's status ──► LagBound ──► how fast the primary's tap may go
//
// # Invariants
//
//   - I3: a mysqld replicates or serves only after Judge has held it against what a majority
//     has committed. Judge changes nothing of a mysqld that it refuses.
//   - I2: Acknowledge lets go only what is committed in the epoch in hand and what the
//     durability policy allows, and nothing once the epoch is deposed.
//   - A deposed primary is settled in one order: look, acknowledge, close writes, prove
//     (docs/architecture/settling.md). In any doubt it is not settled, and the caller
//     kills its mysqld.
//
// # Waiting
//
// Shell.Run is the role machine's goroutine. It carries out operations one at a time, each as a task of its
// own. A Slot starts its tap's Run as a task. Whatever waits does so by a clock.Clock; nothing else starts a
// goroutine. An Epoch has no lock: its Slot has one; a LagBound and an Inbox have one. Nothing is durable here. The Inbox keeps 256
// inputs, and blocks who brings more.
package primary
