package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// followTimeout bounds TestFollow: five servers, and more work than a scenario has.
const followTimeout = 12 * time.Minute

// commandTakes is about how long a command takes to ask for a change.
const commandTakes = 150 * time.Millisecond

// errReadOnlyServer is ER_OPTION_PREVENTS_STATEMENT.
const errReadOnlyServer = 1290

// TestFollow: a cluster that was adopted from a copy follows the source, to which writers write, until the cutover.
// Meanwhile its primary is killed, also in the middle of a cutover, and so is the source, and a cutover is called
// off. All that the source or the cluster has acknowledged is on all nodes.
func TestFollow(t *testing.T) {
	beside(t)
	f := newCluster(t, devcluster.Options{Nodes: 1})
	ctx, cancel := context.WithTimeout(t.Context(), followTimeout)
	defer cancel()
	source := f.adoptCopy(t, ctx)
	addr := "127.0.0.1:" + plainQuery(t, ctx, source, "SELECT @@port")
	dsn := f.plainLedger(t, ctx, source)
	plainDo(t, ctx, source, "CREATE USER fol@'%' IDENTIFIED BY 'secret'", "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN, XA_RECOVER_ADMIN ON *.* TO fol@'%'",
		"GRANT SELECT ON *.* TO fol@'%'")
	file := filepath.Join(f.Dir(), "source.password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	follow := []string{"follow", addr, "--user", "fol", "--password-file", file}
	f.refused(t, ctx, 0, []int{1}, "others cannot read", follow...)
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, 0, append(follow, "--check")...)
	load := f.startAt(t, 4, dsn)
	load.awaitAcks(t, ctx, 50)
	f.killed(t, ctx, 0, commandTakes, follow...)
	f.must(t, ctx, 0, follow...) // asking again after a command without an answer succeeds
	f.awaitNear(t, ctx)
	f.clientsCannotWrite(t, ctx)
	f.followIsShown(t, ctx)
	f.killWhileFollowing(t, ctx, source, load)
	f.sourceKilled(t, ctx, source, load)
	f.cutoverCalledOff(t, ctx, source, load)
	f.cutoverInterrupted(t, ctx, source, load, false, f.KillBoth, func(int) error { return nil })
	f.cutoverInterrupted(t, ctx, source, load, true, f.PauseAgent, f.ResumeAgent)
	f.cutoverInterrupted(t, ctx, source, load, false, func(int) error { return errors.Join(source.Kill(), source.Start(ctx)) }, func(int) error { return nil })
	f.cutoverCommandKilled(t, ctx, source, load, 0)
	f.cutoverCommandKilled(t, ctx, source, load, 1)
	f.awaitNear(t, ctx)
	primary, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin(t, primary).ExecContext(ctx, "CREATE DATABASE quorate_own"); err != nil { // as dba may
		t.Fatal(err)
	}
	f.refused(t, ctx, 0, []int{1}, "the cluster has 1 transactions that the source lacks", "cutover")
	load.awaitAcks(t, ctx, 20)
	f.awaitNear(t, ctx)
	out := f.must(t, ctx, 0, "cutover", "--verify", "checksum", "--within", "1m40s", "--force")
	if !regexp.MustCompile(`Writes stood for \d+\.\d s; \d+ tables were compared`).MatchString(out) {
		t.Errorf("the cutover says %q", out)
	}
	t.Log(strings.TrimSpace(out))
	if again := f.must(t, ctx, 1, "cutover"); !strings.HasPrefix(again, "it was done before, at ") {
		t.Errorf("a cutover that is asked for again says %q", again)
	}
	load.stop(t)
	if got := plainQuery(t, ctx, source, "SELECT @@GLOBAL.super_read_only"); got != "1" {
		t.Error("the source is open after the cutover")
	}
	if strings.Contains(out, "once it restarts") {
		t.Errorf("the source does not stay closed: %q", out)
	}
	here := f.start(t, 4)
	here.awaitAcks(t, ctx, 100)
	here.stop(t)
	f.check(t, ctx)
	f.holdsSource(t, ctx, source)
	f.goesOnFromClosed(t, ctx, source, follow)
	f.purgedSource(t, ctx)
}

// adoptCopy makes a cluster of three from a copy of a server, and returns the server.
func (f *fixture) adoptCopy(t *testing.T, ctx context.Context) *mysqldtest.Plain {
	t.Helper()
	source, replica := f.asyncPair(t, ctx, false)
	plainDo(t, ctx, replica, "RESET REPLICA ALL", "SET sql_log_bin = 0", "REVOKE REPLICATION SLAVE ON *.* FROM 'rep'@'%'")
	if err := replica.Stop(); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, 0, "adopt", replica.Data())
	f.heal(t, ctx)
	for range 2 {
		f.awaitMember(t, ctx, f.Name(f.grow(t, ctx, cluster.KindFull)), cluster.KindFull)
	}
	return source
}

// awaitNear waits until the primary has followed nearly all of the source.
func (f *fixture) awaitNear(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := devcluster.PollCommand(ctx, "the cluster follows", func(ctx context.Context) (bool, string, error) {
		out, err := f.quorate(t, ctx, 0, "follow")
		if err != nil {
			return false, out, nil
		}
		left := regexp.MustCompile(`(\d+) transactions left, (\d)\.`).FindStringSubmatch(out)
		return strings.Contains(out, "has all that the source has") || left != nil && len(left[1]) < 3 && left[2] < "3", out, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// followIsShown: every node's metrics say that the cluster follows, the primary's how far it is.
func (f *fixture) followIsShown(t *testing.T, ctx context.Context) {
	t.Helper()
	primary, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Len() {
		if f.metric(t, ctx, i, "quorate_follow") != 1 {
			t.Errorf("%s does not show that the cluster follows", f.Name(i))
		}
	}
	for name, want := range map[string]bool{
		"quorate_follow_failing": false, "quorate_follow_source_answers": true, "quorate_follow_transactions_total": true,
	} {
		if got := f.metric(t, ctx, primary, name); (got > 0) != want {
			t.Errorf("%s is %v", name, got)
		}
	}
	if lag := f.metric(t, ctx, primary, "quorate_follow_lag_seconds"); lag > 60 {
		t.Errorf("the lag is %v s", lag)
	}
}

func (f *fixture) clientsCannotWrite(t *testing.T, ctx context.Context) {
	t.Helper()
	db := openDSN(t, f.DSN(0), nil)
	if err := devcluster.Poll(ctx, "clients cannot write", func(ctx context.Context) (bool, string, error) {
		_, err := db.ExecContext(ctx, "DELETE FROM "+ledger.Table+" WHERE id = -1")
		refused, ok := errors.AsType[*mysql.MySQLError](err)
		if err == nil {
			return false, "", errors.New("a client has written")
		}
		return ok && refused.Number == errReadOnlyServer, fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// killWhileFollowing kills the primary while it writes a large transaction, a compressed one, and DDL.
func (f *fixture) killWhileFollowing(t *testing.T, ctx context.Context, source *mysqldtest.Plain, load *load) {
	t.Helper()
	for n := range 3 {
		primary, err := f.WaitPrimary(ctx)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("shop0.large%d", n)
		plainDo(t, ctx, source, "CREATE TABLE "+name+" (id INT PRIMARY KEY, v LONGBLOB)", "SET cte_max_recursion_depth = 100000",
			fmt.Sprintf("SET binlog_transaction_compression = %d", n%2),
			"INSERT INTO "+name+" WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i, REPEAT(SHA2(i, 256), 150) FROM n",
			"ALTER TABLE "+name+" ADD COLUMN w INT DEFAULT 7, ADD KEY (w)", "UPDATE "+name+" SET w = id")
		if err := f.KillBoth(primary); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WaitPrimary(ctx, primary); err != nil {
			t.Fatal(err)
		}
		load.awaitAcks(t, ctx, 20)
		f.heal(t, ctx)
		f.awaitNear(t, ctx)
		f.clientsCannotWrite(t, ctx)
	}
}

// sourceKilled: when a killed source is back, it is followed again without any command.
func (f *fixture) sourceKilled(t *testing.T, ctx context.Context, source *mysqldtest.Plain, load *load) {
	t.Helper()
	if err := source.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, "the cluster says that it does not follow", func(ctx context.Context) (bool, string, error) {
		out, _ := f.quorate(t, ctx, 0, "follow")
		return strings.Contains(out, "does not follow: "), out, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := source.Start(ctx); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 20)
	f.awaitNear(t, ctx)
}

// lockedAtPrimary keeps the primary from applying the source's transactions, until conn unlocks its tables or ends.
func (f *fixture) lockedAtPrimary(t *testing.T, ctx context.Context, load *load) (primary int, conn *sql.Conn) {
	t.Helper()
	primary, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err = f.admin(t, primary).Conn(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(ctx, "LOCK TABLES "+ledger.Table+" READ"); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 5) // which cannot be written here: else a cutover may need nothing of what comes behind the lock
	return primary, conn
}

// cutoverCalledOff: transactions that do not arrive in time call the cutover off, and the source goes on.
func (f *fixture) cutoverCalledOff(t *testing.T, ctx context.Context, source *mysqldtest.Plain, load *load) {
	t.Helper()
	_, conn := f.lockedAtPrimary(t, ctx, load)
	defer conn.Close()
	f.refused(t, ctx, 0, []int{1}, "called off, the source is as before", "cutover", "--within", "2s")
	if _, err := conn.ExecContext(ctx, "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	if got := plainQuery(t, ctx, source, "SELECT @@GLOBAL.super_read_only + @@GLOBAL.read_only"); got != "0" {
		t.Error("the source is closed after a cutover that was called off")
	}
	load.awaitAcks(t, ctx, 50)
}

// cutoverInterrupted: a primary that dies, or freezes, in the middle of a cutover leaves the source closed, or would
// close it once a lock there is gone. The next primary calls the cutover off, and opens the source. When the former
// primary comes back, it does not close it.
func (f *fixture) cutoverInterrupted(t *testing.T, ctx context.Context, source *mysqldtest.Plain, load *load, about bool, interrupt, heal func(primary int) error) {
	t.Helper()
	f.awaitNear(t, ctx)
	primary, conn := f.lockedAtPrimary(t, ctx, load)
	defer conn.Close()
	unlock := func() {}
	if about {
		unlock = lockedAt(t, ctx, source)
		defer unlock()
	}
	cut := exec.CommandContext(ctx, os.Getenv(binaryVariable), "cutover", "--within", "1m40s", "--config", f.ConfigPath((primary+1)%f.Len()))
	if err := cut.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(what, query, want string) { t.Helper(); awaitSource(t, ctx, source, what, query, want) }
	if about {
		await("the source is about to be closed", sourceClosing, "1")
	} else {
		await("the source is closed", sourceReadOnly, "11")
	}
	if err := interrupt(primary); err != nil {
		t.Fatal(err)
	}
	await("nobody is about to close the source", sourceClosing, "0")
	unlock()
	await("the source is open again", sourceReadOnly, "00")
	load.awaitAcks(t, ctx, 20)
	if err := heal(primary); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.ExecContext(ctx, "UNLOCK TABLES") // a server that was killed is gone, and its locks with it
	if err := cut.Wait(); err == nil {
		t.Error("the cutover says that it is done, and it was interrupted")
	}
	f.heal(t, ctx)
	f.clientsCannotWrite(t, ctx)
	load.awaitAcks(t, ctx, 20)
	f.awaitCutoverOver(t, ctx, source, primary)
}

// cutoverCommandKilled: the command dies in the middle of a cutover, at the primary or elsewhere. The cutover is
// still called off, at the latest at its limit.
func (f *fixture) cutoverCommandKilled(t *testing.T, ctx context.Context, source *mysqldtest.Plain, load *load, beside int) {
	t.Helper()
	f.awaitNear(t, ctx)
	primary, conn := f.lockedAtPrimary(t, ctx, load)
	defer conn.Close()
	cut := exec.CommandContext(ctx, os.Getenv(binaryVariable), "cutover", "--within", "10s", "--config", f.ConfigPath((primary+beside)%f.Len()))
	if err := cut.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSource(t, ctx, source, "the source is closed", sourceReadOnly, "11")
	if err := cut.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cut.Wait() // it was killed
	awaitSource(t, ctx, source, "the source is open again", sourceReadOnly, "00")
	if _, err := conn.ExecContext(ctx, "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 20)
	f.awaitCutoverOver(t, ctx, source, primary)
}

// sourceReadOnly is the query whether a source is closed. sourceClosing is 1 while a session is closing it.
const (
	sourceReadOnly = "SELECT CONCAT(@@GLOBAL.super_read_only, @@GLOBAL.read_only)"
	sourceClosing  = "SELECT COUNT(*) FROM performance_schema.threads JOIN performance_schema.events_statements_current USING (thread_id)" +
		" WHERE processlist_user = 'fol' AND processlist_command = 'Query' AND event_name = 'statement/sql/set_option' AND end_event_id IS NULL"
)

// awaitSource waits until a query at the source returns want.
func awaitSource(t *testing.T, ctx context.Context, source *mysqldtest.Plain, what, query, want string) {
	t.Helper()
	if err := devcluster.Poll(ctx, what, func(context.Context) (bool, string, error) {
		got := plainQuery(t, ctx, source, query)
		return got == want, query + " is " + got, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitCutoverOver waits until a cutover was called off, and the cluster follows again.
func (f *fixture) awaitCutoverOver(t *testing.T, ctx context.Context, source *mysqldtest.Plain, primary int) {
	t.Helper()
	if err := devcluster.Poll(ctx, "the cutover is over", func(ctx context.Context) (bool, string, error) {
		st, err := f.Status(ctx, primary)
		return err == nil && st.Closing == nil && st.Follow != nil, fmt.Sprint(st.Closing), nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := plainQuery(t, ctx, source, "SELECT COUNT(*) FROM performance_schema.persisted_variables WHERE variable_name = 'super_read_only'"); got != "0" {
		t.Error("the source is closed once it restarts, though the cutover was called off")
	}
}

// goesOnFromClosed: a source that somebody else has closed in the middle of a cutover is left closed, and the cluster
// takes over when an operator says so.
func (f *fixture) goesOnFromClosed(t *testing.T, ctx context.Context, source *mysqldtest.Plain, follow []string) {
	t.Helper()
	plainDo(t, ctx, source, "RESET PERSIST IF EXISTS super_read_only", "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
	f.must(t, ctx, 0, append(follow, "--force")...)
	f.awaitNear(t, ctx)
	primary, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := f.admin(t, primary).Conn(ctx)
	if err == nil {
		_, err = conn.ExecContext(ctx, "LOCK TABLES shop0.locked READ") // of lockedAt
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	plainDo(t, ctx, source, "INSERT INTO shop0.locked VALUES (1)") // which cannot be written here
	var said strings.Builder
	cut := exec.CommandContext(ctx, os.Getenv(binaryVariable), "cutover", "--within", "4s", "--config", f.ConfigPath(primary))
	cut.Stdout, cut.Stderr = &said, &said
	if err := cut.Start(); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, "the source is closed", func(context.Context) (bool, string, error) {
		return plainQuery(t, ctx, source, "SELECT @@GLOBAL.super_read_only") == "1", "", nil
	}); err != nil {
		t.Fatal(err)
	}
	plainDo(t, ctx, source, "SET GLOBAL super_read_only = ON")
	const left = "the source is left closed: root has set super_read_only or read_only since"
	if err := cut.Wait(); exitCode(err) != 1 || !strings.Contains(said.String(), left) {
		t.Errorf("the cutover: %v: %q, want %s", err, said.String(), left)
	}
	if _, err := conn.ExecContext(ctx, "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	f.awaitNear(t, ctx)
	f.refused(t, ctx, primary, []int{1}, "If it should stay closed, use --source-closed", "cutover")
	f.awaitTold(t, ctx, primary, 0, "IS LEFT CLOSED, so nobody writes: root has set")
	f.must(t, ctx, 0, "cutover", "--source-closed", "--force")
	here := f.start(t, 1)
	here.awaitAcks(t, ctx, 10)
	here.stop(t)
	var rows string
	if err := f.admin(t, primary).QueryRowContext(ctx, "SELECT COUNT(*) FROM shop0.locked").Scan(&rows); err != nil || rows != "1" {
		t.Errorf("%s rows of the source are here, %v", rows, err)
	}
	if got := plainQuery(t, ctx, source, "SELECT @@GLOBAL.super_read_only"); got != "1" {
		t.Error("the source is open after the cutover")
	}
}

// lockedAt locks an unused table at a server, so that the server cannot be closed for writes.
func lockedAt(t *testing.T, ctx context.Context, p *mysqldtest.Plain) (unlock func()) {
	t.Helper()
	db, err := sql.Open("mysql", p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1) // one session
	for _, q := range []string{"CREATE TABLE shop0.locked (id INT PRIMARY KEY)", "LOCK TABLES shop0.locked WRITE"} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	return func() { _ = db.Close() } // a second call does nothing
}

// holdsSource fails the test unless each node has all transactions and rows of the source.
func (f *fixture) holdsSource(t *testing.T, ctx context.Context, source *mysqldtest.Plain) {
	t.Helper()
	want := holdingOf(t, ctx, source)
	for i := range f.Len() {
		f.holdsAdopted(t, ctx, i, want)
		for n := range 3 {
			table := fmt.Sprintf("shop0.large%d", n)
			sum := "SELECT CONCAT(COUNT(*), ' ', SUM(w), ' ', SUM(CRC32(CONCAT(id, v)))) FROM " + table
			var got string
			if err := f.admin(t, i).QueryRowContext(ctx, sum).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if want := plainQuery(t, ctx, source, sum); got != want {
				t.Errorf("node %s has %s in %s, the source %s", f.Name(i), got, table, want)
			}
		}
	}
}

// purgedSource: a server that has purged transactions which the cluster lacks is not followed.
func (f *fixture) purgedSource(t *testing.T, ctx context.Context) {
	t.Helper()
	source := f.plainServer(t, ctx, "purged")
	plainDo(t, ctx, source, "CREATE USER fol@'%' IDENTIFIED BY 'secret'", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO fol@'%'",
		"CREATE DATABASE x", "FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
	follow := []string{"follow", "127.0.0.1:" + plainQuery(t, ctx, source, "SELECT @@port"), "--user", "fol", "--password-file", filepath.Join(f.Dir(), "source.password"), "--force"}
	f.refused(t, ctx, 0, []int{1}, "nothing was done: these checks fail: purged;", follow...)
	if out, err := f.quorate(t, ctx, 0, append(follow, "--check")...); err == nil || !strings.Contains(out, "it has purged ") {
		t.Errorf("follow --check: %v: %s", err, out)
	}
}
