package tap

// heldMax bounds what Held keeps. Each item is of one turn of consensus, in
// which a session at least waits. When it is full every second one goes: ACKs then
// come in larger steps, never too early.
const heldMax = 4096

// Held are the commits of an epoch that may not be acknowledged so far, because
// the durability policy asks for more than that they are committed.
type Held struct {
	commits []heldCommit // in their order
	// last is the newest number that is committed, index is up to which everything
	// may be acknowledged.
	last, index uint64
}

// heldCommit: everything up to number is in entries up to index.
type heldCommit struct{ index, number uint64 }

// Committed notes that everything up to a number is committed, by an index.
func (h *Held) Committed(index, number uint64) {
	if number <= h.last {
		return // it was committed by a lower one
	}
	h.last = number
	if len(h.commits) == heldMax {
		half := h.commits[:0]
		for i := 1; i < heldMax; i += 2 {
			half = append(half, h.commits[i])
		}
		h.commits = half
	}
	h.commits = append(h.commits, heldCommit{index, number})
}

// Allow takes it that everything up to an index may be acknowledged, and returns
// up to which number that is; 0 = nothing beyond what was returned before.
func (h *Held) Allow(index uint64) (number uint64) {
	h.index = max(h.index, index)
	n := 0
	for n < len(h.commits) && h.commits[n].index <= h.index {
		number = h.commits[n].number
		n++
	}
	h.commits = append(h.commits[:0], h.commits[n:]...)
	return number
}
