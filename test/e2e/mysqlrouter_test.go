package e2e

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
	"github.com/quorate/quorate/internal/testkit/mysqlrouter"
)

// mysqlRouterProgram returns the real mysqlrouter. Without one the test is skipped, as the lab's are.
func mysqlRouterProgram(t *testing.T) string {
	t.Helper()
	program, err := mysqlrouter.Program()
	if err != nil {
		t.Skip(err)
	}
	return program
}

// routedLimit is how long a client waits for an answer, login included. If a client connects to the rw port while
// there is no primary, Router holds it for that time. It holds the next attempt, too, if that gets the same thread of
// Router (docs/router.md).
const routedLimit = 2 * time.Second

// routed is a cluster with a MySQL Router.
type routed struct {
	*fixture
	program string
	// router is set once it was bootstrapped.
	router *mysqlrouter.Router
	// administrator is the account of a person, with which Router is bootstrapped.
	administrator, password string
	test                    *testing.T // all scenarios'
	// elsewhere counts the reads at the split port that a replica has answered, in all scenarios.
	elsewhere int
}

func (f *fixture) newRouted(t *testing.T, program string) *routed {
	t.Helper()
	return &routed{test: t, fixture: f, program: program, administrator: "ann", password: "Aa1-" + rand.Text()}
}

// told returns the instances in a node's metadata, as Router reads them. With a as the primary and c hidden it is
// "a* b c-".
func told(ctx context.Context, db *sql.DB) (view int, text string, err error) {
	rows, err := db.QueryContext(ctx, `SELECT m.view_id, CONCAT(i.label, IF(m.member_role = 'PRIMARY', '*', ''),
		IF(i.attributes->'$.tags._hidden' = TRUE, '-', '')) FROM mysql_innodb_cluster_metadata.v2_ar_members m
		JOIN mysql_innodb_cluster_metadata.v2_instances i ON i.instance_id = m.instance_id
		JOIN mysql_innodb_cluster_metadata.v2_ar_clusters c ON c.cluster_id = i.cluster_id ORDER BY i.label`)
	if err != nil {
		return 0, "", err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&view, &one); err != nil {
			return 0, "", err
		}
		all = append(all, one)
	}
	return view, strings.Join(all, " "), rows.Err()
}

// awaitTold waits until the metadata say so on each node that is given, and returns their view.
func (r *routed) awaitTold(t *testing.T, ctx context.Context, want string, nodes ...int) (view int) {
	t.Helper()
	for _, i := range nodes {
		db := r.local(t, i)
		if err := devcluster.Poll(ctx, fmt.Sprintf("node %s tells Router %q", r.Name(i), want), func(ctx context.Context) (bool, string, error) {
			v, text, err := told(ctx, db)
			view = v
			return err == nil && text == want, fmt.Sprintf("%q, %v", text, err), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return view
}

// members is the text that told should return for the given nodes and the primary.
func (r *routed) members(primary int, nodes ...int) string {
	var all []string
	for _, i := range nodes {
		name := r.Name(i)
		if i == primary {
			name += "*"
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// bootstrap makes a Router of what a node's mysqld says, and starts it.
func (r *routed) bootstrap(t *testing.T, ctx context.Context, against int) {
	t.Helper()
	r.bootstrapAs(t, ctx, mysqlrouter.Config{Dir: filepath.Join(r.Dir(), "router"), Against: r.MysqldAddr(against)})
}

func (r *routed) bootstrapAs(t *testing.T, ctx context.Context, c mysqlrouter.Config) {
	t.Helper()
	c.Program, c.User, c.Password = r.program, r.administrator, r.password
	router, err := mysqlrouter.Bootstrap(ctx, c)
	if err == nil {
		err = router.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.router = router
	r.test.Cleanup(func() { _ = router.Stop() })
}

// open connects an application to one of Router's ports, with TLS: without it Router opens no second session for it.
func (r *routed) open(t *testing.T, addr string) *sql.DB {
	t.Helper()
	return openDSN(t, r.clientDSN(addr), nil)
}

func (r *routed) clientDSN(addr string) string {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName, cfg.TLSConfig = "tcp", addr, ledger.Database, "skip-verify"
	// Router may hold a client that comes while there is no primary for as long as that client waits.
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = time.Second, routedLimit, routedLimit
	cfg.InterpolateParams = true // one command for a statement
	cfg.User, cfg.Passwd = r.Application()
	return cfg.FormatDSN()
}

// serverAt asks a new session at an address which server answers.
func (r *routed) serverAt(t *testing.T, ctx context.Context, addr string) (uuid string, err error) {
	t.Helper()
	db := r.open(t, addr)
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid").Scan(&uuid)
	return uuid, err
}

// awaitServer waits until a server that may answer there answers sessions at one of Router's ports.
func (r *routed) awaitServer(t *testing.T, ctx context.Context, addr string, may func(uuid string) bool) {
	t.Helper()
	if err := devcluster.Poll(ctx, "Router's port "+addr+" leads where it should", func(ctx context.Context) (bool, string, error) {
		uuid, err := r.serverAt(t, ctx, addr)
		return err == nil && may(uuid), fmt.Sprintf("%s, %v", uuid, err), nil
	}); err != nil {
		t.Fatalf("%v; Router says: %s", err, r.router.Log())
	}
}
