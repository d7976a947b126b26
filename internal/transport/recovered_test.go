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

// TestSentence: what names the recovery for nodes is in no text for people.
func TestSentence(t *testing.T) {
	r := cluster.Recovery{Version: 1_000_000, Cluster: "orders", Node: "c"}
	for text, want := range map[string]string{
		"node a is out" + r.Suffix():                     "node a is out",
		"node a is to be rebuilt" + r.Suffix() + ": 7/0": "node a is to be rebuilt",
		"node a wants {":                                 "node a wants {",
	} {
		err := &RejectedError{Code: CodeRecovered, Text: text, By: "c"}
		if err.Sentence() != want || err.Error() != `node "c" refuses the connection: `+want {
			t.Errorf("%q: %s", text, err)
		}
	}
}
