package board

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// TestGossip: the status is sent at each change, and at intervals that count from the start: a change does not put
// them off.
func TestGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		began, heard := time.Now(), 0
		var sent []time.Duration
		ctx, cancel := context.WithTimeout(t.Context(), 2*GossipInterval+GossipInterval/2)
		defer cancel()
		time.AfterFunc(GossipInterval/5, w.Wake)
		err := w.Gossip(ctx, clock.Machine{}, w.Own, func(status.Node) error {
			sent = append(sent, time.Since(began))
			return nil
		}, func(status.Node, role.Peers) { heard++ })
		if want := []time.Duration{0, GossipInterval / 5, GossipInterval, 2 * GossipInterval}; err != nil || !slices.Equal(sent, want) || heard != len(want) {
			t.Errorf("%v: sent after %v, want %v; heard %d times", err, sent, want, heard)
		}
	})
}
