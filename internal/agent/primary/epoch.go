package primary

import (
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// Epoch decides what of an epoch is acknowledged, and whose clients are answered. A nil
// Epoch is none: it has ended, or has no tap so far. Its owner locks around it.
type Epoch struct {
	// Term names it; Incarnation is the mysqld's.
	Term, Incarnation uint64

	phase phase
	held  tap.Held
}

// phase is how an epoch is whose tap is connected.
type phase uint8

const (
	// opened: clients are not served, or not any more.
	opened phase = iota
	// served: clients are served while the lease of its term holds.
	served
	// deposed: clients were served when this node lost leadership. No mark lets anything of the
	// epoch go any more, and what becomes of it is the role machine's to say.
	deposed
)

// Of tells whether it is the epoch of a term.
func (e *Epoch) Of(term uint64) bool { return e != nil && e.Term == term }

// Serving tells whether clients are served, if the lease holds.
func (e *Epoch) Serving() bool { return e != nil && e.phase == served }

// Answering tells whether what mysqld was asked under the lease may still be answered as
// far as the epoch says: clients are served, or were when it was deposed.
func (e *Epoch) Answering() bool { return e != nil && e.phase != opened }

// Serve takes it that clients are served in a term.
func (e *Epoch) Serve(term uint64) {
	if e.Of(term) && e.phase == opened {
		e.phase = served
	}
}

// Unserve takes it that they are not any more, by this node's own will.
func (e *Epoch) Unserve() {
	if e.Serving() {
		e.phase = opened
	}
}

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
	if !e.Of(term) || e.phase == deposed {
		return 0
	}
	return e.held.Allow(index)
}

// RoleChanged takes a new role of this node, and tells whether the tap is to be closed at once, with which
// all acknowledging ends. acksAreCommits tells whether an ACK waits for nothing but the commit, which is all
// that a node can know that does not lead: only then a primary that was served is deposed, and keeps its tap.
func (e *Epoch) RoleChanged(r consensus.RoleState, acksAreCommits bool) (ends bool) {
	switch {
	case r.Leading && e.Of(r.Term):
		return false
	case acksAreCommits && e.Answering():
		e.phase = deposed
		return false
	}
	return true
}
