package replay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
)

// drawSegments draws a log that begins anywhere.
func drawSegments(t *rapid.T) []seglog.SegmentInfo {
	first := rapid.Uint64Range(1, 50).Draw(t, "first")
	n := rapid.IntRange(1, 8).Draw(t, "segments")
	sealed := rapid.IntRange(0, n).Draw(t, "sealed")
	segments := make([]seglog.SegmentInfo, 0, n)
	for i := range n {
		entries := rapid.Uint64Range(1, 20).Draw(t, "entries")
		segments = append(segments, seglog.SegmentInfo{
			FirstIndex: first, LastIndex: first + entries - 1, Sealed: i < sealed,
			Bytes:    rapid.Int64Range(1, 100).Draw(t, "bytes"),
			LastTime: rapid.Int64Range(0, 200).Draw(t, "time"),
		})
		first += entries
	}
	return segments
}

func drawPurge(t *rapid.T) PurgeInput {
	in := PurgeInput{
		Segments: drawSegments(t), Now: time.Unix(200, 0),
		Retention: Retention{
			BytesMax: rapid.Int64Range(0, 400).Draw(t, "retention size"),
			AgeMax:   time.Duration(rapid.IntRange(0, 200).Draw(t, "retention age")) * time.Second,
		},
	}
	end := in.Segments[len(in.Segments)-1].LastIndex + 1
	if rapid.Bool().Draw(t, "bounded") {
		in.Retention.UpTo = rapid.Uint64Range(0, end).Draw(t, "up to")
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "members") {
		in.Needs = append(in.Needs, Need{
			Who: fmt.Sprint("n", i), Why: "test", From: rapid.Uint64Range(0, end).Draw(t, "from"),
			Known: rapid.IntRange(0, 9).Draw(t, "known") > 0,
		})
		if rapid.Bool().Draw(t, "full") {
			in.Marks = append(in.Marks, rapid.Uint64Range(0, end).Draw(t, "mark"))
		}
	}
	return in
}

// safe is the model: whether this log may lose one index.
func (in PurgeInput) safe(index uint64) bool {
	for _, n := range in.Needs {
		if !n.Known || index >= n.From {
			return false
		}
	}
	marks := slices.Sorted(slices.Values(in.Marks))
	slices.Reverse(marks)
	quorum := len(marks)/2 + 1
	return len(marks) >= quorum && marks[quorum-1] >= index
}

// TestPurgeTakesNothingThatIsNeeded compares with the model, index by index.
func TestPurgeTakesNothingThatIsNeeded(t *testing.T) {
	purged, kept := 0, 0
	check := func(t *rapid.T) {
		in := drawPurge(t)
		p := PlanPurge(in)
		left, bytes, upTo := int64(0), int64(0), uint64(0)
		for _, s := range in.Segments {
			left += s.Bytes
		}
		goes := true // while it is the oldest that is looked at
		for i, s := range in.Segments {
			written := int64(0)
			for j := i; j < len(in.Segments) && written == 0; j++ {
				written = in.Segments[j].LastTime
			}
			may := s.Sealed && i < len(in.Segments)-1 && (left > in.Retention.BytesMax ||
				in.Retention.AgeMax > 0 && written > 0 && 200-written > int64(in.Retention.AgeMax.Seconds()))
			may = may && (in.Retention.UpTo == 0 || s.LastIndex <= in.Retention.UpTo)
			for index := s.FirstIndex; index <= s.LastIndex; index++ {
				may = may && in.safe(index)
			}
			goes = goes && may
			if got := p.Segments[i]; got.Purge != goes || got.First != s.FirstIndex || got.Last != s.LastIndex || got.Why == "" {
				t.Fatalf("segment %d: %+v, want it purged: %t", i, got, goes)
			}
			left -= s.Bytes
			if goes {
				purged++
				bytes, upTo = bytes+s.Bytes, s.LastIndex
			} else {
				kept++
			}
		}
		if p.UpTo != upTo || p.Bytes != bytes {
			t.Fatalf("up to %d, %d bytes, want %d and %d", p.UpTo, p.Bytes, upTo, bytes)
		}
	}
	// In most draws some member needs everything.
	for rounds := 0; rounds == 0 || purged == 0 && rounds < 50; rounds++ {
		rapid.Check(t, check)
	}
	if purged == 0 || kept == 0 {
		t.Fatalf("%d purged, %d kept: nothing was tested", purged, kept)
	}
}

// TestPurgeSaysWhy: operators decide by these words.
func TestPurgeSaysWhy(t *testing.T) {
	segments := []seglog.SegmentInfo{
		{FirstIndex: 1, LastIndex: 100, Bytes: 10 << 20, LastTime: 1000, Sealed: true},
		{FirstIndex: 101, LastIndex: 200, Bytes: 10 << 20, LastTime: 5000, Sealed: true},
		{FirstIndex: 201, LastIndex: 300, Bytes: 10 << 20, LastTime: 9000, Sealed: true},
		{FirstIndex: 301, LastIndex: 310, Bytes: 1 << 20},
	}
	known := func(from ...uint64) (needs []Need) {
		for i, f := range from {
			needs = append(needs, Need{Who: fmt.Sprintf("n%d", i+1), From: f, Why: "durable mark", Known: true})
		}
		return needs
	}
	large := Retention{BytesMax: 1 << 40, AgeMax: time.Hour}
	for _, c := range []struct {
		name      string
		needs     []Need
		marks     []uint64
		retention Retention
		want      []string
		blocked   string
	}{
		{"age", known(305, 305), []uint64{304, 304}, large, []string{
			"it is older than its retention (age 2h30m of 1h)", "it is older than its retention (age 1h23m20s of 1h)",
			"kept: within retention (age 16m40s of 1h, 11MiB of 1TiB)", "kept: it is the one in use"}, ""},
		{"size", known(305, 305), []uint64{304, 304}, Retention{BytesMax: 25 << 20}, []string{
			"the log is larger than its retention (31MiB of 25MiB)", "kept: within retention (21MiB of 25MiB)",
			"kept: within retention (11MiB of 25MiB)", "kept: it is the one in use"}, ""},
		{"up to", known(305, 305), []uint64{304, 304}, Retention{UpTo: 100}, []string{
			"the log is larger than its retention (31MiB of 0B)", "kept: the request goes up to entry 100",
			"kept: the request goes up to entry 100", "kept: it is the one in use"}, ""},
		{"needed", known(305, 120), []uint64{304, 119}, large, []string{
			"kept: 1 of 2 full nodes hold it durably, 2 must", "kept: node n2 needs it from index 120 (durable mark)",
			"kept: within retention (age 16m40s of 1h, 11MiB of 1TiB)", "kept: it is the one in use"},
			"entries 1-100 would go by retention: 1 of 2 full nodes hold it durably, 2 must"},
		{"unknown", append(known(305), Need{Who: "n2"}), []uint64{304, 304}, Retention{}, []string{
			"kept: nothing was heard of node n2 since this agent started", "kept: nothing was heard of node n2 since this agent started",
			"kept: nothing was heard of node n2 since this agent started", "kept: it is the one in use"},
			"entries 1-100 would go by retention: nothing was heard of node n2 since this agent started"},
	} {
		in := PurgeInput{Segments: segments, Needs: c.needs, Marks: c.marks, Retention: c.retention, Now: time.Unix(10000, 0)}
		if c.name == "needed" {
			in.Marks[1] = 99
		}
		p := PlanPurge(in)
		var got []string
		for _, s := range p.Segments {
			got = append(got, s.Why)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if p.Blocked != c.blocked {
			t.Errorf("%s: blocked %q, want %q", c.name, p.Blocked, c.blocked)
		}
	}
}

// TestPurgeKeepsTheBeginning: the segment of the first epoch, which has no transaction, is not
// removed before the next one could be. Without it no mysqld can be made from the log.
func TestPurgeKeepsTheBeginning(t *testing.T) {
	in := PurgeInput{
		Segments: []seglog.SegmentInfo{
			{FirstIndex: 1, LastIndex: 1, Bytes: 300, Sealed: true},
			{FirstIndex: 2, LastIndex: 9, Bytes: 900, Sealed: true, LastTime: 9000},
			{FirstIndex: 10, LastIndex: 12, Bytes: 300},
		},
		Needs: []Need{{Who: "a", From: 13, Known: true}}, Marks: []uint64{12},
		Retention: Retention{BytesMax: 1 << 20, AgeMax: time.Hour}, Now: time.Unix(10000, 0),
	}
	if p := PlanPurge(in); p.UpTo != 0 {
		t.Errorf("up to %d: %+v", p.UpTo, p.Segments)
	}
	in.Now = time.Unix(9000+3601, 0)
	if p := PlanPurge(in); p.UpTo != 9 {
		t.Errorf("an hour later up to %d: %+v", p.UpTo, p.Segments)
	}
	in.Segments = []seglog.SegmentInfo{in.Segments[0], {FirstIndex: 2, LastIndex: 2, Bytes: 300}}
	if p := PlanPurge(in); p.UpTo != 0 {
		t.Errorf("with no transaction at all up to %d: %+v", p.UpTo, p.Segments)
	}
}

// TestPurgeWithoutFullNodes: without a node that has the data in InnoDB nothing is removed.
func TestPurgeWithoutFullNodes(t *testing.T) {
	p := PlanPurge(PurgeInput{
		Segments: []seglog.SegmentInfo{{FirstIndex: 1, LastIndex: 9, Bytes: 1, Sealed: true}, {FirstIndex: 10, LastIndex: 10}},
		Needs:    []Need{{Who: "l", From: 11, Known: true}},
	})
	if p.UpTo != 0 || !strings.Contains(p.Blocked, "0 of 0 full nodes") {
		t.Fatalf("%+v", p)
	}
}

func TestNeeds(t *testing.T) {
	full := status.Node{Name: "a", Kind: cluster.KindFull, Role: status.RoleReplica, LogFirst: 10, LogCommit: 100, DurableMark: 80}
	for _, c := range []struct {
		name   string
		change func(*status.Node)
		need   Need
		marks  []uint64
	}{
		{"mark", func(*status.Node) {}, Need{From: 81, Why: "durable mark", Known: true}, []uint64{80}},
		{"log", func(n *status.Node) { n.LogCommit = 70 }, Need{From: 70, Why: "its log ends there", Known: true}, []uint64{80}},
		{"logger", func(n *status.Node) { n.Kind, n.DurableMark = cluster.KindLogger, 0 },
			Need{From: 100, Why: "its log ends there", Known: true}, nil},
		{"learner", func(n *status.Node) { n.Kind, n.Mysqld = cluster.KindLearner, status.MysqldRunning },
			Need{From: 81, Why: "durable mark", Known: true}, nil},
		{"learner without mysqld", func(n *status.Node) {
			n.Kind, n.Mysqld, n.DurableMark = cluster.KindLearner, status.MysqldNone, 0
		},
			Need{From: 100, Why: "its log ends there", Known: true}, nil},
		{"joining", func(n *status.Node) {
			*n = status.Node{Name: "a", Kind: cluster.KindLearner, Role: status.RoleJoining}
		},
			Need{Why: "its log ends there", Known: true}, nil},
		{"damaged", func(n *status.Node) { n.LogState = status.LogDamaged },
			Need{From: 10, Why: "its log is damaged", Known: true}, []uint64{80}},
		{"unheard", func(n *status.Node) { *n = status.Node{Name: "a", Kind: cluster.KindFull} },
			Need{Why: "its log ends there"}, []uint64{0}},
		{"errant", func(n *status.Node) { n.Role = status.RoleErrant },
			Need{From: 100, Why: "its log ends there", Known: true}, []uint64{0}},
		{"older version", func(n *status.Node) { n.DurableMark = 0 }, Need{From: 1, Why: "durable mark", Known: true}, []uint64{0}},
	} {
		n := full
		c.change(&n)
		c.need.Who = "a"
		got, marks := Needs([]status.Node{n})
		if diff := cmp.Diff([]Need{c.need}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if diff := cmp.Diff(c.marks, marks); diff != "" {
			t.Errorf("%s: marks (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestNeedsOfANodeThatIsGivenUp: a node that is rebuilt needs nothing for the data that it
// gives up, whether its state was ever known or not. Once it joins it needs everything.
func TestNeedsOfANodeThatIsGivenUp(t *testing.T) {
	old := status.Node{Name: "c", Kind: cluster.KindLearner, Role: status.RoleReplica, LogCommit: 10, Leaving: true}
	silent := status.Node{Name: "d", Kind: cluster.KindLearner, Leaving: true}
	joining := status.Node{Name: "e", Kind: cluster.KindLearner, Role: status.RoleJoining}
	got, marks := Needs([]status.Node{old, silent, joining})
	want := []Need{{Who: "e", From: 0, Why: "its log ends there", Known: true}}
	if diff := cmp.Diff(want, got); diff != "" || len(marks) != 0 {
		t.Errorf("marks %v (-want +got):\n%s", marks, diff)
	}
}
