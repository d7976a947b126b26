package consensus

import "github.com/quorate/quorate/internal/log/seglog"

// HealStart returns the last entry of a damaged log, cut before the damage, that
// need not be copied, once a peer has said with which entry its log begins: first.
// copied is the last one that was known before to be as committed, from the commit
// index of the hard state on; last is the log's last.
//
// The commit index is not synced, and a loss of power takes it back to before what
// the peers have purged: nobody may have the entry behind it. But they purge only
// what this node has said that it has committed, on its disk (replay.Needs). This
// log had all of that, then, and replaces nothing that is committed; what is before
// the cut was read and verified when the log was opened. A log that ends before
// that cannot go on with what this peer has.
func HealStart(copied, first, last uint64) uint64 {
	if first == 0 || first > last+1 {
		return copied
	}
	return max(copied, first-1)
}

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
