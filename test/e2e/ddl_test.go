package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestDDL: statements that replicas run themselves, with what differs there.
func TestDDL(t *testing.T) {
	t.Parallel()
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm, NodeEnv: func(node string) []string {
		if node == "c" {
			return []string{"TZ=CET-1CEST,M3.5.0,M10.5.0/3"}
		}
		return []string{"TZ=UTC"}
	}})
	f.scenario(t, "TimeZones", f.timeZones)
}

// timeZones: the status and doctor say that the hosts' zones differ.
func (f *fixture) timeZones(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	const differ = "time_zone is SYSTEM, and the hosts' zones differ (a and b: +00:00; c: +01:00, in July +02:00)"
	f.awaitStatus(t, ctx, 0, "time zones: "+differ)
	if out, _ := f.quorate(t, ctx, 0, "doctor"); !strings.Contains(out, differ) {
		t.Errorf("doctor: %s", out)
	}
}
