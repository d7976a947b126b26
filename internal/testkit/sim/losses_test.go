package sim

import (
	"testing"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestLosses runs worlds in which a majority is lost for good. In these runs recoveries must be forced,
// accepted and rejected.
func TestLosses(t *testing.T) {
	t.Parallel()
	n := 48
	if testing.Short() {
		n = 12
	}
	all := sum(runSeeds(t, n, Options{Losses: 1}))
	if all.Recoveries < n/4 || all.Accepted < n/6 || !testing.Short() && all.Rejections == 0 {
		t.Errorf("%d recoveries, accepted %d times, rejected %d times: too few to mean anything", all.Recoveries, all.Accepted, all.Rejections)
	}
}

// TestTwoSidesOneGTID: the entry tells whether the chosen side has a transaction, not the GTID. Both sides may
// give out a GTID that was proposed, but not committed, before the recovery.
func TestTwoSidesOneGTID(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	g := gtid.GTID{N: 231}
	side := func(sum uint32) *checker {
		c := newChecker(w)
		c.entries = []committedEntry{{term: 1, sum: 1}, {term: 1, sum: sum}}
		c.transactions, c.places = []committedTransaction{{gtid: g, index: 2}}, map[gtid.GTID]int{g: 0}
		return c
	}
	mine := side(2)
	for _, c := range []struct {
		what string
		by   *checker
		g    gtid.GTID
		want bool
	}{
		{"the same entry", side(2), g, true},
		{"another transaction", side(3), g, false},
		{"another GTID", side(2), gtid.GTID{N: 232}, false},
	} {
		if got := mine.holds(&request{by: c.by, gtid: c.g}); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
}
