package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/sys/subprocess"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// mysqlRouterProgram returns the real mysqlrouter. Without one the test is skipped, as the lab's are.
func mysqlRouterProgram(t *testing.T) string {
	t.Helper()
	rivals := os.Getenv("QUORATE_RIVALS")
	if rivals == "" {
		rivals = "../../.rivals"
	}
	program, err := filepath.Abs(filepath.Join(rivals, "router", "bin", "mysqlrouter"))
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Skip("no mysqlrouter in .rivals or QUORATE_RIVALS: run make rivals")
	}
	return program
}

// routed is a cluster with a MySQL Router.
type routed struct {
	*fixture
	program, dir string
	// administrator is the account of a person, with which Router is bootstrapped.
	administrator, password string
	// rw, ro and split are Router's ports.
	rw, ro, split string
	process       *subprocess.Process
	test          *testing.T // all scenarios'
	// elsewhere are the reads at the split port that a replica has answered, of all scenarios.
	elsewhere int
}

func (f *fixture) newRouted(t *testing.T, program string) *routed {
	t.Helper()
	return &routed{test: t, fixture: f, program: program, dir: f.Dir(), administrator: "ann", password: "Aa1-" + rand.Text()}
}

// told are the instances that a node's metadata have, as Router reads them: of node a the primary, c hidden:
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

// members is what Router should be told: all nodes that are given, with the primary.
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

// bootstrap runs "mysqlrouter --bootstrap" against a node's mysqld, and starts what that has made.
func (r *routed) bootstrap(t *testing.T, ctx context.Context, against int) {
	t.Helper()
	host, port, err := net.SplitHostPort(r.MysqldAddr(against))
	if err != nil {
		t.Fatal(err)
	}
	plugins := filepath.Join(filepath.Dir(filepath.Dir(r.program)), "usr/lib/mysqlrouter/plugin")
	cmd := exec.CommandContext(ctx, r.program, "--bootstrap", fmt.Sprintf("%s:%s@%s:%s", r.administrator, r.password, host, port),
		"--directory", filepath.Join(r.dir, "router"), "--conf-base-port", strconv.Itoa(freeBasePort(t)), "--conf-bind-address", "127.0.0.1",
		"--conf-skip-x-protocol", "--disable-rest", "--name", "test", "--user", "root", "--report-host", "127.0.0.1",
		"--conf-set-option=DEFAULT.plugin_folder="+plugins, "--conf-set-option=DEFAULT.connect_timeout=1", "--conf-set-option=DEFAULT.read_timeout=2")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("bootstrap: %v: %s", err, out)
	}
	t.Logf("%s", out)
	r.ports(t)
	r.startRouter(t)
}

// freeBasePort returns a port that is free with the three behind it.
func freeBasePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		base := l.Addr().(*net.TCPAddr).Port
		l.Close()
		free := base+5 < 65536
		for p := base; free && p < base+5; p++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return base
		}
	}
	t.Fatal("there are no five free ports in a row")
	return 0
}

// ports reads them from the configuration that the bootstrap has written.
func (r *routed) ports(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "router", "mysqlrouter.conf"))
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "[") {
			section = line
		}
		if port, ok := strings.CutPrefix(line, "bind_port="); ok {
			addr := "127.0.0.1:" + port
			switch section {
			case "[routing:bootstrap_rw]":
				r.rw = addr
			case "[routing:bootstrap_ro]":
				r.ro = addr
			case "[routing:bootstrap_rw_split]":
				r.split = addr
			}
		}
	}
	if r.rw == "" || r.ro == "" || r.split == "" {
		t.Fatalf("the bootstrap has made ports %q, %q and %q: %s", r.rw, r.ro, r.split, text)
	}
}

func (r *routed) startRouter(t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(r.Dir(), "mysqlrouter.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(r.program, "--config", filepath.Join(r.dir, "router", "mysqlrouter.conf"))
	cmd.Stdout, cmd.Stderr = log, log
	if r.process, err = subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	r.test.Cleanup(func() {
		_ = r.process.Signal(syscall.SIGKILL)
		_ = r.process.WaitGone()
	})
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
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = time.Second, 2*time.Second, 2*time.Second
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

// awaitServer waits until sessions at one of Router's ports are answered by a server that may answer there.
func (r *routed) awaitServer(t *testing.T, ctx context.Context, addr string, may func(uuid string) bool) {
	t.Helper()
	if err := devcluster.Poll(ctx, "Router's port "+addr+" leads where it should", func(ctx context.Context) (bool, string, error) {
		uuid, err := r.serverAt(t, ctx, addr)
		return err == nil && may(uuid), fmt.Sprintf("%s, %v", uuid, err), nil
	}); err != nil {
		log, _ := os.ReadFile(filepath.Join(r.Dir(), "mysqlrouter.log"))
		t.Fatalf("%v; Router says: %s", err, log[max(0, len(log)-4000):])
	}
}
