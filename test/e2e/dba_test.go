package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// TestDBA does what docs/dba.md says, as a person with the role quorate_dba, over
// the network: what works, what does not, and what to do instead. None of it may
// cost the primary its place.
func TestDBA(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.scenario(t, "Tools", f.dbaTools)
	f.scenario(t, "Record", f.clientsAreOnRecord)
	f.scenario(t, "Sessions", f.clientsAreListed)
	f.scenario(t, "Silent", f.silentClientsKeepNobodyOut)
}

// silentClientsKeepNobodyOut: more silent connections than mysqld allows come from one address. mysqld
// would wait 10 s for each. Other clients still get in.
func (f *fixture) silentClientsKeepNobodyOut(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	db := f.admin(t, primary)
	var places int
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.max_connections").Scan(&places); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}}
	for range places + 30 {
		conn, err := d.DialContext(ctx, "tcp", f.RouterAddr(primary))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	// Only when mysqld is full would the next client be refused.
	if err := devcluster.Poll(ctx, "mysqld has no place left", func(ctx context.Context) (bool, string, error) {
		var taken int
		err := db.QueryRowContext(ctx, "SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Threads_connected'").Scan(&taken)
		return taken >= places, fmt.Sprintf("%d of %d are taken", taken, places), err
	}); err != nil {
		t.Fatal(err)
	}
	cfg, err := mysql.ParseDSN(f.DSN(primary))
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	if err := devcluster.Poll(ctx, "a client gets in", func(ctx context.Context) (bool, string, error) {
		conn, err := connector.Connect(ctx)
		if err != nil {
			refused++
			return false, err.Error(), nil
		}
		return true, "", conn.Close()
	}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("a client got in %v after %d silent ones, %d times refused", took.Round(time.Millisecond), places+30, refused)
	if took > 9*time.Second {
		t.Error("that is longer than a login may take: mysqld itself has ended the silent ones")
	}
	if n := f.metric(t, ctx, primary, `quorate_router_expelled_total{port="read_write"}`); n == 0 {
		t.Error("nobody was expelled")
	}
}

// clientsAreOnRecord: the log of a node names the clients that tried passwords there, and those that were
// connected.
func (f *fixture) clientsAreOnRecord(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	for i := range f.Len() {
		cfg, err := mysql.ParseDSN(f.DSN(i))
		if err != nil {
			t.Fatal(err)
		}
		refused := f.metric(t, ctx, i, `quorate_router_denied_total{port="read_write"}`)
		for n, tls := range []string{"", "skip-verify", ""} {
			wrong := n < 2
			one := cfg.Clone()
			if one.TLSConfig = tls; wrong {
				one.Passwd = "a guess"
			}
			connector, err := mysql.NewConnector(one)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := connector.Connect(ctx)
			if (err != nil) != wrong {
				t.Fatalf("wrong password: %t, %v", wrong, err)
			}
			if err == nil {
				_ = conn.Close()
			}
		}
		if err := devcluster.Poll(ctx, "the sessions are in the log of "+f.Name(i), func(context.Context) (bool, string, error) {
			text, err := os.ReadFile(f.Logs(i))
			denied, ended := bytes.Contains(text, []byte("a client's login was refused")), bytes.Contains(text, []byte("client session ended"))
			port := i != primary || bytes.Contains(text, []byte("local_port"))
			hidden := bytes.Contains(text, []byte("ended with the answer to its login"))
			return denied && hidden && ended && port && f.metric(t, ctx, i, `quorate_router_denied_total{port="read_write"}`) == refused+2, "", err
		}); err != nil {
			t.Error(err)
		}
	}
}

// dba is a person's account and the tools of the installation.
type dba struct {
	f       *fixture
	install *install.Installation
}

// run runs a tool through node i's port, with input, and returns what it printed.
func (d dba) run(t *testing.T, ctx context.Context, i int, input, tool string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runTool(t, ctx, d.install, d.f.annAt(t, i), input, tool, args...)
}

// annAt are the options of ann's login through node i's port.
func (f *fixture) annAt(t *testing.T, i int) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(f.RouterAddr(i))
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--host=" + host, "--port=" + port, "--user=ann", "--password=Aa1-ann"}
}

// runTool runs a tool: of MySQL's installation, or on PATH.
func runTool(t *testing.T, ctx context.Context, install *install.Installation, login []string, input, tool string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	argv := []string{tool}
	if strings.HasPrefix(tool, "mysql") {
		if argv, err = install.ClientArgv(); err != nil {
			t.Fatal(err)
		}
		argv[slices.Index(argv, install.Mysql)] = filepath.Join(filepath.Dir(install.Mysql), tool)
		if tool == "mysqlslap" { // it does not know this option
			argv = slices.DeleteFunc(argv, func(arg string) bool { return strings.HasPrefix(arg, "--character-sets-dir=") })
		}
	}
	argv = slices.Concat(argv, login, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func (f *fixture) dbaTools(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	term := f.status(t, ctx, primary).Term
	install, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	d := dba{f, install}
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	if _, err := f.local(t, primary).ExecContext(ctx, "CREATE USER ann@'%' IDENTIFIED BY 'Aa1-ann' DEFAULT ROLE quorate_dba"); err != nil {
		t.Fatal(err)
	}
	ok := func(input, tool string, args ...string) string {
		t.Helper()
		out, errs, err := d.run(t, ctx, (primary+1)%f.Len(), input, tool, args...)
		if err != nil {
			t.Errorf("%s %v: %v: %s", tool, args, err, errs)
		}
		return out
	}
	refused := func(why, input, tool string, args ...string) {
		t.Helper()
		out, errs, err := d.run(t, ctx, (primary+1)%f.Len(), input, tool, args...)
		if err == nil || !strings.Contains(errs, why) {
			t.Errorf("%s %v: %v, %.200q, %q; want %q", tool, args, err, out, errs, why)
		}
	}
	dump := ok("", "mysqldump", "--single-transaction", "--set-gtid-purged=OFF", "--routines", "--triggers", "--events", ledger.Database)
	ok("CREATE DATABASE copy", "mysql")
	ok(dump, "mysql", "copy")
	withGTIDs := ok("", "mysqldump", "--single-transaction", ledger.Database)
	refused("SUPER", withGTIDs, "mysql", "copy") // it switches the binlog off
	sourceData := ok("", "mysqldump", "--single-transaction", "--source-data=2", "--set-gtid-purged=OFF", ledger.Database)
	if !strings.Contains(sourceData, "SOURCE_LOG_FILE='q0") {
		t.Errorf("mysqldump --source-data names another binlog than mysqld's own: %.2000s", sourceData)
	}
	refused("REPLICATION SLAVE", "", "mysqlbinlog", "--read-from-remote-server", "--to-last-log", "q0000000001.000001")
	for _, statement := range []string{
		"SET sql_log_bin = 0", "SET GLOBAL max_connections = 400", "SET PERSIST max_connections = 400", "FLUSH BINARY LOGS",
		"PURGE BINARY LOGS BEFORE NOW()", "RESET BINARY LOGS AND GTIDS", "SHUTDOWN", "GRANT ALL ON *.* TO ann@'%'",
		"GRANT REPLICATION SLAVE ON *.* TO ann@'%'", "CREATE TABLE copy.m (a INT) ENGINE = MyISAM",
		"SELECT * FROM copy.ledger INTO OUTFILE 'x'", "LOAD DATA INFILE '/etc/hostname' INTO TABLE copy.ledger",
		"CLONE INSTANCE FROM a@b:1 IDENTIFIED BY ''", "CLONE LOCAL DATA DIRECTORY = '/tmp/quorate-clone-local'", "LOCK INSTANCE FOR BACKUP",
		"INSTALL PLUGIN x SONAME 'x.so'", "STOP REPLICA",
	} {
		refused("", "", "mysql", "-e", statement)
	}
	for _, statement := range []string{
		"CREATE USER app2@'%' IDENTIFIED BY 'Aa1-app2'", "GRANT ALL ON copy.* TO app2@'%'", "GRANT SELECT, PROCESS ON *.* TO app2@'%'",
		"ALTER TABLE copy.ledger ADD COLUMN more INT, ALGORITHM = INSTANT", "ANALYZE TABLE copy.ledger", "OPTIMIZE TABLE copy.ledger",
		"SHOW PROCESSLIST", "SHOW ENGINE INNODB STATUS", "KILL CONNECTION_ID()",
		"FLUSH TABLES WITH READ LOCK; UNLOCK TABLES", "SET SESSION innodb_lock_wait_timeout = 3", "SHOW BINARY LOG STATUS",
		"CREATE USER bert@'%' IDENTIFIED BY 'Aa1-bert' DEFAULT ROLE quorate_dba", "GRANT quorate_dba TO app2@'%'",
		"REVOKE quorate_dba FROM app2@'%'", "DROP USER bert@'%', app2@'%'", "DROP DATABASE copy",
	} {
		if statement == "KILL CONNECTION_ID()" {
			refused("interrupted", "", "mysql", "-e", statement)
			continue
		}
		ok("", "mysql", "-e", statement)
	}
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	if now := f.heal(t, ctx); now != primary || f.status(t, ctx, now).Term != term {
		t.Errorf("the primary is %s of term %d, it was %s of term %d", f.Name(now), f.status(t, ctx, now).Term, f.Name(primary), term)
	}
	f.check(t, ctx)
}

// clientsAreListed: quorate sessions lists the clients at the agents' ports, with the node to which each came, and the
// address that mysqld shows.
func (f *fixture) clientsAreListed(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	other := f.others(primary)[0]
	var want []cluster.Session
	for _, c := range []struct {
		at   int
		dsn  string
		port string
		to   int
	}{
		{primary, f.DSN(primary), "read_write", primary}, {other, f.DSN(other), "read_write", primary}, {other, f.ReadDSN(other), "read_only", other},
	} {
		cfg, err := mysql.ParseDSN(c.dsn)
		if err != nil {
			t.Fatal(err)
		}
		is := cluster.Session{Port: c.port, State: cluster.SessionRouted, Node: f.Name(c.at), Target: f.Name(c.to)}
		cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				is.Client = conn.LocalAddr().String()
			}
			return conn, err
		}
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		defer db.Close()
		conn, err := db.Conn(ctx)
		if err == nil {
			err = conn.QueryRowContext(ctx, "SELECT HOST FROM performance_schema.processlist WHERE ID = CONNECTION_ID()").Scan(&is.Server)
		}
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, is)
	}
	var shown struct {
		Sessions []cluster.Session `json:"sessions"`
	}
	if err := json.Unmarshal([]byte(f.must(t, ctx, f.others(primary)[1], "sessions", "--last", "10000", "--json")), &shown); err != nil {
		t.Fatal(err)
	}
	shown.Sessions = slices.DeleteFunc(shown.Sessions, func(s cluster.Session) bool { // of other scenarios
		return !slices.ContainsFunc(want, func(w cluster.Session) bool { return w.Client == s.Client })
	})
	if d := cmp.Diff(want, shown.Sessions, cmpopts.IgnoreFields(cluster.Session{}, "Since", "Stream")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	text := f.must(t, ctx, primary, "sessions", f.Name(primary))
	if !strings.Contains(text, want[0].Client) || strings.Contains(text, want[1].Client) || !strings.Contains(text, want[1].Server) {
		t.Errorf("of %s alone:\n%s", f.Name(primary), text)
	}
}
