package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// frozenPromotionMax is the longest time until a promotion on a frozen mysqld is given up and another
// node is the primary: the two limits of two seconds, with room. Without these limits it
// would be mysql.promotion_timeout, half a minute.
const frozenPromotionMax = 15 * time.Second

// TestFreezePromotion stops the mysqld of the only node that could take over, and
// kills the primary's: the promotion on a mysqld that stands still is given up, and
// the old primary leads again as soon as it has a mysqld.
func TestFreezePromotion(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "Mysqld", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		frozen, dead := f.others(primary)[0], f.others(primary)[1]
		l := f.start(t, 4, primary)
		l.awaitAcks(t, ctx, 100)
		if err := f.KillAgent(dead); err != nil {
			t.Fatal(err)
		}
		l.awaitAcks(t, ctx, 100)
		f.stopProcesses(t, ctx, frozen, false, true)
		l.ResetGap()
		if err := f.KillMysqld(primary); err != nil {
			t.Fatal(err)
		}
		opens, cancel := context.WithTimeout(ctx, frozenPromotionMax)
		defer cancel()
		// A mysqld that was killed in time for its node to promote itself counts, too.
		if _, err := f.WaitPrimary(opens); err != nil {
			t.Fatal(err)
		}
		l.awaitAcks(t, ctx, 100)
		t.Logf("write gap %v", l.Gap().Round(time.Millisecond))
		for _, said := range []string{`do="catch-up`, "mysqld does not answer"} {
			if _, err := lastLogged(f.Logs(frozen), said); err != nil {
				t.Errorf("the node with the frozen mysqld: %v", err)
			}
		}
		f.heal(t, ctx)
		l.stop(t)
		f.check(t, ctx)
	})
}
