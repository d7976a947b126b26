package consensus

import (
	"testing"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// TestEpochEnd: an epoch is over with the first committed entry of a later term, not earlier. Its last number
// is known for one more epoch, and after that it is reported too low.
func TestEpochEnd(t *testing.T) {
	c := newCommitted(0, &gtid.Set{})
	index := uint64(0)
	apply := func(term uint64, data []byte) {
		index++
		c.apply(index, term, data)
	}
	check := func(what string, term, number uint64, over bool) {
		t.Helper()
		if n, o := c.EpochEnd(term); n != number || o != over {
			t.Errorf("%s: epoch %d ends with %d, over: %t; want %d, %t", what, term, n, o, number, over)
		}
	}
	apply(2, nil)
	check("before it", 2, 0, false)
	apply(2, epochEntry(2))
	apply(2, transactionsEntry(entry.Header{Term: 2, Number: 1, Count: 1}, 1))
	apply(2, transactionsEntry(entry.Header{Term: 2, Number: 2, Count: 1}, 2))
	check("while it goes on", 2, 2, false)
	apply(3, nil)
	check("a later term", 2, 2, true)
	apply(4, epochEntry(4))
	check("the next epoch", 2, 2, true)
	check("the next epoch", 4, 0, false)
	apply(4, transactionsEntry(entry.Header{Term: 4, Number: 1, Count: 1}, 3))
	check("the next epoch goes on", 2, 2, true)
	apply(5, epochEntry(5))
	check("two epochs on", 2, 0, true)
	check("two epochs on", 4, 1, true)
	check("two epochs on", 5, 0, false)
}
