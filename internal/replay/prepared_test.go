package replay

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPreparedReadsInParts: a look takes a bounded part of the log, and what comes out is
// what one look finds.
func TestPreparedReadsInParts(t *testing.T) {
	const n = 60
	log := xaLog(n)
	whole, parts := NewPrepared(1), NewPrepared(1)
	if err := whole.Read(log, n); err != nil {
		t.Fatal(err)
	}
	looks := 1
	for ; ; looks++ {
		done, err := parts.ReadSome(log, n)
		if err != nil || looks > n {
			t.Fatalf("look %d: %v", looks, err)
		}
		if done {
			break
		}
	}
	if looks != n/2 { // a fakeLog gives two entries at once
		t.Errorf("it took %d looks, want %d", looks, n/2)
	}
	if diff := cmp.Diff(whole, parts, cmp.AllowUnexported(Prepared{}, PreparedXA{})); diff != "" {
		t.Errorf("in parts (-whole +parts):\n%s", diff)
	}
	if _, err := parts.ReadSome(log, n+1); err == nil {
		t.Error("what is not committed counts as looked at")
	}
}

// TestPreparedForgets: where no mark is asked for, what has ended is not kept for ever; a
// mark that looks as far back as one can gets what it would have got.
func TestPreparedForgets(t *testing.T) {
	const n = 3 * witnessEntriesMax
	log := xaLog(n)
	kept, xa := NewPrepared(1), NewPrepared(1)
	for through := uint64(100); through <= n; through += 100 {
		if err := xa.Read(log, through); err != nil {
			t.Fatal(err)
		}
		xa.Forget(through)
		if len(xa.ended) > witnessEntriesMax {
			t.Fatalf("through %d: %d that have ended are kept", through, len(xa.ended))
		}
	}
	if err := kept.Read(log, n); err != nil {
		t.Fatal(err)
	}
	last := n/100*uint64(100) - witnessEntriesMax
	if err := xa.Read(log, n); err != nil {
		t.Fatal(err)
	}
	if got := xa.before(last - 1); got != 0 {
		t.Errorf("further back than a mark looks: %d, want that it does not know", got)
	}
	for at := last; at <= n; at++ {
		if got, want := xa.before(at), kept.before(at); got != want || got == 0 {
			t.Fatalf("before(%d) = %d, want %d", at, got, want)
		}
	}
}
