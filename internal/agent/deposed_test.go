package agent

import (
	"testing"

	"github.com/quorate/quorate/internal/consensus"
)

// TestDeposedAcknowledgesNothing: once its primary is deposed no mark releases
// anything of an epoch, of whichever term that is; the epoch stays open, also when
// the term changes again. (An ACK would go to the tap, which there is none of.)
func TestDeposedAcknowledgesNothing(t *testing.T) {
	s := newEpochSlot()
	if s.depose(3) {
		t.Error("no epoch was deposed")
	}
	s.cur = &epoch{term: 3}
	if s.depose(2) || s.isDeposed() {
		t.Error("deposed in a term in which it did not serve")
	}
	s.committed(consensus.Mark{Index: 10, Epoch: 3, Number: 1})
	if !s.depose(3) || !s.depose(0) || !s.isDeposed() {
		t.Error("not deposed")
	}
	for _, term := range []uint64{3, 4} {
		s.acknowledge(term, 10)
	}
	if term, open := s.openTerm(); !open || term != 3 {
		t.Errorf("the epoch of term %d is open: %t", term, open)
	}
}
