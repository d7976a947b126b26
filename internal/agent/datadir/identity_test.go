package datadir

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
)

// identities has one identity for each life.
func identities() map[Life]Identity {
	return map[Life]Identity{
		Begun:      {Instance: "1"},
		Joining:    {Instance: "2", Joining: true, Recovered: true, GivenUp: &GivenUp{Dir: "old", Identity: Identity{Log: true}}},
		Member:     {Instance: "3", Log: true, State: true, Recovered: true},
		Superseded: {Instance: "4", Log: true, Superseded: &cluster.Recovery{Version: 7}},
		Removed:    {Instance: "5", Log: true, State: true, Removed: true, Superseded: &cluster.Recovery{Version: 7}},
	}
}

// TestLives: after each life only a life that may follow it is written.
func TestLives(t *testing.T) {
	for from, before := range identities() {
		for to, next := range identities() {
			d := New(vfs.NewMem(), ".")
			if err := d.replace(IdentityFile, before); err != nil {
				t.Fatal(err)
			}
			err := d.WriteIdentity(next)
			got, _, readErr := d.Identity()
			want := before
			if may := from == to || from != Removed && to != Begun && !(from == Joining && to == Superseded); may {
				want = next
			}
			if diff := cmp.Diff(want, got); diff != "" || readErr != nil {
				t.Errorf("from %s to %s: %v, %v (-want +got):\n%s", from, to, err, readErr, diff)
			}
		}
	}
}

// TestLostDirectoryIsNoMember: a node that runs does not make its directory a member's if there is no identity: its
// disk is gone from the mount point. A node that is adopted or restored does.
func TestLostDirectoryIsNoMember(t *testing.T) {
	d, member := New(vfs.NewMem(), "."), identities()[Member]
	if err := d.WriteIdentity(member); err == nil || d.Has(IdentityFile) {
		t.Errorf("a directory without identity becomes a member's: %v", err)
	}
	if err := d.Found(identities()[Begun]); err == nil {
		t.Error("a directory is adopted, and is no member's")
	}
	for range 2 { // the second time it was interrupted
		if err := d.Found(member); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImpossibleLives: combinations that no agent has written are neither read nor written; every other combination
// is read as its life.
func TestImpossibleLives(t *testing.T) {
	possible := 0
	for bits := range 128 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		id := Identity{Log: bit(0), State: bit(1), Joining: bit(2), Removed: bit(3), Recovered: bit(4)}
		if bit(5) {
			id.Superseded = &cluster.Recovery{}
		}
		if bit(6) {
			id.GivenUp = &GivenUp{}
		}
		_, impossible := id.Life()
		fresh, used := New(vfs.NewMem(), "."), New(vfs.NewMem(), ".")
		if err := used.replace(IdentityFile, id); err != nil {
			t.Fatal(err)
		}
		if _, _, err := used.Identity(); (err != nil) != (impossible != nil) {
			t.Errorf("%+v is read with %v, and is %v", id, err, impossible)
		} else if err != nil && !strings.Contains(err.Error(), "identity.json is damaged: put it back") {
			t.Errorf("%+v: %v", id, err)
		}
		if impossible == nil {
			possible++
		} else if err := fresh.WriteIdentity(id); err == nil || fresh.Has(IdentityFile) {
			t.Errorf("%+v is written, and is %v", id, impossible)
		}
	}
	if possible != 24 {
		t.Errorf("%d of 128 combinations are possible", possible)
	}
}

// TestLifeCrashes ends the process at each operation of a change of life: the node is in the old life or in the new
// one.
func TestLifeCrashes(t *testing.T) {
	broken := errors.New("broken")
	all := identities()
	for _, c := range [][2]Life{{Unborn, Begun}, {Begun, Member}, {Member, Joining}, {Joining, Member}, {Member, Superseded}, {Superseded, Removed}} {
		for n, seen := int64(1), map[Life]int{}; ; n++ {
			mem := vfs.NewMem()
			if before, ok := all[c[0]]; ok {
				if err := New(mem, ".").replace(IdentityFile, before); err != nil {
					t.Fatal(err)
				}
			}
			fs := vfs.Wrap(mem, vfs.FailNth(n, broken, func(op vfs.Op, _ string) bool { return op.Changes() }))
			if err := New(fs, ".").WriteIdentity(all[c[1]]); err == nil {
				if seen[c[0]] == 0 || seen[c[1]] == 0 {
					t.Errorf("from %s to %s: seen %v", c[0], c[1], seen)
				}
				break
			}
			for seed := range uint64(16) {
				id, found, err := New(mem.CrashClone(seed), ".").Identity()
				life := Unborn
				if found && err == nil {
					life, err = id.Life()
				}
				if err != nil || life != c[0] && life != c[1] {
					t.Fatalf("from %s to %s, operation %d, disk %d: it is %q, %v", c[0], c[1], n, seed, life, err)
				}
				seen[life]++
			}
		}
	}
}
