package sim

import "testing"

// appliersSeeds is how many seeds are run with appliers that stop.
const appliersSeeds = 30

// TestAppliersStop: in these runs appliers stop, and primaries slow their writers down.
func TestAppliersStop(t *testing.T) {
	t.Parallel()
	n := appliersSeeds
	if testing.Short() {
		n = shortSeeds
	}
	all := sum(runSeeds(t, n, Options{Appliers: 1}))
	t.Logf("%d stops, %d times slowed down or let go", all.ApplierStops, all.Slowings)
	if all.ApplierStops < 2*n || all.Slowings < n/8 {
		t.Errorf("%d stops, %d times slowed down or let go in %d runs: too few to mean anything", all.ApplierStops, all.Slowings, n)
	}
}

// TestLagOfAReplicaThatIsGone runs three seeds. In two of them, the replica that was near falls silent or stops
// applying. The primary counts it until its last status is two seconds old, and until then hands out as much as
// it likes. In the third, the replica's machine stands still again and again: its news between two pauses count.
func TestLagOfAReplicaThatIsGone(t *testing.T) {
	t.Parallel()
	runAll(t, []Options{{Seed: 30037}, {Seed: 40257, Appliers: 1}, {Nodes: 3, Seed: 700537, Members: -1}})
}
