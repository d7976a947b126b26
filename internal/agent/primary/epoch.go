package primary

import (
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// Epoch decides what of an epoch is acknowledged, and what it loses with the role. A nil
// Epoch is none. Its owner locks around it.
type Epoch struct {
	// Term names it; Incarnation is the mysqld's.
	Term, Incarnation uint64

	deposed bool
	held    tap.Held
}

// Of tells whether it is the epoch of a term.
func (e *Epoch) Of(term uint64) bool { return e != nil && e.Term == term }

// Deposed tells whether this node does not lead in the epoch's term any more, and its tap
// is still connected.
func (e *Epoch) Deposed() bool { return e != nil && e.deposed }

// Answering tells whether what mysqld was asked under the lease may still be answered as
// far as the epoch says: clients are served in its term (served), or were.
func (e *Epoch) Answering(served uint64) bool { return e != nil && (e.deposed || e.Term == served) }

// Committed notes what a mark covers, if it is of this epoch. It is not acknowledged by
// that alone.
func (e *Epoch) Committed(m consensus.Mark) {
	if e.Of(m.Epoch) && m.Number > 0 {
		e.held.Committed(m.Index, m.Number)
	}
}

// Acknowledge takes it that the leader of a term may let go what is committed up to an
// index (I2). It returns up to which batch the tap is to acknowledge; 0 = nothing more.
func (e *Epoch) Acknowledge(term, index uint64) (number uint64) {
	if !e.Of(term) || e.deposed {
		return 0
	}
	return e.held.Allow(index)
}

// Lost is what ends when a node's role changes, in this order.
type Lost struct {
	// Service: no client's byte goes into mysqld any more. Who waits for an answer keeps
	// the connection while Epoch.Answering says so.
	Service bool
	// Tap: it is closed at once, and with it ends all acknowledging.
	Tap bool
}

// RoleChanged takes a new role of this node. served is the term that clients are served in
// (0 = none); acksAreCommits tells whether an ACK waits for nothing but the commit, which
// is all that a node can know that does not lead. A primary that was served is deposed: no
// mark lets anything of it go any more, its tap stays connected, and what becomes of it is
// the role machine's to say.
func (e *Epoch) RoleChanged(r consensus.RoleState, served uint64, acksAreCommits bool) Lost {
	if r.Leading && e.Of(r.Term) {
		return Lost{}
	}
	settles := acksAreCommits && e.Answering(served)
	if settles {
		e.deposed = true
	}
	return Lost{Service: !r.Leads(served), Tap: !settles}
}
