package reading

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
)

// TestLeaving: sessions leave a node that could not be read for the whole of the grace, without a break.
func TestLeaving(t *testing.T) {
	l := leaving{grace: 30 * time.Second}
	policy, began := status.Reads{LagMax: 2 * time.Second}, time.Now()
	for _, c := range []struct {
		at         time.Duration
		lag        float64
		news, over bool
	}{
		{0, 0, false, false},
		{1, 5, true, false}, // new clients are sent elsewhere
		{2, 5, false, false},
		{30, 5, false, false},
		{31, 5, true, true},
		{32, 5, false, true},
		{33, 0, true, false},
		{34, 5, true, false},
		{63, 5, false, false},
		{64, 5, true, true},
	} {
		n := status.Node{ID: 2, Role: status.RoleReplica, Mysqld: status.MysqldRunning, Leader: 1, Reachable: true, LagSeconds: c.lag}
		if news := l.look([]status.Node{n}, policy, began.Add(c.at*time.Second)); news != c.news || l.over[2] != c.over {
			t.Errorf("after %d s: news %t, over %t", c.at, news, l.over[2])
		}
	}
}
