package consensus

import "github.com/quorate/quorate/internal/log/seglog"

// HealStart returns the last entry of a damaged log that need not be copied. The log was cut before the damage.
// first is the entry with which a peer's log begins. copied is the last entry that was known before to equal
// the committed log, by the commit index of the hard state. last is the last entry of the damaged log.
//
// The commit index is not synced. A loss of power may take it back to a point before what the peers have
// purged, and then no peer may have the entry behind it. But peers purge only what this node has reported as
// committed on its disk (replay.Needs). So this log had all of that, and copying replaces nothing that is
// committed. What is before the cut was read and verified when the log was opened. If the log ends before
// first-1, it cannot go on with this peer's entries.
func HealStart(copied, first, last uint64) uint64 {
	if first == 0 || first > last+1 {
		return copied
	}
	return max(copied, first-1)
}

// HealTarget says how much of a leader's log has to be copied until a damaged log holds everything that its
// node can ever have acknowledged.
//
// A leader of a later term does not count anything that the node said before, so it is enough to have what is
// committed. The leader of the node's own last term may count uncommitted entries as stored here. Then it is
// enough to copy everything that this leader had when it was first asked, once that is committed. The same
// holds for a leader of an earlier term. It passed a read barrier without this node, which shows that no later
// leader was ever elected whose entries this node could have stored: a majority of the other nodes would know
// that leader.
type HealTarget struct {
	promised    seglog.HardState
	term, index uint64
}

// NewHealTarget returns the rule for a node whose last hard state is promised.
func NewHealTarget(promised seglog.HardState) HealTarget { return HealTarget{promised: promised} }

// Aim takes what a leader says of its log after a read barrier: its commit index, and its last entry, on disk
// or not. Only the first answer of each term counts: this node never had what the leader has appended since
// then.
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

// HardState is the hard state of the log once it is copied up to an index, which must be Index or later. A vote
// is kept only in the term in which it was given.
func (t *HealTarget) HardState(copied uint64) seglog.HardState {
	hs := t.promised
	if t.term > hs.Term {
		hs.Term, hs.Vote = t.term, 0
	}
	hs.Commit = copied
	return hs
}
