package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// TestDDL: statements that replicas run themselves, with what differs there.
func TestDDL(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm, NodeEnv: func(node string) []string {
		if node == "c" {
			return []string{"TZ=CET-1CEST,M3.5.0,M10.5.0/3"}
		}
		return []string{"TZ=UTC"}
	}})
	f.scenario(t, "TimeZones", f.timeZones)
	f.scenario(t, "SessionVariable", f.sessionVariable)
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

// sessionVariable: a DDL that the primary takes with a session's div_precision_increment, of which no event of the
// binlog tells, stops the appliers of the replicas. It passes once the cluster has that value.
func (f *fixture) sessionVariable(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	replicas := f.others(primary)
	session, err := openDSN(t, f.DSN(primary), nil).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	for _, s := range []string{
		"USE " + ledger.Database, "CREATE TABLE third (id INT PRIMARY KEY, a DECIMAL(10, 0), b DECIMAL(10, 0))", "INSERT INTO third VALUES (1, 1, 3)",
		"SET div_precision_increment = 10", "ALTER TABLE third ADD CHECK (a / b > 0.33332)",
	} {
		if _, err := session.ExecContext(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	for _, i := range replicas {
		if err := f.WaitNode(ctx, i, "its applier has stopped", func(n status.Node) bool { return strings.Contains(n.ApplierStopped, "Check constraint") }); err != nil {
			t.Fatal(err)
		}
	}
	f.awaitStatus(t, ctx, primary, "no other node can take over")
	out := f.must(t, ctx, primary, "variables", "set", "div_precision_increment=10")
	if !strings.Contains(out, "a replica takes it when its replication starts again") {
		t.Errorf("set: %s", out)
	}
	f.everywhere(t, ctx, "SELECT COUNT(*) FROM information_schema.check_constraints WHERE constraint_name = 'third_chk_1'", "1")
	out = f.must(t, ctx, primary, "variables", "unset", "div_precision_increment")
	if !strings.Contains(out, "a replica takes it when its replication starts again") {
		t.Errorf("unset: %s", out)
	}
	for _, i := range replicas { // their appliers still have the value
		f.must(t, ctx, primary, "restart-mysqld", f.Name(i))
	}
	f.heal(t, ctx)
	other, err := openDSN(t, f.DSN(primary), nil).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	for _, s := range []string{"DROP CHECK third_chk_1", "ADD q DECIMAL(20, 15) AS (a / b) STORED"} {
		if _, err := other.ExecContext(ctx, "ALTER TABLE "+ledger.Database+".third "+s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	f.everywhere(t, ctx, "SELECT q FROM "+ledger.Database+".third", "0.333300000000000")
}

// everywhere waits until each node's mysqld answers a query with want.
func (f *fixture) everywhere(t *testing.T, ctx context.Context, query, want string) {
	t.Helper()
	for i := range f.Len() {
		db := f.admin(t, i)
		if err := devcluster.Poll(ctx, f.Name(i)+" answers "+query+" with "+want, func(ctx context.Context) (bool, string, error) {
			var got string
			err := db.QueryRowContext(ctx, query).Scan(&got)
			return err == nil && got == want, fmt.Sprintf("%q, %v", got, err), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
