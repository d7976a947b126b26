package sim

import "testing"

// appliersSeeds is how many seeds are run with appliers that stop.
const appliersSeeds = 30

// TestAppliersStop: in these runs appliers stop, and primaries slow their writers down.
func TestAppliersStop(t *testing.T) {
	n := appliersSeeds
	if testing.Short() {
		n = shortSeeds
	}
	stops, slowings := 0, 0
	for seed := range uint64(n) {
		r := Run(Options{Seed: seed + 1, Appliers: 1})
		if r.Failure != nil {
			t.Fatalf("go run ./internal/testkit/sim/cmd -appliers 1 -seed %d: %s", seed+1, r.Report())
		}
		stops, slowings = stops+r.ApplierStops, slowings+r.Slowings
	}
	t.Logf("%d stops, %d times slowed down or let go", stops, slowings)
	if stops < 2*n || slowings < n/8 {
		t.Errorf("%d stops, %d times slowed down or let go in %d runs: too few to mean anything", stops, slowings, n)
	}
}

// TestLagOfAReplicaThatIsGone runs two seeds. In both, the replica that was near falls silent or stops
// applying. The primary counts it until its last status is two seconds old, and until then hands out as much as
// it likes.
func TestLagOfAReplicaThatIsGone(t *testing.T) {
	for _, o := range []Options{{Seed: 30037}, {Seed: 40257, Appliers: 1}} {
		if r := Run(o); r.Failure != nil {
			t.Errorf("seed %d: %s", o.Seed, r.Report())
		}
	}
}
