package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// adoptedRows is how many rows each database of the server has that is adopted.
const adoptedRows = 2000

// TestAdopt: the primary of an asynchronous pair, with three databases, becomes the first node of
// a cluster, in place. That is killed again and again, taken up and undone; then two nodes join.
func TestAdopt(t *testing.T) {
	t.Parallel()
	f := newCluster(t, devcluster.Options{Nodes: 1})
	f.scenario(t, "AsyncPair", f.adoptPair)
}

func (f *fixture) adoptPair(t *testing.T, ctx context.Context) {
	source, replica := f.asyncPair(t, ctx)
	executed := plainQuery(t, ctx, replica, "SELECT @@GLOBAL.gtid_executed")
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
	f.must(t, ctx, 0, "adopt", source.Data())
	if _, err := os.Stat(source.Data()); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the data are where they were: %v", err)
	}
	f.heal(t, ctx)
	f.refused(t, ctx, 0, []int{1}, "in use by another quorate agent", "adopt", "--undo")
	for range 2 {
		f.awaitMember(t, ctx, f.Name(f.grow(t, ctx, cluster.KindFull)), cluster.KindFull)
	}
	f.createTable(t, ctx)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 100)
	load.stop(t)
	f.check(t, ctx)
	for i := range f.Len() {
		f.holdsAdopted(t, ctx, i, executed)
	}
}

// killAdoption kills the command at random, and takes it up or undoes it in turns.
func (f *fixture) killAdoption(t *testing.T, ctx context.Context, data string) {
	const tries = 8
	killed, begun := 0, 0
	for n := range tries {
		cmd := exec.CommandContext(ctx, os.Getenv(binaryVariable), "adopt", data, "--config", f.ConfigPath(0))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		intention := filepath.Join(f.DataDir(0), "adopting.json")
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
func (f *fixture) asyncPair(t *testing.T, ctx context.Context) (source, replica *mysqldtest.Plain) {
	t.Helper()
	source, replica = f.plainServer(t, ctx, "source"), f.plainServer(t, ctx, "replica", "server_id=1002")
	port := plainQuery(t, ctx, source, "SELECT @@port")
	plainDo(t, ctx, source, "CREATE USER rep@'%' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO rep@'%'")
	for i := range 3 {
		db := fmt.Sprintf("shop%d", i)
		plainDo(t, ctx, source, "CREATE DATABASE "+db, "CREATE TABLE "+db+".t (id INT PRIMARY KEY, v VARCHAR(64))",
			"SET cte_max_recursion_depth = 100000",
			fmt.Sprintf("INSERT INTO %s.t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i, SHA2(CONCAT(i, '%s'), 256) FROM n", db, adoptedRows, db),
			"DROP TABLE IF EXISTS "+db+".nothing")
	}
	plainDo(t, ctx, replica, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %s, SOURCE_USER = 'rep', "+
		"SOURCE_PASSWORD = 'x', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1", port), "START REPLICA",
		"DO WAIT_FOR_EXECUTED_GTID_SET('"+plainQuery(t, ctx, source, "SELECT @@GLOBAL.gtid_executed")+"', 60)", "STOP REPLICA")
	return source, replica
}

// plainServer is a server as others run it, on loopback.
func (f *fixture) plainServer(t *testing.T, ctx context.Context, name string, options ...string) *mysqldtest.Plain {
	t.Helper()
	in, err := install.Discover(copiedMySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := mysqldtest.NewPlain(in, filepath.Join(f.Dir(), name), append(options, fmt.Sprintf("port=%d", port), "bind_address=127.0.0.1")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// holdsAdopted holds that a node has every row of before, and knows the transactions of before.
func (f *fixture) holdsAdopted(t *testing.T, ctx context.Context, i int, executed string) {
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
	var all bool
	if err := db.QueryRowContext(ctx, "SELECT GTID_SUBSET(?, @@GLOBAL.gtid_executed)", executed).Scan(&all); err != nil || !all {
		t.Errorf("node %s lacks transactions of %s: %v", f.Name(i), executed, err)
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
