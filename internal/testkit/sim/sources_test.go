package sim

import "testing"

// sourceSeeds is how many seeds are run of the world in which learners have sources.
const sourceSeeds = 30

// TestSources: in these runs leaders must leave learners to their sources, and learners must catch up without
// their sources.
func TestSources(t *testing.T) {
	t.Parallel()
	n := sourceSeeds
	if testing.Short() {
		n = shortSeeds / 2
	}
	all := sum(runSeeds(t, n, Options{Nodes: 5, Members: MembersSourced}))
	t.Logf("%d times left to a source, %d times not", all.LeftToSources, all.Fallbacks)
	if all.LeftToSources < n/2 || all.Fallbacks < n/2 {
		t.Errorf("learners were left to their sources %d times, and caught up without %d times, in %d runs: too few to mean anything", all.LeftToSources, all.Fallbacks, n)
	}
}
