package transport

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// TestLeftBehindIsTold: a node that a recovery has left behind is told so, and nothing that
// it sends gets in.
func TestLeftBehindIsTold(t *testing.T) {
	a := newNode(t, nodeA)
	c := newNode(t, nodeC, nodeA)
	introduce(a, c)
	r := cluster.Recovery{Version: 1_000_000, Cluster: "shop", Node: "a", Without: []cluster.Member{{ID: nodeC, Name: "c"}}}
	a.SetFormer(Former{Recovery: &r})
	a.start(t)
	c.start(t)
	want := &RejectedError{Code: CodeRecovered, Text: r.Sentence("c"), Order: Order{Recovery: new(r.Told())}, By: "a"}
	if diff := cmp.Diff(want, within(t, c.rejected, "a's refusal")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(a.raft) > 0 || len(a.events) > 0 {
		t.Error("a has heard of it")
	}
}
