package e2e

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
)

// eventsRun: events run on the primary and only there, through a switchover, a failover and
// the return of a former primary. Disabled events stay disabled, no run happens twice, and definers are kept.
func (f *fixture) eventsRun(t *testing.T, ctx context.Context) {
	first := f.heal(t, ctx)
	load := f.start(t, 2)
	db := f.local(t, first)
	for _, q := range []string{
		"CREATE DATABASE ev", "CREATE TABLE ev.runs (id INT AUTO_INCREMENT PRIMARY KEY, event VARCHAR(20), host CHAR(36), at DATETIME DEFAULT NOW())",
		"CREATE USER ticker@localhost", "GRANT ALL ON ev.* TO ticker@localhost",
		eventSQL("tick", "EVERY 1 SECOND", ""), eventSQL("off", "EVERY 1 SECOND", "DISABLE"),
		eventSQL("hourly", "EVERY 1 HOUR STARTS NOW() - INTERVAL 30 MINUTE", ""),
		eventSQL("once", "AT NOW() + INTERVAL 2 SECOND", ""), eventSQL("kept", "AT NOW() + INTERVAL 2 SECOND ON COMPLETION PRESERVE", ""),
		eventSQL("later", "AT NOW() + INTERVAL 1 DAY", ""),
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	f.awaitRow(t, ctx, first, "SELECT COUNT(*) = 2 FROM ev.runs WHERE event IN ('once', 'kept')")
	f.ticks(t, ctx, first)
	f.awaitRow(t, ctx, first, "SELECT GROUP_CONCAT(event_name, ' ', status ORDER BY 1) = 'hourly ENABLED,kept DISABLED,later ENABLED,off DISABLED,tick ENABLED' FROM quorate.events")

	second := f.others(first)[0]
	f.must(t, ctx, first, "switchover", "--to", f.Name(second), "--max-pause", "10s")
	f.ticks(t, ctx, second)
	if err := f.KillBoth(second); err != nil {
		t.Fatal(err)
	}
	third, err := f.WaitPrimary(ctx, second)
	if err != nil {
		t.Fatal(err)
	}
	f.ticks(t, ctx, third)
	f.heal(t, ctx)
	f.must(t, ctx, third, "switchover", "--to", f.Name(second), "--max-pause", "10s") // what it has of the events is older
	f.ticks(t, ctx, second)

	f.must(t, ctx, first, "cluster", "set", "--events", "off")
	if err := f.WaitNode(ctx, second, "its events do not run", func(n status.Node) bool { return n.Events == 3 }); err != nil {
		t.Fatal(err)
	}
	if got := f.variable(t, ctx, second, "event_scheduler"); got != "OFF" {
		t.Errorf("events are off, and the scheduler is %s", got)
	}
	f.must(t, ctx, first, "cluster", "set", "--events", "on")
	f.ticks(t, ctx, second)
	f.awaitRow(t, ctx, second, `SELECT GROUP_CONCAT(event_name, ' ', status, ' ', definer ORDER BY 1) =
		'hourly ENABLED ticker@localhost,kept DISABLED ticker@localhost,later ENABLED ticker@localhost,off DISABLED ticker@localhost,tick ENABLED ticker@localhost'
		FROM information_schema.events WHERE event_schema = 'ev'`)
	f.awaitRow(t, ctx, second, "SELECT COUNT(*) = 2 FROM ev.runs WHERE event <> 'tick'")
	if twice := queryStrings(t, ctx, f.local(t, second), "SELECT DISTINCT a.at FROM ev.runs a JOIN ev.runs b USING (event, at) WHERE a.host <> b.host"); len(twice) > 0 {
		t.Errorf("the runs of these seconds were made by two nodes: %q", twice)
	}

	// An event of unknown status does not run, and is named, until an operator enables or disables it.
	db = f.local(t, second)
	if _, err := db.ExecContext(ctx, "ALTER EVENT ev.tick DISABLE ON REPLICA"); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, second, "ev.tick does not run", func(n status.Node) bool { return n.EventNames == "ev.tick" }); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "DROP DATABASE ev"); err != nil {
		t.Fatal(err)
	}
	f.awaitRow(t, ctx, second, "SELECT COUNT(*) = 0 FROM quorate.events")
	load.stop(t)
	f.check(t, ctx)
}

func eventSQL(name, schedule, status string) string {
	return "CREATE DEFINER = ticker@localhost EVENT ev." + name + " ON SCHEDULE " + schedule + " " + status +
		" DO INSERT INTO ev.runs (event, host) VALUES ('" + name + "', @@server_uuid)"
}

// ticks waits until ev.tick has run twice more on node i, and fails if the scheduler of another node runs.
func (f *fixture) ticks(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	if err := f.WaitNode(ctx, i, "it is the primary", func(n status.Node) bool { return n.Role == status.RolePrimary }); err != nil {
		t.Fatal(err)
	}
	const ran = "FROM ev.runs WHERE event = 'tick' AND host = @@server_uuid"
	var before int
	if err := f.admin(t, i).QueryRowContext(ctx, "SELECT COUNT(*) "+ran).Scan(&before); err != nil {
		t.Fatal(err)
	}
	f.awaitRow(t, ctx, i, "SELECT COUNT(*) >= ? "+ran, before+2)
	for _, o := range f.others(i) {
		if f.MysqldPID(o) == 0 {
			continue
		}
		f.awaitRow(t, ctx, o, "SELECT @@GLOBAL.event_scheduler = 'OFF'")
	}
}

// awaitRow waits until a query of one value says so on node i.
func (f *fixture) awaitRow(t *testing.T, ctx context.Context, i int, query string, args ...any) {
	t.Helper()
	db := f.admin(t, i)
	var ok sql.NullBool
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		err := db.QueryRowContext(ctx, query, args...).Scan(&ok)
		if ok.Bool {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("on %s: not so: %s: %v", f.Name(i), query, errors.Join(err, ctx.Err()))
		}
	}
}
