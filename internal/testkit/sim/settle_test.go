package sim

import "testing"

// blipSeeds is how many seeds are run of the world in which the primary is deposed again and again.
const blipSeeds = 60

// blipMemberSeeds is the same number for that world with changes of the members.
const blipMemberSeeds = 20

// TestBlipsWhileMembersChange is TestBlips with changes of the members.
func TestBlipsWhileMembersChange(t *testing.T) {
	n := blipMemberSeeds
	if testing.Short() {
		n = shortSeeds
	}
	settled, joints := 0, 0
	for seed := range uint64(n) {
		r := Run(Options{Seed: seed + 1, Blips: true, Members: 1})
		if r.Failure != nil {
			t.Fatalf("go run ./internal/testkit/sim/cmd -blips -members 1 -seed %d: %s", seed+1, r.Report())
		}
		settled, joints = settled+r.Settles.Kept, joints+r.Joints
	}
	t.Logf("%d settled, %d joint changes", settled, joints)
	if settled < n/4 || joints < n {
		t.Errorf("%d settled, %d joint changes in %d runs: too few to mean anything", settled, joints, n)
	}
}

// TestBlips: in these runs deposed primaries must be settled, also some that had something to acknowledge, and
// others must not be.
func TestBlips(t *testing.T) {
	n, late := blipSeeds, blipSeeds/4
	if testing.Short() {
		n, late = shortSeeds, 1 // only a third of the runs has one
	}
	var sum SettleCounts
	for seed := range uint64(n) {
		r := Run(Options{Seed: seed + 1, Blips: true, Members: -1})
		if r.Failure != nil {
			t.Fatalf("go run ./internal/testkit/sim/cmd -blips -seed %d: %s", seed+1, r.Report())
		}
		sum.Deposed, sum.Kept, sum.Late = sum.Deposed+r.Settles.Deposed, sum.Kept+r.Settles.Kept, sum.Late+r.Settles.Late
	}
	t.Logf("%+v", sum)
	if sum.Kept < n || sum.Late < late || sum.Deposed-sum.Kept < n {
		t.Errorf("%+v in %d runs: too few of a kind to mean anything", sum, n)
	}
}
