package sim

import "testing"

// blipSeeds is how many seeds are run of the world in which the primary is deposed again and again.
const blipSeeds = 60

// blipMemberSeeds is the same number for that world with changes of the members.
const blipMemberSeeds = 20

// TestBlipsWhileMembersChange is TestBlips with changes of the members.
func TestBlipsWhileMembersChange(t *testing.T) {
	t.Parallel()
	n := blipMemberSeeds
	if testing.Short() {
		n = shortSeeds
	}
	all := sum(runSeeds(t, n, Options{Blips: true, Members: 1}))
	t.Logf("%d settled, %d joint changes", all.Settles.Kept, all.Joints)
	if all.Settles.Kept < n/4 || all.Joints < n {
		t.Errorf("%d settled, %d joint changes in %d runs: too few to mean anything", all.Settles.Kept, all.Joints, n)
	}
}

// TestBlips: in these runs deposed primaries must be settled, also some that had something to acknowledge, and
// others must not be.
func TestBlips(t *testing.T) {
	t.Parallel()
	n, late := blipSeeds, blipSeeds/4
	if testing.Short() {
		n, late = shortSeeds, 1 // only a third of the runs has one
	}
	all := sum(runSeeds(t, n, Options{Blips: true, Members: -1})).Settles
	t.Logf("%+v", all)
	if all.Kept < n || all.Late < late || all.Deposed-all.Kept < n {
		t.Errorf("%+v in %d runs: too few of a kind to mean anything", all, n)
	}
}
