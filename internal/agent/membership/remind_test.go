package membership

import (
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestReminder: a node that is to begin again, and is still there unchanged, is told again and again; a node that soon
// learns it from the log is not.
func TestReminder(t *testing.T) {
	node := func(leaving, reachable bool) []status.Node {
		return []status.Node{{ID: 1, Reachable: true}, {ID: 2, Leaving: leaving, Reachable: reachable}}
	}
	var r Reminder
	for _, c := range []struct {
		at    time.Duration
		nodes []status.Node
		want  []cluster.NodeID
	}{
		{0, node(false, true), nil},
		{time.Hour, node(true, true), nil},
		{time.Hour + remindAfter - 1, node(true, true), nil},
		{time.Hour + remindAfter, node(true, true), []cluster.NodeID{2}},
		{time.Hour + remindAfter + 1, node(true, true), nil},
		{time.Hour + 2*remindAfter, node(true, true), []cluster.NodeID{2}},
		{2 * time.Hour, node(true, false), []cluster.NodeID{2}}, // this node does not dial it any more
		{3 * time.Hour, node(false, true), nil},
		{3*time.Hour + remindAfter, node(true, true), nil}, // again
	} {
		if got := r.Due(c.at, c.nodes); !slices.Equal(got, c.want) {
			t.Errorf("at %v: %v, want %v", c.at, got, c.want)
		}
	}
}
