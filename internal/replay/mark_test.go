package replay

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/gtid"
)

// life is a replica's mysqld that executes the transactions 1, 2, … in order.
type life struct {
	log     *fakeLog
	changes []change // from index 1 on
	entryOf []uint64 // of each transaction
}

func drawLife(t *rapid.T) life {
	counts := rapid.SliceOfN(rapid.IntRange(1, 4), 5, 20).Draw(t, "counts")
	l := life{entryOf: []uint64{0}}
	for i, c := range counts {
		for range c {
			l.entryOf = append(l.entryOf, uint64(i+1))
		}
	}
	l.changes = drawChanges(t, l.total())
	l.log = buildLog(counts, func(n uint64) change { return l.changes[n] })
	return l
}

func (l life) total() uint64 { return uint64(len(l.entryOf) - 1) }

// upTo is the set of the first n.
func upTo(n uint64) *gtid.Set {
	s := &gtid.Set{}
	for i := uint64(1); i <= n; i++ {
		s.Add(gtid.GTID{N: i})
	}
	return s
}

// crashed is gtid_executed of a mysqld that starts again after it had n.
func (l life) crashed(n uint64) *gtid.Set {
	s := &gtid.Set{}
	for i := uint64(1); i <= n; i++ {
		if l.changes[i].kept() {
			s.Add(gtid.GTID{N: i})
		}
	}
	return s
}

// pending tells whether an XA transaction is prepared when n were executed.
func (l life) pending(n uint64) bool {
	open := map[byte]bool{}
	for _, c := range l.changes[1 : n+1] {
		if c.kind == xaPrepare || c.kind == xaEnd {
			open[c.xid] = c.kind == xaPrepare
		}
	}
	for _, o := range open {
		if o {
			return true
		}
	}
	return false
}

// ended tells whether XA PREPARE p had its end when n were executed.
func (l life) ended(p, n uint64) bool {
	for _, c := range l.changes[p+1 : n+1] {
		if c == (change{xaEnd, l.changes[p].xid}) {
			return true
		}
	}
	return false
}

// TestPurgedLogNeverHidesALoss: a mark is taken while mysqld runs, the log is
// purged as far as it says, and then mysqld comes back from a crash, or as any
// older copy of itself. Nothing is declared done that it did not do.
func TestPurgedLogNeverHidesALoss(t *testing.T) {
	purged, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l := drawLife(t)
		first := rapid.Uint64Range(l.total()/2, l.total()).Draw(t, "executed before")
		between := rapid.Uint64Range(first, l.total()).Draw(t, "pending looked at")
		second := rapid.Uint64Range(between, l.total()).Draw(t, "executed after")
		if l.pending(between) {
			return
		}
		// Where to look is a guess: too high, too.
		guess := l.entryOf[first]
		if rapid.Bool().Draw(t, "wrong guess") {
			guess = rapid.Uint64Range(0, uint64(len(l.log.entries))+1).Draw(t, "guess")
		}
		m, ok, err := NewMark(l.log, Held{guess, upTo(first)}, Held{max(guess, l.entryOf[second]), upTo(second)})
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		for n := uint64(1); n <= l.total(); n++ {
			if l.entryOf[n] <= m.Index && n > first {
				t.Fatalf("mark %+v covers transaction %d, mysqld had %d", m, n, first)
			}
		}
		log := l.log.purged(m.Index)
		if log.FirstIndex() > 1 {
			purged++
		}
		now := rapid.Uint64Range(0, l.total()).Draw(t, "comes back with")
		executed := l.crashed(now)
		v, err := Judge(log, upTo(l.total()), executed, m)
		if err != nil {
			t.Fatal(err)
		}
		if v.Refused != "" {
			refused++
			if now >= second {
				t.Fatalf("a healthy mysqld with %d of %d is refused: %s", now, second, v.Refused)
			}
			return
		}
		for n := uint64(1); n <= l.total(); n++ {
			if !v.Done.Contains(gtid.GTID{N: n}) {
				continue
			}
			if n > now || l.changes[n].kept() || l.changes[n].kind == xaPrepare && !l.ended(n, now) {
				t.Fatalf("transaction %d (%c) is declared done, mysqld had %d; mark %+v, log from %d", n, l.changes[n].kind, now, m, log.FirstIndex())
			}
		}
		covered := v.Done.Clone()
		covered.Union(executed)
		covered.Union(v.Again)
		if !covered.ContainsSet(log.segments[0].GTIDsBefore) {
			t.Fatalf("%s cover not what the log lacks: %s", covered, log.segments[0].GTIDsBefore)
		}
	})
	if purged == 0 || refused == 0 {
		t.Fatalf("%d purged, %d refused: nothing was tested", purged, refused)
	}
}

// TestMarkNeedsAWitness: a mark ends at a transaction that leaves a trace.
func TestMarkNeedsAWitness(t *testing.T) {
	does := []change{{}, {kind: rowChange}, {kind: xaPrepare, xid: 1}, {kind: xaEnd, xid: 1}, {kind: noOp}, {kind: xaPrepare, xid: 2}}
	log := buildLog([]int{1, 1, 1, 1, 1}, func(n uint64) change { return does[n] })
	for _, c := range []struct {
		index   uint64
		have    uint64
		through uint64
		witness uint64
		ok      bool
	}{
		{index: 1, have: 1, through: 1, witness: 1, ok: true},
		{index: 2, have: 2, through: 1, witness: 1, ok: true},
		{index: 3, have: 3, through: 3, witness: 3, ok: true},
		{index: 5, have: 5, through: 3, witness: 3, ok: true},
		{index: 5, have: 2}, // it looks too far
		{index: 0, have: 0},
	} {
		h := Held{c.index, upTo(c.have)}
		m, ok, err := NewMark(log, h, h)
		if err != nil {
			t.Fatal(err)
		}
		want := Mark{}
		if c.ok {
			want = Mark{c.through, gtid.GTID{N: c.witness}}
		}
		if ok != c.ok || m != want {
			t.Errorf("%d held, at %d: mark %+v %t, want %+v", c.have, c.index, m, ok, want)
		}
	}
}
