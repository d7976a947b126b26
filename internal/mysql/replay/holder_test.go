package replay

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
)

// TestHolder: a node's data are given up only if that makes the log shorter. The log has ten
// segments of 100 entries and 10 bytes each; 50 bytes are too much.
func TestHolder(t *testing.T) {
	var segments []seglog.SegmentInfo
	for i := range uint64(10) {
		segments = append(segments, seglog.SegmentInfo{FirstIndex: 100*i + 1, LastIndex: 100*i + 100, Bytes: 10, Sealed: i < 9})
	}
	plan := func(members []status.Node) cluster.PurgePlan {
		in := PurgeInput{Segments: segments, Retention: Retention{BytesMax: 50}}
		in.Needs, in.Marks = Needs(members)
		return PlanPurge(in)
	}
	node := func(name string, kind cluster.Kind, from uint64) status.Node {
		return status.Node{Name: name, Kind: kind, Role: status.RoleReplica, LogCommit: 950, DurableMark: from - 1, LogFirst: 1}
	}
	with := func(n status.Node, role status.Role, reachable bool) status.Node {
		n.Role, n.Reachable = role, reachable
		return n
	}
	full, errant := cluster.KindFull, status.RoleErrant
	logger := status.Node{Name: "c", Kind: cluster.KindLogger, Role: status.RoleLogger, LogCommit: 950, LogFirst: 1}
	for name, c := range map[string]struct {
		members []status.Node
		away    string
		want    string
	}{
		"b alone":                       {[]status.Node{node("a", full, 940), node("b", full, 10), node("c", full, 940)}, "b", "b"},
		"b alone, and it is not away":   {[]status.Node{node("a", full, 940), node("b", full, 10), node("c", full, 940)}, "c", ""},
		"b alone, of two with a logger": {[]status.Node{node("a", full, 940), node("b", full, 10), logger}, "b", "b"},
		"b alone, by a segment or two":  {[]status.Node{node("a", full, 390), node("b", full, 190), node("c", full, 940)}, "b", ""},
		"b, by enough":                  {[]status.Node{node("a", full, 390), node("b", full, 90), node("c", full, 940)}, "b", "b"},
		"nobody":                        {[]status.Node{node("a", full, 940), node("b", full, 930), node("c", full, 940)}, "b", ""},
		"all, by what is prepared still": {
			[]status.Node{node("a", full, 11), node("b", full, 10), node("c", full, 11)}, "b", ""},
		"b, and what one needs is not known": {[]status.Node{node("a", full, 940), node("b", full, 10), {Name: "c", Kind: full}}, "bc", ""},
		"two are dead": {
			[]status.Node{node("a", full, 940), node("b", full, 940), node("c", full, 940), node("d", full, 30), node("e", full, 20)}, "de", "e"},
		"one is dead, one fenced": {
			[]status.Node{node("a", full, 940), node("b", full, 940), node("c", full, 940), with(node("d", full, 30), status.RoleFenced, true), node("e", full, 20)}, "de", "d"},
		"one is dead, one fenced that has all": {
			[]status.Node{node("a", full, 940), node("b", full, 940), node("c", full, 940), with(node("d", full, 930), status.RoleFenced, true), node("e", full, 20)}, "de", "e"},
		"an errant one needs nothing":                    {[]status.Node{node("a", full, 940), with(node("b", full, 10), errant, true), node("c", full, 940)}, "b", ""},
		"an errant one of two, whose data count no more": {[]status.Node{node("a", full, 940), with(node("b", full, 940), errant, true), logger}, "b", "b"},
	} {
		if got := Holder(c.members, 50, func(name string) bool { return strings.Contains(c.away, name) }, plan); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
