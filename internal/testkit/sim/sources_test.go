package sim

import "testing"

// sourceSeeds is how many seeds are run of the world in which learners have sources.
const sourceSeeds = 30

// TestSources: in these runs leaders must leave learners to their sources, and learners must catch up without
// their sources.
func TestSources(t *testing.T) {
	left, fallbacks := 0, 0
	for seed := range uint64(sourceSeeds) {
		r := Run(Options{Seed: seed + 1, Nodes: 5, Members: MembersSourced})
		if r.Failure != nil {
			t.Fatalf("go run ./internal/testkit/sim/cmd -nodes 5 -members %d -seed %d: %s", MembersSourced, seed+1, r.Report())
		}
		left, fallbacks = left+r.LeftToSources, fallbacks+r.Fallbacks
		if testing.Short() && left > 0 && fallbacks > 0 {
			return
		}
	}
	t.Logf("%d times left to a source, %d times not", left, fallbacks)
	if left < sourceSeeds/2 || fallbacks < sourceSeeds/2 {
		t.Errorf("learners were left to their sources %d times, and caught up without %d times, in %d runs: too few to mean anything", left, fallbacks, sourceSeeds)
	}
}
