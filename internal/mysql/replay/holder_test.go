package replay

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
)

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
	with := func(n cluster.NodeStatus, role cluster.Role, reachable bool) cluster.NodeStatus {
		n.Role, n.Reachable = role, reachable
		return n
	}
	full, errant := cluster.KindFull, cluster.RoleErrant
	logger := cluster.NodeStatus{Name: "c", Kind: cluster.KindLogger, Role: cluster.RoleLogger, LogCommit: 950, LogFirst: 1}
	for name, c := range map[string]struct {
		members []cluster.NodeStatus
		away    string
		want    string
	}{
		"b alone":                       {[]cluster.NodeStatus{node("a", full, 940), node("b", full, 10), node("c", full, 940)}, "b", "b"},
		"b alone, and it is not away":   {[]cluster.NodeStatus{node("a", full, 940), node("b", full, 10), node("c", full, 940)}, "c", ""},
		"b alone, of two with a logger": {[]cluster.NodeStatus{node("a", full, 940), node("b", full, 10), logger}, "b", "b"},
		"b alone, by a segment or two":  {[]cluster.NodeStatus{node("a", full, 390), node("b", full, 190), node("c", full, 940)}, "b", ""},
		"b, by enough":                  {[]cluster.NodeStatus{node("a", full, 390), node("b", full, 90), node("c", full, 940)}, "b", "b"},
		"nobody":                        {[]cluster.NodeStatus{node("a", full, 940), node("b", full, 930), node("c", full, 940)}, "b", ""},
		"all, by what is prepared still": {
			[]cluster.NodeStatus{node("a", full, 11), node("b", full, 10), node("c", full, 11)}, "b", ""},
		"b, and what one needs is not known": {[]cluster.NodeStatus{node("a", full, 940), node("b", full, 10), {Name: "c", Kind: full}}, "bc", ""},
		"two are dead": {
			[]cluster.NodeStatus{node("a", full, 940), node("b", full, 940), node("c", full, 940), node("d", full, 30), node("e", full, 20)}, "de", "e"},
		"one is dead, one fenced": {
			[]cluster.NodeStatus{node("a", full, 940), node("b", full, 940), node("c", full, 940), with(node("d", full, 30), cluster.RoleFenced, true), node("e", full, 20)}, "de", "d"},
		"one is dead, one fenced that has all": {
			[]cluster.NodeStatus{node("a", full, 940), node("b", full, 940), node("c", full, 940), with(node("d", full, 930), cluster.RoleFenced, true), node("e", full, 20)}, "de", "e"},
		"an errant one needs nothing":                    {[]cluster.NodeStatus{node("a", full, 940), with(node("b", full, 10), errant, true), node("c", full, 940)}, "b", ""},
		"an errant one of two, whose data count no more": {[]cluster.NodeStatus{node("a", full, 940), with(node("b", full, 940), errant, true), logger}, "b", "b"},
	} {
		if got := Holder(c.members, 50, func(name string) bool { return strings.Contains(c.away, name) }, plan); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
