package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestApplyLag blocks the appliers of both replicas under load: the primary slows
// its writers down, so that the backlog stays near the bound, and lets them go
// when the replicas go on. Without a replica nothing is slowed down.
func TestApplyLag(t *testing.T) {
	const bound = 2 * time.Second
	f := newFixture(t, devcluster.Options{Nodes: 3, MaxApplyLag: bound, ElectionTimeout: calm})
	f.think = fullSpeed
	f.scenario(t, "Blocked", f.blockedAppliers)
	f.scenario(t, "NoReplica", f.noReplicaNoBound)
}

// blockApplier keeps the applier of node i from committing until it is released.
func (f *fixture) blockApplier(t *testing.T, ctx context.Context, i int) (release func()) {
	t.Helper()
	conn, err := f.admin(t, i).Conn(ctx)
	if err == nil {
		_, err = conn.ExecContext(ctx, "FLUSH TABLES WITH READ LOCK")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(ctx, "UNLOCK TABLES"); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// ackRate returns how many rows are acknowledged in a second, over two of them.
func (l *load) ackRate(t *testing.T, ctx context.Context) float64 {
	t.Helper()
	before, began := l.Stats().Acknowledged, time.Now()
	if err := devcluster.Poll(ctx, "two seconds pass", func(context.Context) (bool, string, error) {
		return time.Since(began) >= 2*time.Second, "", nil
	}); err != nil {
		t.Fatal(err)
	}
	return float64(l.Stats().Acknowledged-before) / time.Since(began).Seconds()
}

func (f *fixture) blockedAppliers(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	l := f.start(t, 8)
	l.awaitAcks(t, ctx, 500)
	free := max(l.ackRate(t, ctx), l.ackRate(t, ctx), l.ackRate(t, ctx)) // the machine may stand still in some of them
	var releases []func()
	for _, i := range f.others(primary) {
		releases = append(releases, f.blockApplier(t, ctx, i))
	}
	if err := f.WaitNode(ctx, primary, "slowing down", func(n status.Node) bool {
		return strings.Contains(n.Pace, "slowed down")
	}); err != nil {
		t.Fatal(err)
	}
	slow := 0.0
	if err := devcluster.Poll(ctx, "writes are slow", func(ctx context.Context) (bool, string, error) {
		slow = l.ackRate(t, ctx)
		return slow < free/4, fmt.Sprintf("%.0f rows a second, %.0f without a limit", slow, free), nil
	}); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 1) // a batch may wait up to ten seconds, never for ever
	before := f.bestBacklog(t, ctx, primary)
	slow = l.ackRate(t, ctx)
	after := f.bestBacklog(t, ctx, primary)
	t.Logf("%.0f rows a second without a limit, %.0f with; the best replica lacks %d transactions, two seconds before %d", free, slow, after, before)
	if float64(after) > free*2*4 { // rows are more than transactions; half a bound is what may overshoot
		t.Errorf("the best replica lacks %d transactions, at %.0f a second that is far beyond the bound", after, free)
	}
	st, err := f.Status(ctx, primary)
	if err != nil || st.Failover == nil || st.Failover.BacklogSeconds < 2 || st.Failover.ProcessSeconds < st.Failover.BacklogSeconds {
		t.Errorf("a failover would take %+v, %v", st.Failover, err)
	}
	for _, release := range releases {
		release()
	}
	if err := f.WaitNode(ctx, primary, "free", func(n status.Node) bool { return n.Pace == "" }); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, "writes are fast again", func(ctx context.Context) (bool, string, error) {
		rate := l.ackRate(t, ctx)
		return rate > free/2, fmt.Sprintf("%.0f rows a second, %.0f before", rate, free), nil
	}); err != nil {
		t.Fatal(err)
	}
	l.stop(t)
	for _, i := range f.others(primary) {
		if n := f.status(t, ctx, i); n.ApplyRate <= 0 {
			t.Errorf("node %s had a backlog and knows no rate: %+v", n.Name, n)
		}
	}
	if s := l.Stats(); s.Failed != 0 || s.Unknown != 0 {
		t.Errorf("transactions were refused: %+v", s)
	}
	f.check(t, ctx)
}

// bestBacklog is how many transactions the better of the other nodes' mysqlds lacks.
func (f *fixture) bestBacklog(t *testing.T, ctx context.Context, primary int) int {
	t.Helper()
	var all string
	if err := f.admin(t, primary).QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&all); err != nil {
		t.Fatal(err)
	}
	best := -1
	for _, i := range f.others(primary) {
		if n := missing(t, ctx, f.admin(t, i), all); best < 0 || n < best {
			best = n
		}
	}
	return best
}

// missing counts the transactions of a set that a server lacks.
func missing(t *testing.T, ctx context.Context, db *sql.DB, all string) (n int) {
	t.Helper()
	var set string
	if err := db.QueryRowContext(ctx, "SELECT GTID_SUBTRACT(?, @@GLOBAL.gtid_executed)", all).Scan(&set); err != nil {
		t.Fatal(err)
	}
	lacks, err := gtid.ParseSet(strings.ReplaceAll(set, "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return int(lacks.Count())
}

// noReplicaNoBound: a primary goes on without slowing down if no follower has a mysqld that could take over.
func (f *fixture) noReplicaNoBound(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	others := f.others(primary)
	if err := f.KillBoth(others[0]); err != nil {
		t.Fatal(err)
	}
	f.blockApplier(t, ctx, others[1]) // until its server ends
	l := f.start(t, 4, primary)
	if err := f.WaitNode(ctx, primary, "slowing down for the only one", func(n status.Node) bool {
		return strings.Contains(n.Pace, "slowed down")
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.KillMysqld(others[1]); err != nil { // its agent votes on
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, primary, "without a bound", func(n status.Node) bool {
		return strings.Contains(n.Pace, "no replica could take over")
	}); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 200)
	l.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}
