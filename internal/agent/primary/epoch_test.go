package primary

import (
	"testing"

	"github.com/quorate/quorate/internal/raft/consensus"
)

// TestAcknowledge: what is committed in the epoch is acknowledged if the policy allows it, once. A mark of another
// term acknowledges nothing, nor does any mark without a policy, and nothing is acknowledged once the epoch is
// deposed.
func TestAcknowledge(t *testing.T) {
	e := &Epoch{Term: 3}
	e.Serve(3)
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
	e.RoleChanged(consensus.RoleState{Term: 4}, true)
	for _, term := range []uint64{3, 4} {
		if n := e.Acknowledge(term, 14); n != 0 {
			t.Errorf("of a deposed primary batch %d is let go in term %d", n, term)
		}
	}
	var none *Epoch
	none.Committed(consensus.Mark{Index: 14, Epoch: 3, Number: 3})
	none.Serve(0)
	none.Unserve()
	if none.Acknowledge(3, 14) != 0 || none.Of(0) || none.Serving() || none.Answering() {
		t.Error("no epoch decides something")
	}
}

// TestRoleChanged: what is lost with the role. An epoch that was served is deposed and keeps its tap, unless an ACK
// needs more than the commit. Any other epoch is closed if this node does not lead in the epoch's term.
func TestRoleChanged(t *testing.T) {
	leads := func(term uint64) consensus.RoleState { return consensus.RoleState{Term: term, Leading: true} }
	follows := func(term uint64) consensus.RoleState { return consensus.RoleState{Term: term} }
	in := func(p phase) *Epoch { return &Epoch{Term: 3, phase: p} }
	for _, c := range []struct {
		what  string
		epoch *Epoch
		role  consensus.RoleState
		waits bool // ACKs wait for more
		ends  bool
		want  phase
	}{
		{"told again", in(served), leads(3), false, false, served},
		{"opens", in(opened), leads(3), false, false, opened},
		{"follows", in(served), follows(4), false, false, deposed},
		{"no leader in its own term", in(served), follows(3), false, false, deposed},
		{"leads again, at once", in(served), leads(5), false, false, deposed},
		{"deposed, the term changes again", in(deposed), follows(6), false, false, deposed},
		{"deposed, and ACKs wait for more now", in(deposed), follows(6), true, true, deposed},
		{"ACKs wait for more", in(served), follows(4), true, true, served},
		{"was not served", in(opened), follows(4), false, true, opened},
		{"no epoch", nil, follows(4), false, true, opened},
		{"begins to lead", nil, leads(4), false, true, opened},
	} {
		if ends := c.epoch.RoleChanged(c.role, !c.waits); ends != c.ends {
			t.Errorf("%s: its tap ends: %t", c.what, ends)
		}
		if c.epoch != nil && c.epoch.phase != c.want {
			t.Errorf("%s: it is in phase %d, want %d", c.what, c.epoch.phase, c.want)
		}
	}
}

// TestServed: clients are served only in the epoch's own term, and never once the epoch is deposed. It stays deposed
// until its end, whatever is asked.
func TestServed(t *testing.T) {
	e := &Epoch{Term: 3}
	if e.Serve(4); e.Serving() || e.Answering() {
		t.Error("served in another term")
	}
	if e.Serve(3); !e.Serving() || !e.Answering() {
		t.Error("not served")
	}
	if e.Unserve(); e.Serving() || e.Answering() {
		t.Error("still served")
	}
	e.Serve(3)
	e.RoleChanged(consensus.RoleState{Term: 4}, true)
	e.Serve(3)
	e.Unserve()
	if e.Serving() || !e.Answering() {
		t.Errorf("deposed: served %t, answered %t", e.Serving(), e.Answering())
	}
}
