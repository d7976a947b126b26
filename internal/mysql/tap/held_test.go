package tap

import (
	"math/rand/v2"
	"testing"
)

// TestHeldAgainstModel: Allow releases exactly what is committed and allowed, in order; beyond
// the bound never more than that. Once everything is allowed nothing is left.
func TestHeldAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		var h Held
		places := map[uint64]uint64{} // the index of each number's entry
		index, number, allowed, out := uint64(0), uint64(0), uint64(0), uint64(0)
		for range 4 * heldMax {
			if rng.IntN(100) > 0 {
				for range rng.IntN(3) { // entries, of this epoch or of none
					if index++; rng.IntN(2) == 0 {
						number++
						places[number] = index
					}
				}
				if number > 0 {
					h.Committed(index, number)
				}
				continue
			}
			allowed = max(allowed, rng.Uint64N(index+1))
			n := h.Allow(allowed)
			if n != 0 && n <= out || n > number || places[n] > allowed {
				t.Fatalf("%d came out after %d, its index is %d, %d is allowed", n, out, places[n], allowed)
			}
			out = max(out, n)
			if len(h.commits) > heldMax {
				t.Fatalf("%d are held", len(h.commits))
			}
		}
		if out = max(out, h.Allow(index)); out != number || len(h.commits) > 0 {
			t.Fatalf("in the end %d of %d came out, %d are held", out, number, len(h.commits))
		}
	}
}

// TestHeldAllowedFirst: what was allowed before its commit is released once it is committed.
func TestHeldAllowedFirst(t *testing.T) {
	var h Held
	if n := h.Allow(10); n != 0 {
		t.Errorf("%d came out of nothing", n)
	}
	h.Committed(9, 4)
	if n := h.Allow(10); n != 4 {
		t.Errorf("%d came out, want 4", n)
	}
	h.Committed(11, 5)
	if n := h.Allow(10); n != 0 {
		t.Errorf("%d came out before it was allowed", n)
	}
	if n := h.Allow(11); n != 5 {
		t.Errorf("%d came out, want 5", n)
	}
}
