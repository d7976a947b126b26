package e2e

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

const readerPassword = "reader's secret"

//go:embed testdata/reader.py
var readerScript string

// TestReaders lets other programs read the log over a failover: mysqlbinlog and a library
// for Python, each by position and by GTID, and a stock mysqld. They begin at the
// primary, which is killed with its agent, and go on at another node. Each gets
// every transaction exactly once, also large and compressed ones.
func TestReaders(t *testing.T) {
	beside(t)
	f := newReadersFixture(t)
	ctx := scenarioContext(t)
	primary := f.heal(t, ctx)
	f.compress(t, ctx, "ON")
	replica := startStock(t, ctx, f.install)
	replica.follow(t, ctx, f, primary)
	followers := []*follower{
		f.mysqlbinlog(t, ctx, "mysqlbinlog by position", "cdc"),
		f.mysqlbinlog(t, ctx, "mysqlbinlog by GTID", "cdc"),
	}
	if python := pythonWith(t, ctx, "mysql-replication==1.0.17"); python != "" {
		followers = append(followers, f.python(t, ctx, python, "python by position"), f.python(t, ctx, python, "python by GTID"))
	}
	for _, r := range followers {
		r.begin(t, ctx, f, primary)
	}

	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 500)
	table := f.largeTable(t, ctx, f.local(t, primary), "readers")
	f.insertLarge(t, ctx, primary, table, 20<<20)
	l.awaitAcks(t, ctx, 300)
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	now, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	replica.follow(t, ctx, f, next(primary))
	l.awaitAcks(t, ctx, 500)
	f.insertLarge(t, ctx, now, table+"2", 9<<20)
	l.awaitAcks(t, ctx, 300)
	f.heal(t, ctx)
	l.stop(t)
	f.check(t, ctx)
	f.checkReplica(t, ctx, replica)
	f.leaveByReplica(t, ctx, next(now))

	want, rows := f.executed(t, ctx, now), f.ledgerIDs(t, ctx, now)
	for _, r := range followers {
		r.finish(t, ctx, f, next(now))
		r.check(t, want, rows)
	}
	f.leaveInPlace(t, ctx, now)
}

// readersFixture is a cluster whose nodes have a port for readers.
type readersFixture struct {
	*fixture
	install *install.Installation
	addrs   []string
}

func newReadersFixture(t *testing.T) *readersFixture {
	t.Helper()
	install, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "qe2e-")
	if err != nil {
		t.Fatal(err)
	}
	c, err := devcluster.New(devcluster.Options{
		Nodes: 3, Dir: dir, MySQLBase: copiedMySQL(t), Binary: os.Getenv(binaryVariable), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCluster(t, c) })
	f := &readersFixture{fixture: &fixture{Cluster: c, think: busy}, install: install}
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(readerPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range c.Len() {
		f.addReaders(t, i, password)
	}
	ctx := scenarioContext(t)
	f.createTable(t, ctx)
	return f
}

// addReaders gives node i a port for readers, and their accounts.
func (f *readersFixture) addReaders(t *testing.T, i int, password string) {
	t.Helper()
	f.addrs = append(f.addrs, f.freeAddress(t))
	text, err := os.ReadFile(f.ConfigPath(i))
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("[feed]\n"), fmt.Appendf(nil, "[feed]\nreaders_listen = %q\n", f.addrs[i]), 1)
	for _, user := range []string{"cdc", "old", "tool"} {
		text = fmt.Appendf(text, "[[reader]]\nuser = %q\npassword_file = %q\ndecompress = %v\nsql = %v\nallow = \"127.0.0.0/8\"\n", user, password, user == "old", user == "tool")
	}
	if err := os.WriteFile(f.ConfigPath(i), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// firstFile asks node i's readers' port for the oldest file.
func (f *readersFixture) firstFile(t *testing.T, ctx context.Context, i int, user string) (name string) {
	t.Helper()
	db := openDSN(t, fmt.Sprintf("%s:%s@tcp(%s)/", user, readerPassword, f.addrs[i]), nil)
	var size int64
	var encrypted string
	if err := db.QueryRowContext(ctx, "SHOW BINARY LOGS").Scan(&name, &size, &encrypted); err != nil {
		t.Fatal(err)
	}
	return name
}

// insertLarge makes a table and, in one transaction, rows in it.
func (f *readersFixture) insertLarge(t *testing.T, ctx context.Context, primary int, table string, bytes int) {
	t.Helper()
	db := f.local(t, primary)
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS " + table + " (id INT PRIMARY KEY, b LONGBLOB)",
		fmt.Sprintf(largeRows(bytes), table),
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%.60s: %v", statement, err)
		}
	}
}

func (f *readersFixture) executed(t *testing.T, ctx context.Context, i int) *gtid.Set {
	t.Helper()
	var text string
	if err := f.local(t, i).QueryRowContext(ctx, "SELECT @@global.gtid_executed").Scan(&text); err != nil {
		t.Fatal(err)
	}
	set, err := gtid.ParseSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// ledgerIDs returns the ids of the ledger's rows on node i, in order.
func (f *readersFixture) ledgerIDs(t *testing.T, ctx context.Context, i int) (ids []int64) {
	t.Helper()
	rows, err := f.local(t, i).QueryContext(ctx, "SELECT id FROM "+ledger.Table+" ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// place is the point from which a follower goes on.
type place struct {
	file   string
	offset uint64
	has    *gtid.Set
}

// follower runs a program that reads, from one node after the other.
type follower struct {
	name string
	// command makes the program, which reads at addr. once: it ends at the end of
	// the log.
	command func(addr string, once bool) *exec.Cmd
	// harvest takes what the program had read, after it has ended.
	harvest func(out []byte) error

	place      place
	duplicates []gtid.GTID
	rows       []int64
	hasRows    bool
	runs       int

	cancel context.CancelFunc
	ended  chan error
}

// take notes a whole transaction. file and offset are the place after it.
func (r *follower) take(id gtid.GTID, rows []int64, file string, offset uint64) {
	if !r.place.has.Add(id) {
		r.duplicates = append(r.duplicates, id)
	}
	r.rows = append(r.rows, rows...)
	r.place.file, r.place.offset = file, offset
}

// begin reads at node i, and goes on at the next node whenever the connection breaks.
func (r *follower) begin(t *testing.T, ctx context.Context, f *readersFixture, i int) {
	t.Helper()
	ctx, r.cancel = context.WithCancel(ctx)
	r.ended = make(chan error, 1)
	go func() {
		for ; ctx.Err() == nil; i = next(i) {
			if err := r.run(ctx, f.addrs[i], false); err != nil {
				r.ended <- err
				return
			}
		}
		r.ended <- nil
	}()
	t.Cleanup(r.cancel)
}

// run runs the program to its end. How it ends matters only with once.
func (r *follower) run(ctx context.Context, addr string, once bool) error {
	r.runs++
	cmd := r.command(addr, once)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	if harvestErr := r.harvest(out.Bytes()); harvestErr != nil {
		return fmt.Errorf("%w\n%s", harvestErr, complaint.Bytes())
	}
	// Error 1236 stops a reader for good; a connection that breaks does not.
	if once && err != nil || strings.Contains(complaint.String(), "1236") {
		return fmt.Errorf("%s: run %d from %+v: %w\n%s", r.name, r.runs, r.place, errors.Join(err, ctx.Err()), complaint.Bytes())
	}
	return nil
}

// finish lets the follower read at node i everything that it has not read yet.
func (r *follower) finish(t *testing.T, ctx context.Context, f *readersFixture, i int) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
	if r.runs < 2 {
		t.Errorf("%s: it never moved", r.name)
	}
	if err := r.run(ctx, f.addrs[i], true); err != nil {
		t.Fatal(err)
	}
}

func (r *follower) check(t *testing.T, want *gtid.Set, rows []int64) {
	t.Helper()
	missing, foreign := want.Clone(), r.place.has.Clone()
	missing.Subtract(r.place.has)
	foreign.Subtract(want)
	if !missing.IsEmpty() || !foreign.IsEmpty() || len(r.duplicates) > 0 {
		t.Errorf("%s: lacks %s, has %s too much, %d twice: %v", r.name, missing, foreign, len(r.duplicates), r.duplicates[:min(len(r.duplicates), 5)])
	}
	slices.Sort(r.rows)
	if r.hasRows && !slices.Equal(r.rows, rows) {
		t.Errorf("%s: %d rows of the ledger, want %d", r.name, len(r.rows), len(rows))
	}
	t.Logf("%s: %d transactions and %d rows in %d runs", r.name, r.place.has.Count(), len(r.rows), r.runs)
}

// mysqlbinlog follows with `mysqlbinlog --raw`, which writes the files of a run
// into a directory.
func (f *readersFixture) mysqlbinlog(t *testing.T, ctx context.Context, name, user string) *follower {
	t.Helper()
	argv, err := f.install.MysqlbinlogArgv()
	if err != nil {
		t.Fatal(err)
	}
	r := &follower{name: name, place: place{f.firstFile(t, ctx, 0, user), 4, &gtid.Set{}}}
	var dir string
	r.command = func(addr string, once bool) *exec.Cmd {
		dir = t.TempDir()
		host, port, _ := net.SplitHostPort(addr)
		args := append(slices.Clone(argv), "--raw", "--to-last-log", "--result-file="+dir+"/",
			"--host="+host, "--port="+port, "--user="+user, "--password="+readerPassword, "--ssl-mode=REQUIRED")
		if !once {
			args = append(args, "--stop-never", "--connection-server-id="+strconv.Itoa(900+len(name)))
		}
		if strings.HasSuffix(name, "GTID") {
			args = append(args, "--read-from-remote-source=BINLOG-DUMP-GTIDS", "--exclude-gtids="+r.place.has.String())
		} else {
			args = append(args, "--read-from-remote-server", "--start-position="+strconv.FormatUint(r.place.offset, 10))
		}
		args = append(args, r.place.file)
		return exec.Command(args[0], args[1:]...)
	}
	r.harvest = func([]byte) error { return r.harvestRaw(dir) }
	return r
}

// harvestRaw reads the files that a run has written: all whole transactions in
// them. Each event must be at the position that it names.
func (r *follower) harvestRaw(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		raw, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return err
		}
		if len(raw) < len(binlog.Magic) {
			continue
		}
		if file.Name() != r.place.file {
			r.place.file, r.place.offset = file.Name(), 4
		}
		for tx, err := range binlog.Transactions(raw[len(binlog.Magic):]) {
			if err != nil {
				break // the last one was cut short
			}
			end := uint64(0)
			for e := range binlog.Events(tx.Raw) {
				if err := binlog.VerifyChecksum(e); err != nil {
					return fmt.Errorf("%s: %w", file.Name(), err)
				}
				end = uint64(e.LogPos())
			}
			r.take(tx.GTID, nil, file.Name(), end)
		}
	}
	return nil
}

// pythonWith makes a virtual environment with a package; "" if the registry
// cannot be reached.
func pythonWith(t *testing.T, ctx context.Context, pkg string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(ctx, "python3", "-m", "venv", dir).CombinedOutput(); err != nil {
		t.Logf("NOT TESTED with Python: no virtual environment: %v\n%s", err, out)
		return ""
	}
	install := exec.CommandContext(ctx, filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", pkg)
	if out, err := install.CombinedOutput(); err != nil {
		t.Logf("NOT TESTED with %s: it cannot be installed: %v\n%s", pkg, err, out)
		return ""
	}
	return filepath.Join(dir, "bin", "python3")
}

// pythonLine is a line of the script's output about a transaction.
type pythonLine struct {
	GTID   string
	Rows   []int64
	File   string
	Offset uint64
}

func (f *readersFixture) python(t *testing.T, ctx context.Context, program, name string) *follower {
	t.Helper()
	script := filepath.Join(t.TempDir(), "reader.py")
	if err := os.WriteFile(script, []byte(readerScript), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &follower{name: name, place: place{f.firstFile(t, ctx, 0, "old"), 4, &gtid.Set{}}, hasRows: true}
	r.command = func(addr string, once bool) *exec.Cmd {
		host, port, _ := net.SplitHostPort(addr)
		by := "position"
		if strings.HasSuffix(name, "GTID") {
			by = "gtid"
		}
		return exec.Command(program, script, host, port, "old", readerPassword, by, strconv.FormatBool(once),
			r.place.has.String(), r.place.file, strconv.FormatUint(r.place.offset, 10))
	}
	r.harvest = func(out []byte) error {
		in := bufio.NewReader(bytes.NewReader(out))
		for {
			text, err := in.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return nil // what was cut short is not there
			}
			var line pythonLine
			if err := json.Unmarshal(text, &line); err != nil {
				return fmt.Errorf("%s: %q: %w", name, text, err)
			}
			id, err := gtid.ParseGTID(line.GTID)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.take(id, line.Rows, line.File, line.Offset)
		}
	}
	return r
}

// stockReplica is a mysqld that does not belong to the cluster.
type stockReplica struct {
	socket string
	dsn    string
	db     *sql.DB
}

// startStock starts a server with new data.
func startStock(t *testing.T, ctx context.Context, install *install.Installation) *stockReplica {
	t.Helper()
	dir, err := os.MkdirTemp("", "qr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "d")
	init := exec.Command(install.MysqldArgv()[0], append(stockArgs(install, data), "--initialize-insecure", "--skip-log-bin")...)
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initialise the replica: %v\n%s", err, out)
	}
	return runStock(t, ctx, install, data)
}

// stockArgs are the arguments of mysqld with a data directory.
func stockArgs(install *install.Installation, data string) []string {
	return append(install.MysqldArgv()[1:], "--no-defaults", "--datadir="+data,
		"--lc-messages-dir="+install.ShareDir, "--character-sets-dir="+install.CharsetsDir, "--plugin-dir="+install.PluginDir,
		"--secure-file-priv=NULL", "--mysqlx=OFF", "--innodb-buffer-pool-size=64M", "--skip-networking", "--user=root",
		"--server-id=4711", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--relay-log-recovery=ON", "--skip-replica-start")
}

// runStock runs a server until the test ends. The more arguments are mysqld's.
func runStock(t *testing.T, ctx context.Context, install *install.Installation, data string, more ...string) *stockReplica {
	t.Helper()
	dir, err := os.MkdirTemp("", "qr") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(install.MysqldArgv()[0], append(append(stockArgs(install, data), "--socket="+socket), more...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the server on %s:\n%s", data, log.String())
		}
	})
	r := &stockReplica{socket: socket, dsn: fmt.Sprintf("root@unix(%s)/", socket)}
	r.db = openDSN(t, r.dsn, nil)
	if err := devcluster.Poll(ctx, "the server on "+data+" answers", func(ctx context.Context) (bool, string, error) {
		err := r.db.PingContext(ctx)
		return err == nil, fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

// follow lets it replicate from node i.
func (r *stockReplica) follow(t *testing.T, ctx context.Context, f *readersFixture, i int) {
	t.Helper()
	host, port, err := net.SplitHostPort(f.addrs[i])
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"STOP REPLICA",
		fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='cdc', SOURCE_PASSWORD='%s', SOURCE_SSL=1, "+
			"SOURCE_AUTO_POSITION=1, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=1000, SOURCE_HEARTBEAT_PERIOD=0.5",
			host, port, strings.ReplaceAll(readerPassword, "'", "''")),
		"START REPLICA",
	} {
		if _, err := r.db.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%.40s: %v", statement, err)
		}
	}
}

// checkReplica compares the replica with the history, as if it were a node.
func (f *readersFixture) checkReplica(t *testing.T, ctx context.Context, r *stockReplica) {
	t.Helper()
	dsn, err := f.LocalDSN(0)
	if err != nil {
		t.Fatal(err)
	}
	if !f.checkServers(t, ctx, ledger.Server{Name: f.Name(0), DSN: dsn}, ledger.Server{Name: "stock replica", DSN: r.dsn}) {
		var ioError, applierError string
		_ = r.db.QueryRowContext(ctx, "SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_connection_status").Scan(&ioError)
		_ = r.db.QueryRowContext(ctx, "SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker WHERE LAST_ERROR_NUMBER <> 0").Scan(&applierError)
		t.Errorf("the replica: I/O: %s; applier: %s", ioError, applierError)
	}
}

// checkServers compares servers with the history, as if they were nodes.
func (f *readersFixture) checkServers(t *testing.T, ctx context.Context, servers ...ledger.Server) bool {
	t.Helper()
	res, err := ledger.Check(ctx, slog.New(slog.DiscardHandler), servers, f.history, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if !res.OK() {
		t.Errorf("lost %d, diverged %d: %v %v", len(res.Lost), len(res.Diverged), res.Lost[:min(len(res.Lost), 3)], res.Diverged[:min(len(res.Diverged), 3)])
	}
	t.Logf("%s has %d rows", servers[len(servers)-1].Name, res.Rows)
	return res.OK()
}
