package sim

import "testing"

// TestLosses runs worlds in which a majority is lost for good, and wants recoveries to be
// forced, accepted and rejected in them.
func TestLosses(t *testing.T) {
	seeds := uint64(48)
	if testing.Short() {
		seeds = 12
	}
	recoveries, accepted, rejected := 0, 0, 0
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(Options{Seed: seed, Losses: 1})
		t.Logf("seed %d: %s", seed, r.Summary(0))
		if r.Failure != nil {
			t.Fatal(r.Report())
		}
		recoveries, accepted, rejected = recoveries+r.Recoveries, accepted+r.Accepted, rejected+r.Rejections
	}
	if n := int(seeds); recoveries < n/4 || accepted < n/6 || !testing.Short() && rejected == 0 {
		t.Errorf("%d recoveries, accepted %d times, rejected %d times: too few to mean anything", recoveries, accepted, rejected)
	}
}
