package primary

import (
	"testing"

	"github.com/quorate/quorate/internal/raft/consensus"
)

// TestAcknowledge: what is committed in the epoch is let go where the policy allows it,
// once; no mark of another term and no policy lets anything go, and nothing does once it is
// deposed.
func TestAcknowledge(t *testing.T) {
	e := &Epoch{Term: 3}
	e.Committed(consensus.Mark{Index: 9, Epoch: 2, Number: 7})
	e.Committed(consensus.Mark{Index: 10, Epoch: 3})
	e.Committed(consensus.Mark{Index: 11, Epoch: 3, Number: 1})
	e.Committed(consensus.Mark{Index: 13, Epoch: 3, Number: 2})
	for _, c := range []struct{ term, index, want uint64 }{
		{3, 10, 0}, {4, 13, 0}, {3, 12, 1}, {3, 12, 0}, {3, 13, 2},
	} {
		if n := e.Acknowledge(c.term, c.index); n != c.want {
			t.Errorf("in term %d, up to index %d, batch %d is let go, want %d", c.term, c.index, n, c.want)
		}
	}
	e.Committed(consensus.Mark{Index: 14, Epoch: 3, Number: 3})
	e.RoleChanged(consensus.RoleState{Term: 4}, 3, true)
	for _, term := range []uint64{3, 4} {
		if n := e.Acknowledge(term, 14); n != 0 {
			t.Errorf("of a deposed primary batch %d is let go in term %d", n, term)
		}
	}
	var none *Epoch
	none.Committed(consensus.Mark{Index: 14, Epoch: 3, Number: 3})
	if none.Acknowledge(3, 14) != 0 || none.Of(0) || none.Deposed() || none.Answering(0) {
		t.Error("no epoch decides something")
	}
}

// TestRoleChanged: what is lost with the role. An epoch that was served is deposed and
// keeps its tap, unless an ACK needs more than the commit; whatever else is not the
// leader's of its term is closed.
func TestRoleChanged(t *testing.T) {
	leads := func(term uint64) consensus.RoleState { return consensus.RoleState{Term: term, Leading: true} }
	follows := func(term uint64) consensus.RoleState { return consensus.RoleState{Term: term} }
	for _, c := range []struct {
		what    string
		epoch   *Epoch
		role    consensus.RoleState
		served  uint64
		waits   bool // ACKs wait for more
		want    Lost
		deposed bool
	}{
		{"told again", &Epoch{Term: 3}, leads(3), 3, false, Lost{}, false},
		{"opens", &Epoch{Term: 3}, leads(3), 0, false, Lost{}, false},
		{"follows", &Epoch{Term: 3}, follows(4), 3, false, Lost{Service: true}, true},
		{"no leader in its own term", &Epoch{Term: 3}, follows(3), 3, false, Lost{Service: true}, true},
		{"leads again, at once", &Epoch{Term: 3}, leads(5), 3, false, Lost{Service: true}, true},
		{"deposed, the term changes again", &Epoch{Term: 3, deposed: true}, follows(6), 0, false, Lost{Service: true}, true},
		{"ACKs wait for more", &Epoch{Term: 3}, follows(4), 3, true, Lost{Service: true, Tap: true}, false},
		{"was not served", &Epoch{Term: 3}, follows(4), 0, false, Lost{Service: true, Tap: true}, false},
		{"no epoch", nil, follows(4), 0, false, Lost{Service: true, Tap: true}, false},
		{"begins to lead", nil, leads(4), 0, false, Lost{Service: true, Tap: true}, false},
	} {
		if got := c.epoch.RoleChanged(c.role, c.served, !c.waits); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		if c.epoch.Deposed() != c.deposed || c.deposed && !c.epoch.Answering(0) {
			t.Errorf("%s: deposed is %t", c.what, c.epoch.Deposed())
		}
	}
}
