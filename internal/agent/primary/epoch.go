package primary

import (
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// Epoch decides what of an epoch is acknowledged, and whether clients are served and answered. A
// nil Epoch stands for no epoch: it has ended, or its tap is not connected yet. Its owner holds a
// lock around each call.
type Epoch struct {
	// Term names the epoch; Incarnation is that of its mysqld.
	Term, Incarnation uint64

	phase phase
	held  tap.Held
}

// phase is the state of an epoch whose tap is connected.
type phase uint8

const (
	// opened: clients are not served, or not any more.
	opened phase = iota
	// served: clients are served while the lease of its term holds.
	served
	// deposed: clients were served when this node lost leadership. No mark acknowledges anything of
	// the epoch any more: the role machine decides what becomes of it.
	deposed
)

// Of tells whether it is the epoch of a term.
func (e *Epoch) Of(term uint64) bool { return e != nil && e.Term == term }

// Serving tells whether clients are served, if the lease holds.
func (e *Epoch) Serving() bool { return e != nil && e.phase == served }

// Answering tells whether, by what the epoch knows, mysqld may still answer requests that it got
// under the lease: clients are served, or were served when the epoch was deposed.
func (e *Epoch) Answering() bool { return e != nil && e.phase != opened }

// Serve notes that clients are served in a term.
func (e *Epoch) Serve(term uint64) {
	if e.Of(term) && e.phase == opened {
		e.phase = served
	}
}

// Unserve notes that clients are no longer served, by this node's own will.
func (e *Epoch) Unserve() {
	if e.Serving() {
		e.phase = opened
	}
}

// Committed notes what a mark covers, if the mark is of this epoch. That alone acknowledges
// nothing.
func (e *Epoch) Committed(m consensus.Mark) {
	if e.Of(m.Epoch) && m.Number > 0 {
		e.held.Committed(m.Index, m.Number)
	}
}

// Acknowledge is told that the leader of a term may acknowledge what is committed up to an
// index (I2). It returns up to which batch the tap is to acknowledge; 0 = nothing more.
func (e *Epoch) Acknowledge(term, index uint64) (number uint64) {
	if !e.Of(term) || e.phase == deposed {
		return 0
	}
	return e.held.Allow(index)
}

// RoleChanged takes a new role of this node, and tells whether the tap is to be closed at once, which ends
// all acknowledging. acksAreCommits: an ACK waits for nothing but the commit. A node that does not lead knows
// of nothing else. So only then an epoch whose clients were served is deposed, and keeps its tap.
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
