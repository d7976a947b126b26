package transport

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

// TestLeftBehindIsTold: who was a member before a recovery is told so, and nothing that
// it sends gets in.
func TestLeftBehindIsTold(t *testing.T) {
	a := newNode(t, nodeA)
	c := newNode(t, nodeC, nodeA)
	introduce(a, c)
	a.SetLeftBehind(map[cluster.NodeID]string{nodeC: "you are out"})
	a.start(t)
	c.start(t)
	if r := within(t, c.rejected, "a's refusal"); r.Code != CodeRecovered || r.Text != "you are out" {
		t.Errorf("refused with %+v", r)
	}
	if len(a.raft) > 0 || len(a.events) > 0 {
		t.Error("a has heard of it")
	}
}
