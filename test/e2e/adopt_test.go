package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

const (
	// adoptedRows is how many rows each database of the server has that is adopted.
	adoptedRows = 2000
	// adoptedTables is how many tables of adoptedTableBytes it has with QUORATE_E2E_LONG=1: 1 GiB.
	adoptedTables, adoptedTableBytes = 16, 64 << 20
	// adoptTimeout bounds a test: up to six servers, and more work than a scenario has. adoptLong bounds a test with
	// the large tables.
	adoptTimeout, adoptLong = 12 * time.Minute, 25 * time.Minute
)

// TestAdopt: the primary of an asynchronous pair, with three databases, becomes the first node of
// a cluster, in place. The command is killed again and again, continued and undone. Then two nodes join.
func TestAdopt(t *testing.T) {
	beside(t)
	f := newCluster(t, devcluster.Options{Nodes: 1})
	ctx := adoptContext(t)
	source, replica := f.asyncPair(t, ctx, long())
	want := holdingOf(t, ctx, replica)
	for _, p := range []*mysqldtest.Plain{replica, source} {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	out, err := f.quorate(t, ctx, 0, "adopt", source.Data(), "--check")
	if err == nil || !strings.Contains(out, "REVOKE REPLICATION SLAVE ON *.* FROM 'rep'@'%'") || strings.Count(out, "fail  ") != 1 {
		t.Fatalf("a server with an account for replicas: %v\n%s", err, out)
	}
	f.refused(t, ctx, 0, []int{1}, "there is nothing to undo", "adopt", "--undo")
	if err := source.Start(ctx); err != nil {
		t.Fatal(err)
	}
	f.refused(t, ctx, 0, []int{1}, "a mysqld runs on it", "adopt", source.Data())
	plainDo(t, ctx, source, "SET sql_log_bin = 0", "REVOKE REPLICATION SLAVE ON *.* FROM 'rep'@'%'")
	if err := source.Stop(); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, 0, "adopt", source.Data(), "--check")
	f.killAdoption(t, ctx, source.Data())
	f.must(t, ctx, 0, "adopt", source.Data()) // from wherever the last one was killed
	f.must(t, ctx, 0, "adopt", "--undo")
	f.firstStartFails(t, ctx, source.Data())
	f.killBeforeMove(t, ctx, source.Data())
	if err := source.Start(ctx); err != nil { // as by a unit that nobody has disabled
		t.Fatal(err)
	}
	plainDo(t, ctx, source, "CREATE DATABASE late", "CREATE TABLE late.t (id INT PRIMARY KEY)", "INSERT INTO late.t VALUES (1)")
	f.takeOver(t, ctx, source)
	f.refused(t, ctx, 0, []int{1}, "in use by another quorate agent", "adopt", "--undo")
	f.growAdopted(t, ctx, want)
	for i := range f.Len() {
		var rows int
		if err := f.local(t, i).QueryRowContext(ctx, "SELECT COUNT(*) FROM late.t").Scan(&rows); err != nil || rows != 1 {
			t.Errorf("node %s has %d rows of what the server wrote after an adoption was killed: %v", f.Name(i), rows, err)
		}
	}
	if err := f.Terminate(ctx, 0); err != nil {
		t.Fatal(err)
	}
	f.refused(t, ctx, 0, []int{1}, "it has made quorate's accounts", "adopt", "--undo")
}

func adoptContext(t *testing.T) context.Context {
	timeout := adoptTimeout
	if long() {
		timeout = adoptLong
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// takeOver shuts a server down, adopts it and waits for the first write, and says how long each took.
func (f *fixture) takeOver(t *testing.T, ctx context.Context, p *mysqldtest.Plain) {
	t.Helper()
	began := time.Now()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	shut := time.Now()
	out := f.must(t, ctx, 0, "adopt", p.Data())
	adopted := time.Now()
	if _, err := os.Stat(p.Data()); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the data are where they were: %v", err)
	}
	f.createTable(t, ctx)
	load := f.start(t, 1)
	load.awaitAcks(t, ctx, 1)
	size, _, _ := strings.Cut(strings.TrimPrefix(out, p.Data()+", "), ",")
	t.Logf("%s: shut down in %.1f s, adopted in %.1f s, the first write %.1f s later", size,
		shut.Sub(began).Seconds(), adopted.Sub(shut).Seconds(), time.Since(adopted).Seconds())
	load.stop(t)
}

// growAdopted lets two nodes join, and compares all three with the data that the server had, and with all that was
// acknowledged, before or after.
func (f *fixture) growAdopted(t *testing.T, ctx context.Context, want holding) {
	t.Helper()
	for range 2 {
		f.awaitMember(t, ctx, f.Name(f.grow(t, ctx, cluster.KindFull)), cluster.KindFull)
	}
	f.heal(t, ctx)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 100)
	load.stop(t)
	f.check(t, ctx)
	for i := range f.Len() {
		f.holdsAdopted(t, ctx, i, want)
	}
	if long() && len(want.large) != adoptedTables {
		t.Errorf("%d large tables, want %d", len(want.large), adoptedTables)
	}
}

// killAdoption kills the command at random, and in turn continues or undoes the adoption.
func (f *fixture) killAdoption(t *testing.T, ctx context.Context, data string) {
	const tries = 8
	killed, begun := 0, 0
	for n := range tries {
		cmd, intention, ended := f.startAdoption(t, ctx, data)
		wait := time.NewTimer(time.Duration(rand.Int64N(int64(time.Second)))) // while it looks
		if n%2 == 0 {                                                         // or once it has begun
			awaitFile(ctx, intention, ended)
			wait.Reset(time.Duration(rand.Int64N(int64(4 * time.Millisecond))))
		}
		<-wait.C
		_ = cmd.Process.Kill()
		if err := <-ended; err != nil {
			killed++
		}
		if _, err := os.Stat(intention); err == nil {
			begun++
			out, err := f.quorate(t, ctx, 0, "run")
			if err == nil || !strings.Contains(out, "was interrupted: run \"quorate adopt "+data) {
				t.Fatalf("an agent starts on what was interrupted: %v: %s", err, out)
			}
		}
		if n%4 < 2 { // else the next one takes it up
			f.killed(t, ctx, 0, 100*time.Millisecond, "adopt", "--undo")
			if out, err := f.quorate(t, ctx, 0, "adopt", "--undo"); err != nil && !strings.Contains(out, "there is nothing to undo") {
				t.Fatalf("undo: %v: %s", err, out)
			}
			if _, err := os.Stat(filepath.Join(data, "auto.cnf")); err != nil {
				t.Fatalf("undone, and the data are elsewhere: %v", err)
			}
		}
	}
	t.Logf("%d of %d were killed, %d of them half done", killed, tries, begun)
	if killed == 0 {
		t.Error("no adoption was killed: the test has tested nothing")
	}
}

// firstStartFails adopts data on which mysqld cannot start, because the host lacks the memory. The adoption can still
// be undone, as if mysqld had never been started.
func (f *fixture) firstStartFails(t *testing.T, ctx context.Context, data string) {
	t.Helper()
	before, err := os.ReadFile(f.ConfigPath(0))
	if err != nil {
		t.Fatal(err)
	}
	config := regexp.MustCompile(`(?m)^(innodb_buffer_pool_size|"innodb_buffer_pool_size") *=.*\n`).ReplaceAllString(string(before), "")
	// As one chunk: in the usual ones mysqld would fill all the memory that there is before it fails, in minutes.
	config = strings.Replace(config, "[mysql.variables]\n", "[mysql.variables]\ninnodb_buffer_pool_size = \"900T\"\ninnodb_buffer_pool_chunk_size = \"900T\"\n", 1)
	if err := os.WriteFile(f.ConfigPath(0), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, 0, "adopt", data)
	run := exec.CommandContext(ctx, os.Getenv(binaryVariable), "run", "--config", f.ConfigPath(0))
	said := &lateOutput{}
	run.Stdout, run.Stderr = said, said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	poll := devcluster.Poll(ctx, "mysqld has failed to start", func(context.Context) (bool, string, error) {
		return strings.Contains(said.String(), "mysqld ended"), said.String(), nil
	})
	_ = run.Process.Signal(syscall.SIGTERM) // else it has ended
	<-ended
	if poll != nil {
		t.Fatal(poll)
	}
	if _, err := os.Stat(filepath.Join(f.DataDir(0), "mysql", "incarnation")); err != nil {
		t.Fatalf("mysqld was not started: %v: %s", err, said)
	}
	f.must(t, ctx, 0, "adopt", "--undo")
	if _, err := os.Stat(filepath.Join(data, "auto.cnf")); err != nil {
		t.Fatalf("undone, and the data are elsewhere: %v", err)
	}
	if err := os.WriteFile(f.ConfigPath(0), before, 0o600); err != nil {
		t.Fatal(err)
	}
}

// lateOutput is the output of a command. It may be read while the command runs.
type lateOutput struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (o *lateOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is all of it so far.
func (o *lateOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startAdoption starts the command. The file intention exists once the adoption has begun. ended receives the command's
// error at its end.
func (f *fixture) startAdoption(t *testing.T, ctx context.Context, data string) (cmd *exec.Cmd, intention string, ended chan error) {
	t.Helper()
	cmd = exec.CommandContext(ctx, os.Getenv(binaryVariable), "adopt", data, "--config", f.ConfigPath(0))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return cmd, filepath.Join(f.DataDir(0), "adopting.json"), ended
}

// killBeforeMove kills an adoption that has begun, before it has moved the data.
func (f *fixture) killBeforeMove(t *testing.T, ctx context.Context, data string) {
	t.Helper()
	const tries = 20
	for n := range tries {
		cmd, intention, ended := f.startAdoption(t, ctx, data)
		awaitFile(ctx, intention, ended)
		_ = cmd.Process.Kill()
		<-ended
		_, begun := os.Stat(intention)
		_, there := os.Stat(filepath.Join(data, "auto.cnf"))
		if begun == nil && there == nil {
			t.Logf("the adoption number %d was killed before it moved the data", n+1)
			return
		}
		f.must(t, ctx, 0, "adopt", "--undo")
	}
	t.Fatalf("none of %d adoptions was killed before it moved the data", tries)
}

// awaitFile waits until a file is there, or the command has ended.
func awaitFile(ctx context.Context, path string, ended chan error) {
	for ctx.Err() == nil {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case err := <-ended:
			ended <- err
			return
		default:
		}
	}
}

// asyncPair is a server with three databases, and its replica, which has all of it.
func (f *fixture) asyncPair(t *testing.T, ctx context.Context, large bool) (source, replica *mysqldtest.Plain) {
	t.Helper()
	source = f.plainServer(t, ctx, "source")
	plainDo(t, ctx, source, "CREATE USER rep@'%' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO rep@'%'")
	fillShops(t, ctx, source, 0, 2)
	if large {
		fillLarge(t, ctx, source)
	}
	replica = f.plainCopy(t, ctx, source, "replica", "server_id=1002")
	replicate(t, ctx, source, replica)
	fillShops(t, ctx, source, 2, 3)
	plainDo(t, ctx, replica, "DO WAIT_FOR_EXECUTED_GTID_SET('"+plainQuery(t, ctx, source, "SELECT @@GLOBAL.gtid_executed")+"', 60)", "STOP REPLICA")
	return source, replica
}

// replicate has a server follow another one, as the account rep.
func replicate(t *testing.T, ctx context.Context, source, replica *mysqldtest.Plain) {
	t.Helper()
	plainDo(t, ctx, replica, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %s, SOURCE_USER = 'rep', "+
		"SOURCE_PASSWORD = 'x', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1", plainQuery(t, ctx, source, "SELECT @@port")), "START REPLICA")
}

// fillShops makes some of the databases shop0 to shop2.
func fillShops(t *testing.T, ctx context.Context, p *mysqldtest.Plain, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		db := fmt.Sprintf("shop%d", i)
		plainDo(t, ctx, p, "CREATE DATABASE "+db, "CREATE TABLE "+db+".t (id INT PRIMARY KEY, v VARCHAR(64))",
			"SET cte_max_recursion_depth = 100000",
			fmt.Sprintf("INSERT INTO %s.t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i, SHA2(CONCAT(i, '%s'), 256) FROM n", db, adoptedRows, db),
			"DROP TABLE IF EXISTS "+db+".nothing")
	}
}

// fillLarge makes the large tables. The copies of the server get them, too, without the binlog, which would prove
// nothing more.
func fillLarge(t *testing.T, ctx context.Context, p *mysqldtest.Plain) {
	t.Helper()
	plainDo(t, ctx, p, "SET GLOBAL innodb_redo_log_capacity = 268435456")
	for i := range adoptedTables {
		table := fmt.Sprintf("shop0.blobs%d", i)
		plainDo(t, ctx, p, "SET sql_log_bin = 0", "CREATE TABLE "+table+" (id INT PRIMARY KEY, b LONGBLOB)", fmt.Sprintf(largeRows(adoptedTableBytes), table))
	}
}

// plainServer is a server as others run it, on loopback.
func (f *fixture) plainServer(t *testing.T, ctx context.Context, name string, options ...string) *mysqldtest.Plain {
	t.Helper()
	in, err := install.Discover(copiedMySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	p, err := mysqldtest.NewPlain(in, filepath.Join(f.Dir(), name), onLoopback(t, options)...)
	return started(t, ctx, p, err)
}

// plainCopy is a server with a copy of another server's data. The other server is shut down during the copy.
func (f *fixture) plainCopy(t *testing.T, ctx context.Context, of *mysqldtest.Plain, name string, options ...string) *mysqldtest.Plain {
	t.Helper()
	if err := of.Stop(); err != nil {
		t.Fatal(err)
	}
	p, err := of.Copy(filepath.Join(f.Dir(), name), onLoopback(t, options)...)
	p = started(t, ctx, p, err)
	if err := of.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

func onLoopback(t *testing.T, options []string) []string {
	t.Helper()
	return append(slices.Clone(options), "port="+freePort(t), "bind_address=127.0.0.1")
}

// freePort is a port where nobody listens now.
func freePort(t *testing.T) string {
	t.Helper()
	addr, err := devcluster.FreeAddr("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return addr[strings.LastIndexByte(addr, ':')+1:]
}

func started(t *testing.T, ctx context.Context, p *mysqldtest.Plain, err error) *mysqldtest.Plain {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// holding has the transactions of a server that is adopted, and the checksums of its large tables.
type holding struct {
	executed string
	large    []string
}

func holdingOf(t *testing.T, ctx context.Context, p *mysqldtest.Plain) holding {
	t.Helper()
	db, err := sql.Open("mysql", p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return holding{executed: plainQuery(t, ctx, p, "SELECT @@GLOBAL.gtid_executed"), large: largeSums(t, ctx, db)}
}

func largeSums(t *testing.T, ctx context.Context, db *sql.DB) (sums []string) {
	t.Helper()
	for _, table := range queryStrings(t, ctx, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop0' AND table_name LIKE 'blobs%' ORDER BY 1") {
		sums = append(sums, queryStrings(t, ctx, db, "SELECT CONCAT(COUNT(*), ' ', SUM(LENGTH(b)), ' ', BIT_XOR(CRC32(b) ^ id)) FROM shop0."+table)...)
	}
	return sums
}

// holdsAdopted fails the test unless a node has every row and every transaction from before the adoption.
func (f *fixture) holdsAdopted(t *testing.T, ctx context.Context, i int, want holding) {
	t.Helper()
	db := f.admin(t, i)
	for n := range 3 {
		name := fmt.Sprintf("shop%d", n)
		var rows int
		if err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s.t WHERE v = SHA2(CONCAT(id, '%s'), 256)", name, name)).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if rows != adoptedRows {
			t.Errorf("node %s has %d sound rows in %s, want %d", f.Name(i), rows, name, adoptedRows)
		}
	}
	if d := cmp.Diff(want.large, largeSums(t, ctx, db)); d != "" {
		t.Errorf("node %s: large tables (-want +got):\n%s", f.Name(i), d)
	}
	var all bool
	if err := db.QueryRowContext(ctx, "SELECT GTID_SUBSET(?, @@GLOBAL.gtid_executed)", want.executed).Scan(&all); err != nil || !all {
		t.Errorf("node %s lacks transactions of %s: %v", f.Name(i), want.executed, err)
	}
}

func plainDo(t *testing.T, ctx context.Context, p *mysqldtest.Plain, statements ...string) {
	t.Helper()
	db, err := sql.Open("mysql", p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // one session
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func plainQuery(t *testing.T, ctx context.Context, p *mysqldtest.Plain, query string) (text string) {
	t.Helper()
	db, err := sql.Open("mysql", p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(ctx, query).Scan(&text); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.ReplaceAll(text, "\n", "")
}
