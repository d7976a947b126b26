package quorumloss

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

// TestStranger: a node is known with the data directory that the survivor's state names, or else with that it has met. A node
// of before is known with its old directory, which serves nothing.
func TestStranger(t *testing.T) {
	s := cluster.State{
		Members:   []cluster.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c", Instance: "i3"}},
		Removed:   []cluster.NodeID{4},
		Recovered: &cluster.Recovery{Without: []cluster.Member{{ID: 5, Name: "e"}}},
	}
	for _, c := range []struct {
		name             string
		id               cluster.NodeID
		instance, pinned string
		want             bool
	}{
		{"a member that was never met", 2, "x", "", false},
		{"a member as it was met", 2, "x", "x", false},
		{"a member with another directory", 2, "x", "y", true},
		{"a member that was rebuilt", 3, "i3", "", false},
		{"a member before it was rebuilt", 3, "old", "i3", true},
		{"a member whose rebuild is not complete", 3, "old", "old", false},
		{"a removed node", 4, "x", "x", false},
		{"a removed node with another directory", 4, "y", "x", true},
		{"a node that was left behind", 5, "x", "x", false},
		{"one that was rebuilt since", 5, "y", "x", true},
		{"no member", 6, "x", "", true},
		{"no member, which was met", 6, "x", "x", true},
	} {
		if got := Stranger(s, c.id, c.instance, c.pinned); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
