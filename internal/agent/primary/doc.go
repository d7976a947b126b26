// Package primary carries out what the role machine decides: it makes the local mysqld the primary or a
// replica. It also decides about an epoch, which is one tenure of this mysqld as the primary, from its tap
// to its end. It has no mysqld and no sockets: the agent gives it real ones, the simulator modelled ones.
// So both run the same steps in the same order.
//
//	Inbox ──► Shell ──► role.Machine ──► Shell: Service, and Steps, one at a time: Duties, which are
//	what happens        what follows
//
//	CatchUp ──► Judge ──► AwaitTap ──► Open ──► OpenWrites ──► Epoch: Committed, Acknowledge
//	 it has all  nothing   mysqld waits  epoch entry              what gets its ACK (I2)
//	             else (I3) for the tap   is committed
//
//	Epoch: opened ◄──► served ──► deposed ──► Settling ──────────► Judge ──► Replicate
//	       the tap is    RoleChanged            what becomes of it   a former primary is a replica
//	       connected; each of them may end at once: then the Slot is empty
//	Slot: Serving, Answering  who serves: the router asks, and mysqld's own port
//	Orders ──► Plan: CloseWrites, AwaitTarget, or CloseWrites ──► Target ──► (leadership goes)
//	       what an operator asks for                              the other node
//
//	Applier ──► a replica's status ──► LagBound ──► how fast the primary's tap may go
//
// # Invariants
//
//   - I3: a mysqld replicates or serves only after Judge has compared it with what a majority
//     has committed. Judge changes nothing of a mysqld that it refuses.
//   - I2: Acknowledge acknowledges only what is committed in its own epoch and what the
//     durability policy allows, and nothing once the epoch is deposed.
//   - A deposed primary is settled in one order: look, acknowledge, close writes, prove
//     (docs/architecture/settling.md). In any doubt it is not settled, and the caller
//     kills its mysqld.
//
// # Waiting
//
// Shell.Run is the role machine's goroutine. It carries out operations one at a time, each as a task of its
// own. A Slot starts its tap's Run as a task. Nothing else starts a goroutine, and all waits are by a
// clock.Clock. A Slot, a LagBound and an Inbox have a lock each; a Slot's lock guards its Epoch, too. Nothing
// is durable here. The Inbox keeps 256 inputs; while it is full, Put blocks.
package primary
