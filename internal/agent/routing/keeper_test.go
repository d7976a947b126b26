package routing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/routermeta"
)

// world is a cluster whose primary is node a, and what Router is told there.
type world struct {
	t      testing.TB
	keeper Keeper
	sight  Sight
	there  routermeta.Metadata
	writes []time.Duration
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, sight: Sight{Term: 1, Self: 1, ClusterID: "id", Cluster: "shop", State: cluster.State{MySQLRouter: true}}}
	for i, name := range []string{"a", "b", "c"} {
		id := cluster.NodeID(i + 1)
		w.sight.State.Members = append(w.sight.State.Members, cluster.Member{ID: id, Name: name, Kind: cluster.KindFull})
		w.sight.Nodes = append(w.sight.Nodes, status.Node{
			ID: id, Name: name, Reachable: true, Role: status.RoleReplica, Mysqld: status.MysqldRunning,
			ServerUUID: "uuid-" + name, MySQLRouter: name + ":3306",
		})
	}
	w.sight.Nodes[0].Role = status.RolePrimary
	return w
}

// look is one look of the primary's agent. It tells whether the look wrote.
func (w *world) look() (wrote bool) {
	if !w.keeper.Look(w.sight) {
		return false
	}
	want := w.keeper.Want(w.sight, w.there)
	if wrote = !want.Same(w.there); wrote {
		if want.View <= w.there.View {
			w.t.Errorf("at %v: view %d after %d", w.sight.Now, want.View, w.there.View)
		}
		w.writes = append(w.writes, w.sight.Now)
		w.there = want
	}
	w.keeper.Wrote(w.there, wrote, w.sight.Now)
	return wrote
}

// pass lets time pass, with two looks a second.
func (w *world) pass(d time.Duration) (writes int) {
	for end := w.sight.Now + d; w.sight.Now < end; {
		w.sight.Now += 500 * time.Millisecond
		if w.look() {
			writes++
		}
	}
	return writes
}

// promote makes a node the primary. former says what becomes of the former primary.
func (w *world) promote(id cluster.NodeID, former func(*status.Node)) {
	former(&w.sight.Nodes[w.sight.Self-1])
	w.sight.Term, w.sight.Self = w.sight.Term+1, id
	w.sight.Nodes[id-1].Role = status.RolePrimary
}

// told returns what Router is told: "1000 a* b c-" is view 1000, with a the primary and c hidden.
func (w *world) told() string {
	text := []string{fmt.Sprint(w.there.View)}
	for _, i := range w.there.Instances {
		name := i.Name
		if i.Primary {
			name += "*"
		}
		if i.Hidden {
			name += "-"
		}
		text = append(text, name)
	}
	return strings.Join(text, " ")
}

func (w *world) want(told string) {
	w.t.Helper()
	if diff := cmp.Diff(told, w.told()); diff != "" {
		w.t.Errorf("at %v: %s", w.sight.Now, diff)
	}
}

func dead(n *status.Node)    { n.Reachable = false }
func replica(n *status.Node) { n.Role = status.RoleReplica }

func TestKeeper(t *testing.T) {
	w := newWorld(t)
	w.look()
	w.want("1000 a* b c")
	if n := w.pass(10 * time.Minute); n != 0 {
		t.Errorf("%d writes although nothing changed", n)
	}

	w.promote(2, dead) // a died: its place is taken at once
	w.look()
	w.want("2000 a- b* c")
	w.sight.Nodes[0].Reachable, w.sight.Nodes[0].Role = true, status.RoleStarting
	w.pass(20 * time.Second)
	w.want("2000 a- b* c")
	w.sight.Nodes[0].Role = status.RoleReplica
	w.pass(showAfter - 500*time.Millisecond)
	w.want("2000 a- b* c")
	w.pass(time.Second)
	w.want("2001 a b* c")

	w.promote(3, replica) // a switchover
	w.look()
	w.want("3000 a b c*")

	w.sight.Nodes[0].LagSeconds = lagMax.Seconds() + 1
	w.pass(hideAfter)
	w.want("3000 a b c*")
	w.pass(10 * time.Second)
	w.want("3001 a- b c*")
	w.sight.Nodes[0].LagSeconds = 0
	w.pass(10 * time.Second)
	w.want("3002 a b c*")

	w.sight.State.MySQLRouter = false
	w.pass(10 * time.Second)
	w.want("3003")
	w.sight.State.MySQLRouter = true
	w.pass(10 * time.Second)
	w.want("4000 a b c*")
}

// TestOff: a cluster that never had router on is not written to.
func TestOff(t *testing.T) {
	w := newWorld(t)
	w.sight.State.MySQLRouter = false
	if n := w.pass(5 * time.Minute); n != 0 {
		t.Errorf("%d writes", n)
	}
}

// TestOffIsNotWritten: while router is off, what another cluster has told Router, and a backup has brought here, is
// left as it is. To remove it would be a transaction of this cluster's own, and then the cluster could not follow a
// site.
func TestOffIsNotWritten(t *testing.T) {
	w := newWorld(t)
	w.look()
	w.sight.ClusterID, w.sight.State.MySQLRouter, w.keeper = "restored", false, Keeper{}
	if n := w.pass(5 * time.Minute); n != 0 || w.there.ClusterID != "id" {
		t.Errorf("%d writes: %+v", n, w.there)
	}
	w.sight.State.MySQLRouter = true
	w.pass(10 * time.Second)
	if w.there.ClusterID != "restored" {
		t.Errorf("switched on: %+v", w.there)
	}
}

// TestMembers: which nodes are no members for Router, and what is known of a node that is away.
func TestMembers(t *testing.T) {
	w := newWorld(t)
	w.sight.State.Members = append(w.sight.State.Members,
		cluster.Member{ID: 4, Name: "logger", Kind: cluster.KindLogger}, cluster.Member{ID: 5, Name: "learner", Kind: cluster.KindLearner},
		cluster.Member{ID: 6, Name: "loopback", Kind: cluster.KindFull}, cluster.Member{ID: 7, Name: "unheard", Kind: cluster.KindFull})
	w.sight.Nodes = append(w.sight.Nodes, status.Node{ID: 5, Name: "learner", Role: status.RoleReplica, ServerUUID: "l", MySQLRouter: "l:3306"},
		status.Node{ID: 6, Name: "loopback", Role: status.RoleReplica, ServerUUID: "m"})
	w.look()
	w.want("1000 a* b c")
	if got := Unreachable(w.sight); !strings.Contains(got, "loopback:") && !strings.Contains(got, "told of loopback") {
		t.Errorf("Unreachable says %q", got)
	}

	w.promote(2, dead) // the new primary has never heard c, and its agent knows it by name alone
	w.sight.Nodes[2] = status.Node{ID: 3, Name: "c"}
	w.look()
	w.want("2000 a- b* c")
	if i, _ := w.there.Instance("c"); i.Address != "c:3306" || i.UUID != "uuid-c" {
		t.Errorf("c is told as %+v", i)
	}

	w.sight.State.Members = w.sight.State.Members[:2] // c is removed, and a made again
	w.sight.Nodes[0].ServerUUID = "uuid-anew"
	w.pass(10 * time.Second)
	w.want("2001 a- b*")
	if i, _ := w.there.Instance("a"); i.UUID != "uuid-anew" {
		t.Errorf("a is told as %+v", i)
	}
}

// TestTampered: what somebody else writes is put right within a minute, and no more often than any other change.
func TestTampered(t *testing.T) {
	w := newWorld(t)
	w.look()
	began := w.sight.Now
	for range 20 {
		w.there.Instances = nil
		w.pass(lookEvery + time.Second)
		if got := len(w.there.Instances); got != 3 {
			t.Fatalf("%d instances", got)
		}
	}
	if n := len(w.writes) - 1; n > int((w.sight.Now-began)/lookEvery) {
		t.Errorf("%d writes", n)
	}
}

// TestFailed: a write that failed is tried again, but not at once.
func TestFailed(t *testing.T) {
	w := newWorld(t)
	tries := 0
	for range 100 { // 10 s
		if w.keeper.Look(w.sight) {
			tries++
			w.keeper.Failed(w.sight.Now)
		}
		w.sight.Now += 100 * time.Millisecond
	}
	if tries < 5 || tries > 10 {
		t.Errorf("%d tries in 10 s", tries)
	}
	w.sight.Now += retryAfter
	w.look()
	w.want("1000 a* b c")
}

// TestNoLoop: whatever the replicas do, and whichever node becomes the primary: an epoch has one write at its
// beginning, and then at most one per writeEvery. The primary is told at once, or at most formerMax later, and is
// never hidden. After half a minute of peace Router is told the truth.
func TestNoLoop(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(t)
		roles := []status.Role{status.RoleReplica, status.RoleFenced, status.RoleErrant, status.RoleStarting, status.RoleDemoting}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			n := &w.sight.Nodes[rapid.IntRange(0, 2).Draw(r, "node")]
			switch {
			case n.ID == w.sight.Self:
				next := cluster.NodeID(rapid.IntRange(1, 3).Draw(r, "next"))
				if next != w.sight.Self {
					w.promote(next, func(n *status.Node) { n.Role = rapid.SampledFrom(roles).Draw(r, "role") })
					w.writes = nil
				}
			default:
				n.Role, n.Reachable = rapid.SampledFrom(roles).Draw(r, "role"), rapid.Bool().Draw(r, "reachable")
				n.LagSeconds, n.LagUnknown = float64(rapid.IntRange(0, 3).Draw(r, "lag")), rapid.Bool().Draw(r, "unknown")
			}
			w.look()
			if former(w.sight) {
				w.pass(formerMax)
			}
			if got := w.there.Primary(); got != w.sight.Nodes[w.sight.Self-1].Name {
				r.Fatalf("Router is told that %q is the primary", got)
			}
			w.pass(time.Duration(rapid.IntRange(0, 20).Draw(r, "halves")) * 500 * time.Millisecond)
			for i := 1; i < len(w.writes); i++ {
				if gap := w.writes[i] - w.writes[i-1]; gap < writeEvery {
					r.Fatalf("two writes within %v", gap)
				}
			}
		}
		w.pass(30 * time.Second)
		for _, i := range w.there.Instances {
			n := w.sight.Nodes[i.Name[0]-'a']
			if hidden := !i.Primary && !fit(n); i.Hidden != hidden {
				r.Fatalf("%s is hidden: %t, and should be %t: %+v", i.Name, i.Hidden, hidden, n)
			}
		}
	})
}

// TestFormerFirst: Router is told of a new primary only when the former primary lets clients in again, is not heard,
// or takes too long. Before, clients that connected again while the primary moved found Router standing still for 20
// s.
func TestFormerFirst(t *testing.T) {
	leaves := func(role status.Role) func(*status.Node) { return func(n *status.Node) { n.Role = role } }
	for name, c := range map[string]struct {
		former func(*status.Node)
		waits  time.Duration // at most; looks are half a second apart
	}{
		"Demoting":   {leaves(status.RoleDemoting), formerMax},
		"Unverified": {leaves(status.RoleUnverified), formerMax},
		"Replica":    {replica, 0},
		"Dead":       {dead, 0},
		"Frozen":     {func(n *status.Node) { n.AgeMs = 1200 }, 0},
		"NoMysqld":   {func(n *status.Node) { n.Role, n.Mysqld = status.RoleUnverified, status.MysqldStarting }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pass(time.Minute)
			w.promote(2, c.former)
			began := w.sight.Now
			for w.sight.Now-began < time.Minute && !w.look() {
				w.sight.Now += 500 * time.Millisecond
			}
			if waited := w.sight.Now - began; waited != c.waits {
				t.Errorf("it waited for %v, want %v", waited, c.waits)
			}
		})
	}
	w := newWorld(t)
	w.pass(time.Minute)
	w.promote(2, leaves(status.RoleUnverified))
	if w.look() {
		t.Error("Router is told while the former primary keeps clients out")
	}
	replica(&w.sight.Nodes[0])
	if w.look(); w.there.Primary() != "b" {
		t.Errorf("the former primary is a replica, and Router is told %s", w.told())
	}
}
