package consensus

import "github.com/quorate/quorate/internal/seglog"

// HealTarget says how much of a leader's log a damaged log has to copy until it
// holds everything that its node can ever have acknowledged.
//
// A leader of a later term counts nothing that the node said before, so it is
// enough to have what is committed. The leader of the very term in which the
// node was last may count entries as stored here that are not committed so far:
// then it is enough once all that this leader had when it was first asked is
// committed, and copied. Likewise a leader of an earlier term: that it passed a
// read barrier without this node shows that no later one was ever elected, whose
// entries this node could have stored: a majority of the others would know it.
type HealTarget struct {
	promised    seglog.HardState
	term, index uint64
}

// NewHealTarget returns the rule for a node whose last hard state is promised.
func NewHealTarget(promised seglog.HardState) HealTarget { return HealTarget{promised: promised} }

// Aim takes what a leader says of its log after a read barrier: what it has
// committed, and its last entry, on disk or not. Of each term the first answer
// counts: what the leader has taken in since was never here.
func (t *HealTarget) Aim(term, commit, last uint64) {
	if term == t.term {
		return
	}
	t.term, t.index = term, commit
	if term <= t.promised.Term {
		t.index = last
	}
}

// Index is the last entry that has to be copied.
func (t *HealTarget) Index() uint64 { return t.index }

// HardState is that of the log once it is copied up to an index, Index at least.
// A vote is kept only in the term in which it was given.
func (t *HealTarget) HardState(copied uint64) seglog.HardState {
	hs := t.promised
	if t.term > hs.Term {
		hs.Term, hs.Vote = t.term, 0
	}
	hs.Commit = copied
	return hs
}
