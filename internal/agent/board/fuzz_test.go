package board

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// FuzzStatus has node b say anything of itself. The status page can show it; the identity of b stays as in the
// cluster state, and the status of c stays as c has sent it.
func FuzzStatus(f *testing.F) {
	add := func(s status.Node) {
		text, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, r := range status.Roles() {
		add(status.Node{ID: 2, Name: "b", Role: r, Term: 7, Applied: 7, LogLast: 9, LogCommit: 9, LagSeconds: 1.5, LagBytes: 1 << 20, ApplyRate: 100, Mysqld: status.MysqldRunning})
	}
	add(status.Node{ID: 3, Name: "b"})
	add(status.Node{ID: 2, Name: "a", Role: status.RolePrimary, Term: 8}) // the name of the node that hears it
	add(status.Node{ID: 2, Name: "b", LagSeconds: 1e300, LagBytes: -1, ApplyRate: 1e-300, LogLast: 1<<64 - 1, ApplyStuck: 1e300, Heartbeat: 1 << 62})
	add(status.Node{ID: 2, Name: "b", Role: status.RoleJoining, Seed: &status.Seed{Phase: status.SeedData, Bytes: 7}, Old: []status.OldData{{Dir: "old"}}, Empty: []cluster.NodeID{1, 2, 3},
		Joined: map[cluster.NodeID]string{1: "x", 3: "y"}, Quorum: &status.Quorum{Survives: 1}, Failover: &status.Failover{To: "c"}})
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, text []byte) {
		w := newWorld(t)
		w.PeerUp(2, true)
		w.PeerUp(3, true)
		w.hear(status.Node{ID: 3, Name: "c", Role: status.RoleReplica, Applied: 7, LogLast: 9, LagSeconds: 1.5})
		own := w.Own()
		var s status.Node
		if json.Unmarshal(text, &s) != nil {
			return
		}
		before, roles := w.Nodes(), w.ForRole(own)
		if err := w.Received(2, s); (err == nil) != (s.ID == 2) {
			t.Fatalf("node %d: %v", s.ID, err)
		}
		after := w.Nodes()
		for i, n := range after {
			if n.ID != 2 && cmp.Diff(before[i], n) != "" {
				t.Errorf("node %s (-before +after):\n%s", n.Name, cmp.Diff(before[i], n))
			}
			if b := before[i]; n.ID != b.ID || n.Name != b.Name || n.Kind != b.Kind || n.Peer != b.Peer || n.Weight != b.Weight {
				t.Errorf("%s is %+v", b.Name, n)
			}
		}
		if now := w.ForRole(own); cmp.Diff(roles.Own, now.Own) != "" || cmp.Diff(roles.Peers[1], now.Peers[1]) != "" || now.Peers[0].Name != "b" {
			t.Errorf("the role machine hears %+v", now)
		}
		shown := status.Cluster{Nodes: after, Self: "a"}
		sight := status.Sight{State: w.State(), Nodes: after, Primary: "b"}
		sight.Quorum()
		for _, name := range []string{"", "a", "b", "c"} {
			status.EstimateFailover(sight, name, status.FailoverTimes{Process: time.Second, Host: time.Second})
			_ = status.RestartNotes(sight, name, "b")
			_ = status.WithoutNode(sight, name)
			_ = sight.NoLease(name)
		}
		status.PlanChange(w.State(), w.State(), after, "b")
		_, _ = status.TimingTrouble(own, s), Shown(s, time.Second, false)
		w.Primary()
		w.LastPrimary()
		if _, err := json.Marshal(shown); err != nil {
			t.Errorf("show it: %v", err)
		}
	})
}
