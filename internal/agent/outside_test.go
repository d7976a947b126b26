package agent

import (
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
)

// TestNodeOutsideSaysWhy: a node that takes no part in the cluster says in its status what it is, and has metrics.
func TestNodeOutsideSaysWhy(t *testing.T) {
	for role, reason := range map[status.Role]string{
		status.RoleRemoved: "it was removed from the cluster", status.RoleJoining: "copying the log of node b", status.RoleStarting: "",
	} {
		a := orderedAgent(t, t.TempDir())
		a.board.SetRole(role, reason)
		answer := a.requests.Serve(t.Context(), control.Request{Name: "history", By: "ann@db1"})
		want := strings.TrimSuffix("it is "+string(role)+": "+reason, ": ") + "; ask another node"
		if answer.Code != control.CodeFailed || !strings.HasSuffix(answer.Error, want) {
			t.Errorf("%s: %q, want %q at its end", role, answer.Error, want)
		}
		if len((provider{a}).Metrics()) == 0 {
			t.Errorf("%s: it has no metrics", role)
		}
		a.peers = nil // as on a node that was removed
		_ = provider{a}.Metrics()
	}
}

// TestPeerMetrics: what the transport drops is counted in the metrics.
func TestPeerMetrics(t *testing.T) {
	a := openLone(t)
	a.peers.Send([]*pb.Message{{To: new(uint64(77))}})
	a.peers.SendStatus(make([]byte, 2<<20))
	got := map[string]float64{}
	for _, m := range (provider{a}).Metrics() {
		got[m.Name] = m.Value
	}
	for name, want := range map[string]float64{
		"quorate_peer_misaddressed_total": 1, "quorate_status_too_large_total": 1, "quorate_peer_unexpected_total": 0, "quorate_peer_refused_total": 0,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s is %v, %t; want %v", name, n, ok, want)
		}
	}
}
