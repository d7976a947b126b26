package replay

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/seglog"
)

// TestNeediest: who holds the log, and nobody while it is not known what one needs. A
// member that this agent has not heard may need next to nothing.
func TestNeediest(t *testing.T) {
	need := func(who string, from uint64) Need { return Need{Who: who, From: from, Known: true} }
	for name, c := range map[string]struct {
		needs []Need
		want  string
	}{
		"nobody":               {nil, ""},
		"the oldest":           {[]Need{need("a", 90), need("b", 10), need("c", 80)}, "b"},
		"all of it":            {[]Need{need("a", 90), need("b", 0)}, "b"},
		"one was never heard":  {[]Need{need("a", 90), {Who: "b"}}, ""},
		"another one is known": {[]Need{{Who: "a"}, need("b", 10)}, ""},
	} {
		if got := neediest(c.needs); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestHolder: a node's data are given up only if that makes the log shorter. Ten
// segments of 100 entries and 10 bytes each, of which 50 bytes are too much.
func TestHolder(t *testing.T) {
	var segments []seglog.SegmentInfo
	for i := range uint64(10) {
		segments = append(segments, seglog.SegmentInfo{FirstIndex: 100*i + 1, LastIndex: 100*i + 100, Bytes: 10, Sealed: i < 9})
	}
	plan := func(members []cluster.NodeStatus) cluster.PurgePlan {
		in := PurgeInput{Segments: segments, Retention: Retention{BytesMax: 50}}
		in.Needs, in.Marks = Needs(members)
		return PlanPurge(in)
	}
	node := func(name string, kind cluster.Kind, from uint64) cluster.NodeStatus {
		return cluster.NodeStatus{Name: name, Kind: kind, Role: cluster.RoleReplica, LogCommit: 950, DurableMark: from - 1, LogFirst: 1}
	}
	full := cluster.KindFull
	logger := cluster.NodeStatus{Name: "c", Kind: cluster.KindLogger, Role: cluster.RoleLogger, LogCommit: 950, LogFirst: 1}
	for name, c := range map[string]struct {
		members []cluster.NodeStatus
		want    string
	}{
		"b alone":                        {[]cluster.NodeStatus{node("a", full, 940), node("b", full, 10), node("c", full, 940)}, "b"},
		"b alone, of two with a logger":  {[]cluster.NodeStatus{node("a", full, 940), node("b", full, 10), logger}, "b"},
		"b alone, by a segment or two":   {[]cluster.NodeStatus{node("a", full, 390), node("b", full, 190), node("c", full, 940)}, ""},
		"b, by enough":                   {[]cluster.NodeStatus{node("a", full, 390), node("b", full, 90), node("c", full, 940)}, "b"},
		"nobody":                         {[]cluster.NodeStatus{node("a", full, 940), node("b", full, 930), node("c", full, 940)}, ""},
		"all, by what is prepared still": {[]cluster.NodeStatus{node("a", full, 11), node("b", full, 10), node("c", full, 11)}, ""},
		"b, and one that was not heard":  {[]cluster.NodeStatus{node("a", full, 940), node("b", full, 10), {Name: "c", Kind: full}}, ""},
	} {
		if got := Holder(c.members, 50, plan); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
