package replay

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/mysql/gtid"
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

// upTo is the set of the first n transactions.
func upTo(n uint64) *gtid.Set {
	s := &gtid.Set{}
	for i := uint64(1); i <= n; i++ {
		s.Add(gtid.GTID{N: i})
	}
	return s
}

// crashed is gtid_executed of a mysqld that had n transactions, after a crash and a restart.
func (l life) crashed(n uint64) *gtid.Set {
	s := &gtid.Set{}
	for i := uint64(1); i <= n; i++ {
		if l.changes[i].kept() {
			s.Add(gtid.GTID{N: i})
		}
	}
	return s
}

// oldestPrepared is the entry of the first XA PREPARE that has no end when n transactions are
// executed; 0 = there is none.
func (l life) oldestPrepared(n uint64) uint64 {
	for p := uint64(1); p <= n; p++ {
		if l.changes[p].kind == xaPrepare && !l.ended(p, n) {
			return l.entryOf[p]
		}
	}
	return 0
}

// ended tells whether XA PREPARE p has its end when n transactions are executed.
func (l life) ended(p, n uint64) bool {
	for _, c := range l.changes[p+1 : n+1] {
		if c == (change{xaEnd, l.changes[p].xid}) {
			return true
		}
	}
	return false
}

// TestPurgedLogNeverHidesALoss: marks are taken while mysqld runs, also with prepared XA
// transactions. The log is purged as far as they allow. Then mysqld comes back from a crash, or
// as any older copy of itself. Nothing is declared done that it has not done.
func TestPurgedLogNeverHidesALoss(t *testing.T) {
	purged, refused, prepared := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l := drawLife(t)
		earlier := rapid.Uint64Range(0, l.total()).Draw(t, "executed earlier")
		first := rapid.Uint64Range(max(l.total()/2, earlier), l.total()).Draw(t, "executed")
		// Held.Index is only a hint, and may be too high.
		guess := l.entryOf[first]
		if rapid.Bool().Draw(t, "wrong guess") {
			guess = rapid.Uint64Range(0, uint64(len(l.log.entries))+1).Draw(t, "guess")
		}
		xa := NewPrepared(1)
		mustMark(t, l, xa, l.entryOf[earlier], earlier)
		if rapid.Bool().Draw(t, "read ahead") {
			if err := xa.Read(l.log, uint64(len(l.log.entries))); err != nil {
				t.Fatal(err)
			}
		}
		m := mustMark(t, l, xa, guess, first)
		if m.Index == 0 {
			return
		}
		if l.oldestPrepared(first) > 0 {
			prepared++
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
			if now >= first {
				t.Fatalf("a healthy mysqld with %d of %d is refused: %s", now, first, v.Refused)
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
	if purged == 0 || refused == 0 || prepared == 0 {
		t.Fatalf("%d purged, %d refused, %d with XA prepared: nothing was tested", purged, refused, prepared)
	}
}

// mustMark takes a mark of a mysqld that has n transactions. The mark must not go beyond them,
// and must end in front of everything that is prepared.
func mustMark(t *rapid.T, l life, xa *Prepared, guess, n uint64) Mark {
	m, ok, err := NewMark(l.log, Held{guess, upTo(n)}, xa)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return Mark{}
	}
	if n < l.total() && l.entryOf[n+1] <= m.Index {
		t.Fatalf("mark %+v covers transaction %d, mysqld had %d", m, n+1, n)
	}
	if oldest := l.oldestPrepared(n); oldest > 0 && oldest <= m.Index {
		t.Fatalf("mark %+v covers the XA PREPARE of entry %d", m, oldest)
	}
	return m
}

// xaLog is a log of n entries with some XA transaction prepared at any time: transaction
// i prepares XID i/3; i+1 is a row; i+2 ends the XID before.
func xaLog(n int) *fakeLog {
	does := func(i uint64) change {
		switch xid := byte(i / 3); i % 3 {
		case 0:
			return change{kind: xaPrepare, xid: xid}
		case 2:
			return change{kind: xaEnd, xid: xid - 1}
		}
		return change{kind: rowChange}
	}
	counts := make([]int, n)
	for i := range counts {
		counts[i] = 1
	}
	return buildLog(counts, does)
}

// TestMarkAdvancesBesideXA: although some XA transaction is prepared at any time, the mark
// advances, directly in front of the oldest. That holds also where a restarted mysqld lacks
// that one and will get it again.
func TestMarkAdvancesBesideXA(t *testing.T) {
	const n = 60
	log, xa := xaLog(n), NewPrepared(1)
	for i := uint64(8); i <= n; i += 3 { // it has just ended i/3-1, and i-2 prepares i/3
		executed := upTo(i)
		executed.Subtract(numbers(i - 2))
		m, ok, err := NewMark(log, Held{i, executed}, xa)
		if want := (Mark{Index: i - 3, Witness: gtid.GTID{N: i}}); err != nil || !ok || m != want {
			t.Fatalf("after %d: mark %+v %t %v, want %+v", i, m, ok, err, want)
		}
	}
	if err := xa.Read(log, n); err != nil {
		t.Fatal(err)
	}
	if open := xa.Open(); len(open) != 2 || open[0].Index != 57 || open[1].Index != 60 || open[0].XID.GTRID != "\x13" {
		t.Fatalf("at the end are prepared %+v", open)
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
		m, ok, err := NewMark(log, h, nil)
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
