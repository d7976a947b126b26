package sim

import (
	"testing"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// xaSeeds is how many seeds are run with XA transactions.
const xaSeeds = 60

// TestXA: in these runs XA transactions must be ended on the primary that prepared them, and on other
// primaries.
func TestXA(t *testing.T) {
	t.Parallel()
	n := xaSeeds
	if testing.Short() {
		n = shortSeeds
	}
	all := sum(runSeeds(t, n, Options{XA: 1})).XA
	t.Logf("%+v", all)
	if all.Prepared < 10*n || all.Committed < 5*n || all.RolledBack < 2*n || all.Inherited < n {
		t.Errorf("%+v in %d runs: too few to mean anything", all, n)
	}
}

// TestXAIsEndedOnce: the checker notices an end in the log of a transaction that is not prepared, or was ended
// before.
func TestXAIsEndedOnce(t *testing.T) {
	c := newWorld(Options{Nodes: 3}).check
	tx := committedTransaction{gtid: gtid.GTID{N: 1}}
	wantFailure(t, "an end of nothing", "xa", func() { c.xa(tx, "", "a") })
	wantFailure(t, "prepared", "", func() { c.xa(tx, "a", "") })
	wantFailure(t, "prepared twice", "xa", func() { c.xa(tx, "a", "") })
	wantFailure(t, "one stays prepared", "xa", c.xaEnds)
	wantFailure(t, "ended", "", func() { c.xa(tx, "", "a") })
	wantFailure(t, "ended twice", "xa", func() { c.xa(tx, "", "a") })
	wantFailure(t, "something else", "", func() { c.xa(tx, "", "") })
}

// TestXALost: the checker notices an acknowledged XA PREPARE that did not end as decided.
func TestXALost(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	w.load.xa = []*xaTransaction{{xid: "a", key: "k", value: "a", acknowledged: 1, commits: true}}
	wantFailure(t, "not in its table", "xa", w.check.xaEnds)
	wantFailure(t, "not prepared", "xa", func() { w.load.recovered(w.nodes[0], nil) })
	wantFailure(t, "prepared", "", func() { w.load.recovered(w.nodes[0], []string{"a"}) })
	w.load.xa[0].commits = false
	wantFailure(t, "rolled back", "", w.check.xaEnds)
}
