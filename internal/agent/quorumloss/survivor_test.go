package quorumloss

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/transport"
)

// callersOf is what a survivor hears that has met each node with this data directory; 0 = none.
func callersOf(pinned byte) *Callers {
	text := func(instance byte) string { return hex.EncodeToString(append([]byte{instance}, make([]byte, 15)...)) }
	return &Callers{
		State: cluster.State{
			Members:   []cluster.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c", Instance: text(3)}},
			Removed:   []cluster.NodeID{4},
			Recovered: &cluster.Recovery{Without: []cluster.Member{{ID: 5, Name: "e"}}},
		},
		Pinned: func(cluster.NodeID) string {
			if pinned == 0 {
				return ""
			}
			return text(pinned)
		},
	}
}

// TestStranger: a node is known with the data directory that the survivor's state names, or else with that it has met. A node
// of before is known with its old directory, which serves nothing. Who serves nothing is not kept, others are kept once.
func TestStranger(t *testing.T) {
	const ignored, member, stranger = "ignored", "member", "stranger"
	for _, c := range []struct {
		name             string
		id               cluster.NodeID
		calls            string
		instance, pinned byte
		want             string
	}{
		{"a member that was never met", 2, "b", 7, 0, member},
		{"a member as it was met", 2, "b", 7, 7, member},
		{"a member with another directory", 2, "b", 7, 8, stranger},
		{"a member that was rebuilt", 3, "c", 3, 0, member},
		{"a member before it was rebuilt", 3, "c", 7, 3, stranger},
		{"a member whose rebuild is not complete", 3, "c", 7, 7, member},
		{"a member with an empty directory", 2, "b", 0, 7, ignored},
		{"a member's id with another name", 2, "x", 7, 7, ignored},
		{"a removed node", 4, "d", 7, 7, ignored},
		{"a removed node with another directory", 4, "d", 8, 7, stranger},
		{"a node that was left behind", 5, "e", 7, 7, ignored},
		{"one that was rebuilt since", 5, "e", 8, 7, stranger},
		{"no member", 6, "f", 7, 0, stranger},
		{"no member, which was met", 6, "f", 7, 7, stranger},
		{"no member, with an empty directory", 6, "f", 0, 0, ignored},
	} {
		h, want := callersOf(c.pinned), []recovery.Caller{{Name: c.calls, From: "10.0.0.1", Stranger: c.want == stranger}}
		for range 2 {
			h.Hear(transport.Identity{Node: c.id, NodeName: c.calls, Instance: [16]byte{c.instance}}, "10.0.0.1")
		}
		if got := h.List(); c.want == ignored && got != nil || c.want != ignored && !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want: %s", c.name, got, c.want)
		}
	}
}

// TestRecoveryLooksAtEmptyNodes: a node whose disk may only be missing from its mount point does not count as gone. A node
// with another directory under its old name does not count for a majority here, and elects nobody.
func TestRecoveryLooksAtEmptyNodes(t *testing.T) {
	for _, c := range []struct {
		instance, pinned byte
		want             string
	}{
		{1, 1, ""}, {2, 1, "has another data directory"}, {3, 0, ""},
		{0, 1, `the data directory of node "b" is empty`}, {0, 0, `the data directory of node "b" is empty`},
	} {
		err := callersOf(c.pinned).CheckAnswer(transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{c.instance}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("instance %d, pinned %d: %v, want %q", c.instance, c.pinned, err, c.want)
		}
	}
}

// TestCallersLeaveRoomForAStranger: who pretends to be members, under many names and from many addresses, cannot keep a
// stranger from being heard.
func TestCallersLeaveRoomForAStranger(t *testing.T) {
	h := callersOf(7)
	dial := func(id cluster.NodeID, name, host string) {
		h.Hear(transport.Identity{Node: id, NodeName: name, Instance: [16]byte{7}}, host)
	}
	for i := range 2 * callersMax {
		dial(2, fmt.Sprintf("x%d", i), "10.0.0.1")
		dial(2, "b", fmt.Sprintf("10.0.0.%d", i))
		dial(4, fmt.Sprintf("y%d", i), "10.0.0.1")
	}
	dial(6, "f", "10.0.0.2")
	want := []recovery.Caller{{Name: "b", From: "10.0.0.0"}, {Name: "f", From: "10.0.0.2", Stranger: true}}
	if got := h.List(); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	for i := range 2 * callersMax {
		dial(6, "f", fmt.Sprintf("10.0.1.%d", i))
	}
	if got := h.List(); len(got) != callersMax {
		t.Errorf("%d callers are kept", len(got))
	}
}
