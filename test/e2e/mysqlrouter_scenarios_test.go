package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestMySQLRouter: the real MySQL Router finds a cluster by the metadata that quorate writes, while writers write and
// nodes die, move, come and go.
func TestMySQLRouter(t *testing.T) {
	program := mysqlRouterProgram(t)
	beside(t)
	r := newFixture(t, devcluster.Options{Nodes: 3}).newRouted(t, program)
	r.scenario(t, "SwitchOn", r.switchRouterOn)
	r.scenario(t, "Bootstrap", r.bootstrapped)
	r.scenario(t, "Kill", r.killRouted)
	r.scenario(t, "Switchover", r.switchRouted)
	r.scenario(t, "Sysbench", r.sysbenchRouted)
	r.scenario(t, "Hide", r.hideRouted)
	r.scenario(t, "Lag", r.lagRouted)
	r.scenario(t, "Members", r.membersRouted)
	r.scenario(t, "SwitchOff", r.switchRouterOff)
	if !t.Failed() && r.elsewhere == 0 { // a session's reads go to one server, which may be the primary
		t.Error("no replica has answered a read at the split port")
	}
}

// prepare makes what the clients write to, and the account that bootstraps Router.
func (r *routed) prepare(t *testing.T, ctx context.Context, primary int, more ...string) *sql.DB {
	t.Helper()
	db := r.local(t, primary)
	for _, q := range append([]string{
		"CREATE TABLE IF NOT EXISTS " + routedTable + " (writer INT, n INT, server CHAR(36), tracks VARCHAR(20), PRIMARY KEY (writer, n))",
		fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s' DEFAULT ROLE quorate_dba", r.administrator, r.password),
	}, more...) {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	return db
}

func (r *routed) switchRouterOn(t *testing.T, ctx context.Context) {
	primary := r.heal(t, ctx)
	// A schema of that name that an application has made is not touched.
	db := r.prepare(t, ctx, primary, "CREATE DATABASE mysql_innodb_cluster_metadata", "CREATE TABLE mysql_innodb_cluster_metadata.clusters (id INT PRIMARY KEY)")
	r.must(t, ctx, next(primary), "cluster", "set", "--router", "on")
	if err := devcluster.Poll(ctx, "the status says that the schema is not quorate's", func(ctx context.Context) (bool, string, error) {
		out, _ := r.quorate(t, ctx, primary, "status")
		return strings.Contains(out, "is not quorate's: drop it first"), out, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "DROP DATABASE mysql_innodb_cluster_metadata"); err != nil {
		t.Fatal(err)
	}
	r.awaitTold(t, ctx, r.members(primary, 0, 1, 2), 0, 1, 2)
	if out := r.must(t, ctx, 0, "cluster", "show"); !strings.Contains(out, "router         on") {
		t.Errorf("cluster show: %s", out)
	}
	// The account that writes it can write nothing else.
	admin := r.admin(t, primary)
	var grants []string
	rows, err := admin.QueryContext(ctx, "SHOW GRANTS FOR quorate_router@localhost")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var g string
		if err := rows.Scan(&g); err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	if text := strings.Join(grants, "\n"); len(grants) != 5 || !strings.Contains(text, "GRANT USAGE ON *.*") || !strings.Contains(text, "GRANT CONNECTION_ADMIN,SYSTEM_USER ON *.*") {
		t.Errorf("quorate_router has %s", text)
	}
}

func (r *routed) bootstrapped(t *testing.T, ctx context.Context) {
	primary := r.heal(t, ctx)
	r.bootstrap(t, ctx, next(primary)) // it goes on at the primary by itself
	ids := r.dataIdentity(t, ctx)
	r.awaitServer(t, ctx, r.router.RW, func(uuid string) bool { return uuid == ids[primary].UUID })
	seen := map[string]bool{}
	r.awaitServer(t, ctx, r.router.RO, func(uuid string) bool {
		if uuid == ids[primary].UUID {
			t.Error("the primary answers at Router's port for reads")
		}
		seen[uuid] = true
		return len(seen) == 2
	})
	r.underLoad(t, ctx, primary, func() {})
}

func (r *routed) killRouted(t *testing.T, ctx context.Context) {
	primary := r.heal(t, ctx)
	r.awaitTold(t, ctx, r.members(primary, 0, 1, 2), 0, 1, 2)
	r.underLoad(t, ctx, next(primary), func() {
		if err := r.KillBoth(primary); err != nil {
			t.Fatal(err)
		}
	})
	now := r.heal(t, ctx)
	r.awaitTold(t, ctx, r.members(now, 0, 1, 2), 0, 1, 2)
}

func (r *routed) switchRouted(t *testing.T, ctx context.Context) {
	primary := r.heal(t, ctx)
	before := r.awaitTold(t, ctx, r.members(primary, 0, 1, 2), 0, 1, 2)
	to := next(primary)
	goOn, stop := r.sysbenchReads(t, ctx, to)
	r.underLoad(t, ctx, to, func() {
		r.must(t, ctx, primary, "switchover", "--to", r.Name(to), "--max-pause", "10s")
		goOn()
	})
	stop()
	if view := r.awaitTold(t, ctx, r.members(to, 0, 1, 2), 0, 1, 2); view <= before {
		t.Errorf("view %d after a switchover, and %d before", view, before)
	}
}

// hideRouted: a replica whose agent is frozen gets no readers.
func (r *routed) hideRouted(t *testing.T, ctx context.Context) {
	primary := r.heal(t, ctx)
	gone, other := next(primary), next(next(primary))
	ids := r.dataIdentity(t, ctx)
	r.pause(t, ctx, gone)
	r.awaitTold(t, ctx, strings.Replace(r.members(primary, 0, 1, 2), r.Name(gone), r.Name(gone)+"-", 1), primary, other)
	var last [3]string // Router may have begun to ask before
	r.awaitServer(t, ctx, r.router.RO, func(uuid string) bool {
		last = [3]string{last[1], last[2], uuid}
		return last == [3]string{ids[other].UUID, ids[other].UUID, ids[other].UUID}
	})
	r.resume(t, gone)
	r.awaitTold(t, ctx, r.members(primary, 0, 1, 2), 0, 1, 2)
}

// membersRouted adds a node and removes it, under load.
func (r *routed) membersRouted(t *testing.T, ctx context.Context) {
	primary := r.heal(t, ctx)
	var d int
	r.underLoad(t, ctx, primary, func() {
		d = r.grow(t, ctx, cluster.KindFull)
		r.awaitMember(t, ctx, r.Name(d), cluster.KindFull)
		r.awaitTold(t, ctx, r.members(primary, 0, 1, 2, d), 0, 1, 2, d)
	})
	r.awaitServer(t, ctx, r.router.RO, func(uuid string) bool { return uuid == r.status(t, ctx, d).ServerUUID })
	r.underLoad(t, ctx, primary, func() {
		r.must(t, ctx, primary, "node", "remove", r.Name(d), "--yes")
		r.awaitTold(t, ctx, r.members(primary, 0, 1, 2), 0, 1, 2)
	})
	if err := r.KillBoth(d); err != nil {
		t.Fatal(err)
	}
}

// lagRouted: while the replicas apply nothing, a session at the split port reads no row older than its own write. It may
// wait, or end. With Router's default wait_for_my_writes_timeout of 2 s it would read old rows, and also with the
// bootstrap's max_idle_server_connections: docs/router.md.
func (r *routed) lagRouted(t *testing.T, ctx context.Context) {
	primary := r.heal(t, ctx)
	r.awaitTold(t, ctx, r.members(primary, 0, 1, 2), 0, 1, 2)
	cfg, err := mysql.ParseDSN(r.clientDSN(r.router.Split))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ReadTimeout = 8 * time.Second // longer than Router's own limit
	db := openDSN(t, cfg.FormatDSN(), nil)
	writer := r.nextWriter()
	var sessions []*sql.Conn
	for range 4 { // at both replicas
		c, err := db.Conn(ctx)
		if err == nil {
			_, err = c.ExecContext(ctx, "SELECT 1")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		sessions = append(sessions, c)
	}
	for _, i := range r.others(primary) {
		defer r.blockApplier(t, ctx, i)()
	}
	r.leavePooled(t, ctx, len(sessions))
	var done sync.WaitGroup
	var wrote atomic.Int32
	for n, c := range sessions {
		done.Go(func() {
			if _, err := c.ExecContext(ctx, "INSERT INTO "+routedTable+" VALUES (?, ?, @@GLOBAL.server_uuid, '')", writer, n); err != nil {
				if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != 1290 { // at a replica: docs/router.md
					t.Errorf("session %d writes: %v", n, err)
				}
				return
			}
			wrote.Add(1)
			began := time.Now()
			var rows int
			var server string
			err := c.QueryRowContext(ctx, "SELECT COUNT(*), @@GLOBAL.server_uuid FROM "+routedTable+" WHERE writer = ? AND n = ?", writer, n).Scan(&rows, &server)
			t.Logf("session %d: %d rows of its own on %s after %v, %v", n, rows, server, time.Since(began).Round(time.Millisecond), err)
			if err == nil && rows == 0 {
				t.Errorf("session %d reads on %s without its own write", n, server)
			}
		})
	}
	done.Wait()
	if wrote.Load() == 0 {
		t.Error("no session could write: the test has tested nothing")
	}
}

// leavePooled opens sessions at the rw port, one after the other, and sessions that end at the same time. Router must
// keep none of their connections for the split port: go-sql-driver does not ask for CLIENT_SESSION_TRACK, so on such
// a connection the server reports no GTID, and Router would wait for nothing.
func (r *routed) leavePooled(t *testing.T, ctx context.Context, sessions int) {
	t.Helper()
	db := r.open(t, r.router.RW)
	defer db.Close()
	db.SetMaxIdleConns(-1)
	seen := map[uint64]bool{}
	for range 20 {
		var id uint64
		if err := db.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			t.Fatal(err)
		}
		if seen[id] {
			t.Errorf("Router has given connection %d of a session at its rw port to another session", id)
			break
		}
		seen[id] = true
	}
	for range sessions {
		c, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
}

// switchRouterOff: the members are removed from the metadata, and Router lets nobody in until they are there again.
func (r *routed) switchRouterOff(t *testing.T, ctx context.Context) {
	primary, err := r.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, ctx, primary, "cluster", "set", "--router", "off")
	r.awaitTold(t, ctx, "", 0, 1, 2)
	if err := devcluster.Poll(ctx, "Router refuses its clients", func(ctx context.Context) (bool, string, error) {
		uuid, err := r.serverAt(t, ctx, r.router.RW)
		return err != nil, uuid, nil
	}); err != nil {
		t.Fatal(err)
	}
	var routers int
	if err := r.local(t, primary).QueryRowContext(ctx, `SELECT COUNT(*) FROM mysql_innodb_cluster_metadata.routers
		WHERE attributes->'$.Configuration.connection_pool.max_idle_server_connections' = 0`).Scan(&routers); err != nil || routers != 1 {
		t.Errorf("%d Routers are known that say that they keep no connections, %v", routers, err)
	}
	if out := r.must(t, ctx, primary, "status"); strings.Contains(out, "wait_for_my_writes_timeout") {
		t.Errorf("status warns of a Router that waits long enough: %s", out)
	}
	// A Router that was bootstrapped without the option reports this about itself.
	mustDo(t, ctx, r.local(t, primary), `UPDATE mysql_innodb_cluster_metadata.routers
		SET attributes = JSON_SET(attributes, '$.Configuration.connection_pool.max_idle_server_connections', 64)`)
	r.must(t, ctx, primary, "cluster", "set", "--router", "on")
	r.awaitServer(t, ctx, r.router.RW, func(string) bool { return true })
	if err := devcluster.Poll(ctx, "the status warns of a Router that keeps connections", func(ctx context.Context) (bool, string, error) {
		out, _ := r.quorate(t, ctx, primary, "status")
		return strings.Contains(out, "max_idle_server_connections to 0"), out, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// portRouter: a frozen primary's port resets Router's connections, so Router does not wait for it. Nobody is served there. Then
// the primary is killed.
func (f *fixture) portRouter(t *testing.T, ctx context.Context) {
	r := f.newRouted(t, mysqlRouterProgram(t))
	primary := r.heal(t, ctx)
	r.prepare(t, ctx, primary)
	r.must(t, ctx, primary, "cluster", "set", "--router", "on")
	r.awaitTold(t, ctx, r.members(primary, 0, 1, 2), 0, 1, 2)
	r.bootstrap(t, ctx, next(primary))
	r.awaitServer(t, ctx, r.router.RW, func(string) bool { return true })
	r.underLoad(t, ctx, next(primary), func() { r.stopProcesses(t, ctx, primary, true, true) })
	r.continueProcesses(t, primary, true, true)
	r.killRouted(t, ctx)
	r.must(t, ctx, r.heal(t, ctx), "cluster", "set", "--router", "off")
}
