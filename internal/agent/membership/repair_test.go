package membership

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
)

// TestRepairer: a leader has a node rebuilt, once, that has come with an empty directory and was not heard for a
// while. It says what it was refused, and what would be too soon again.
func TestRepairer(t *testing.T) {
	now := time.Hour
	d := New(Config{Self: 1, Name: "a", Store: &memStore{}, Now: func() time.Duration { return now }, Lives: func(cluster.NodeID) bool { return false }})
	d.Load(Known{2: "01"}, Known{2: "01"})
	if err := d.Expect(cluster.StatePoint{}, true); err != nil {
		t.Fatal(err)
	}
	var s cluster.State
	in := Repairs{Self: 1, Known: d, First: 1, Holder: func(func(string) bool) (string, int64) { return "", 0 }}
	for id, name := range []string{"a", "b", "c"} {
		s.Members = append(s.Members, cluster.Member{ID: cluster.NodeID(id + 1), Name: name, Kind: cluster.KindFull, Weight: 5})
		in.Nodes = append(in.Nodes, status.Node{ID: cluster.NodeID(id + 1), Name: name, Role: status.RoleReplica, Reachable: name != "b"})
	}
	in.State, in.Nodes[1].Role = s, "" // nothing was heard of b since this node has led
	var r Repairer
	refused := errors.New("refused")
	look := func(answer error) (got string) {
		t.Helper()
		_ = rejection(t, d, transport.Identity{Node: 2, NodeName: "b"})
		held := r.Look(now, in, func(m cluster.Member, why string) error {
			got = m.Name + ": " + why
			return answer
		})
		for id, text := range held {
			got += fmt.Sprintf("; %d: %s", id, text)
		}
		return got
	}
	for _, step := range []struct {
		after  time.Duration
		answer error
		want   string // how it begins
	}{
		{0, nil, ""},
		{9 * time.Second, nil, ""},
		{time.Second, refused, "b: it has come back with an empty data directory; 2: node b is not rebuilt by itself: refused"},
		{time.Second, nil, "b: it has come back with an empty data directory"},
		{time.Minute, nil, "; 2: node b is not rebuilt by itself: the leader rebuilt it less than 10m ago"},
		{10 * time.Minute, nil, "b: it has come back with an empty data directory"},
	} {
		now += step.after
		if got := look(step.answer); got != step.want && !(step.want != "" && strings.HasPrefix(got, step.want)) {
			t.Errorf("at %v: %q, want %q", now-time.Hour, got, step.want)
		}
	}
	r.Follow()
	now += time.Hour
	if got := look(nil); got != "" {
		t.Errorf("a new leader has not waited: %q", got)
	}
}

// retained is a cluster a, b, c, whose log is too long because of b.
func retained() (in Repairs, b *status.Node) {
	in = Repairs{Self: 1, Known: New(Config{Self: 1, Name: "a", Store: &memStore{}, Now: func() time.Duration { return 0 }}), First: 1}
	in.State.RetainBytesMax, in.State.EventsOff = cluster.RetainBytesMin, true
	for id, name := range []string{"a", "b", "c"} {
		in.State.Members = append(in.State.Members, cluster.Member{ID: cluster.NodeID(id + 1), Name: name, Kind: cluster.KindFull, Weight: 5})
		in.Nodes = append(in.Nodes, status.Node{ID: cluster.NodeID(id + 1), Name: name, Role: status.RoleReplica, Reachable: true, StateFormat: cluster.StateFormat})
	}
	in.Holder = func(away func(string) bool) (string, int64) {
		if away("b") {
			return "b", cluster.RetainBytesMin + 1
		}
		return "", 0
	}
	return in, &in.Nodes[1]
}

// TestUpgradeIsNotRebuilt: a mysqld that upgrades its data takes long, and the copy of a rebuild would need another node of
// its version. Only if it does not start, or the agent is silent, is the node rebuilt for the sake of the log.
func TestUpgradeIsNotRebuilt(t *testing.T) {
	in, b := retained()
	for _, c := range []struct {
		role                 status.Role
		upgrading, reachable bool
		rebuilt              bool
	}{
		{status.RoleStarting, false, true, true},
		{status.RoleStarting, true, true, false},
		{status.RoleFenced, false, true, true},
		{status.RoleFenced, true, true, true},
		{status.RoleStarting, true, false, true},
	} {
		b.Role, b.Upgrading, b.Reachable = c.role, c.upgrading, c.reachable
		var r Repairer
		got := ""
		for _, now := range []time.Duration{0, time.Hour} {
			b.AgeMs = now.Milliseconds()
			_ = r.Look(now, in, func(m cluster.Member, why string) error {
				got = m.Name + ": " + why
				return nil
			})
		}
		if (got != "") != c.rebuilt {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestOlderIsRebuilt: an older quorate that refuses the cluster state takes nothing of the log, though its role is still
// replica. The logs of all others grew for it in spite of retain-max. It also ends its connections every few seconds.
func TestOlderIsRebuilt(t *testing.T) {
	for _, c := range []struct {
		format int
		role   status.Role
		want   string
	}{
		{6, status.RoleReplica, ""},
		{5, status.RoleReplica, "it has an older quorate, which refuses the cluster state, and"},
		{5, status.RoleLogger, "it has an older quorate"},
	} {
		in, b := retained()
		var r Repairer
		at, got := time.Duration(0), ""
		for now := time.Duration(0); now <= time.Minute; now += time.Second {
			b.Role, b.StateFormat, b.Reachable = c.role, c.format, now%(4*time.Second) != 0
			_ = r.Look(now, in, func(m cluster.Member, why string) error {
				at, got = now, why
				return nil
			})
		}
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") || got != "" && at != time.Minute {
			t.Errorf("format %d, role %q: at %v: %q", c.format, c.role, at, got)
		}
	}
}

// TestRepairerHears: a leader that has begun again, and never met the node, hears from another node that it comes with
// an empty directory.
func TestRepairerHears(t *testing.T) {
	d := New(Config{Self: 1, Name: "a", Store: &memStore{}, Now: func() time.Duration { return 0 }, Lives: func(cluster.NodeID) bool { return false }})
	in := Repairs{Self: 1, Known: d, First: 1, Holder: func(func(string) bool) (string, int64) { return "", 0 }}
	for id := range cluster.NodeID(3) {
		name := string(rune('a' + id))
		in.State.Members = append(in.State.Members, cluster.Member{ID: id + 1, Name: name, Kind: cluster.KindFull, Weight: 5})
		in.Nodes = append(in.Nodes, status.Node{ID: id + 1, Name: name, Role: status.RoleReplica, Reachable: name != "b"})
	}
	in.Nodes[1].Role = ""
	var r Repairer
	look := func(now time.Duration) (rebuilt string) {
		r.Look(now, in, func(m cluster.Member, _ string) error { rebuilt = m.Name; return nil })
		return rebuilt
	}
	if got := look(0) + look(time.Minute); got != "" {
		t.Errorf("%s is rebuilt, of which nothing is known", got)
	}
	in.Nodes[2].Empty = []cluster.NodeID{2}
	if got := look(2 * time.Minute); got != "b" {
		t.Errorf("%q is rebuilt, want b", got)
	}
}
