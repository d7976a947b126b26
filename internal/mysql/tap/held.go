package tap

// heldMax is how many commits Held keeps. Each comes from one turn of consensus, and at least
// one session waits for it. When Held is full, it drops every second commit: ACKs then come in
// larger steps, never too early.
const heldMax = 4096

// Held keeps the commits of an epoch that may not be acknowledged yet, because the durability
// policy asks for more than a commit.
type Held struct {
	commits []heldCommit // in their order
	// last is the newest committed number. Everything up to index may be acknowledged.
	last, index uint64
}

// heldCommit says that every batch up to number is in entries up to index.
type heldCommit struct{ index, number uint64 }

// Committed notes that the batches up to number are committed, in entries up to index.
func (h *Held) Committed(index, number uint64) {
	if number <= h.last {
		return // a lower index has committed it already
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

// Allow notes that every entry up to index may be acknowledged. It returns the highest number
// that this releases; 0 = nothing beyond the number returned before.
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
