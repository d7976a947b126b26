package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestMessages: one writer's commit takes an append to each of two followers, their
// answers, and a notice to each if no append follows in time. After a heartbeat raft asks again
// the followers that have not answered yet: on a slow machine this happens more often.
func TestMessages(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.scenario(t, "OneWriter", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		sent := func() map[string]float64 {
			kinds := map[string]float64{}
			for _, kind := range []string{"append", "append_empty", "append_answer", "notice", "heartbeat", "other"} {
				for i := range f.Full() {
					kinds[kind] += f.metric(t, ctx, i, fmt.Sprintf(`quorate_raft_messages_sent_total{kind=%q}`, kind))
				}
			}
			kinds["commits"] = f.metric(t, ctx, primary, "quorate_tap_transactions_total")
			return kinds
		}
		before := sent()
		l := f.start(t, 1, primary)
		l.awaitAcks(t, ctx, 500)
		l.stop(t)
		after := sent()
		commits := after["commits"] - before["commits"]
		each := func(kind string) float64 { return (after[kind] - before[kind]) / commits }
		t.Logf("%.0f commits; messages for each: append %.2f, answer %.2f, append without entries %.2f, notice %.2f; heartbeat %.2f, other %.2f",
			commits, each("append"), each("append_answer"), each("append_empty"), each("notice"), each("heartbeat"), each("other"))
		if commits < 100 || each("append") > 2.2 || each("notice") > 2.2 ||
			each("append_empty") > each("heartbeat")+0.1 || each("append_answer") > each("append")+each("append_empty")+0.1 {
			t.Error("a commit takes more messages than four and two notices")
		}
		f.check(t, ctx)
	})
}
