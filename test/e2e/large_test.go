package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// largeAll writes transactions that are too large for an entry and travel
// beside Raft, while others write small ones. Transactions before a large one in the
// binlog go on, no election starts, every node has every row, the log of every
// node holds the transaction, and no stage is left beside the log.
func (f *fixture) largeAll(t *testing.T, _ context.Context) {
	f.scenario(t, "Rows", func(t *testing.T, ctx context.Context) {
		f.large(t, ctx, "many_rows", "BEGIN", largeRows(64<<20), "COMMIT")
	})
	f.scenario(t, "OneRow", func(t *testing.T, ctx context.Context) {
		f.large(t, ctx, "one_row", "BEGIN", "INSERT INTO %s VALUES (1, REPEAT('x', 64 << 20))", "COMMIT")
	})
	f.scenario(t, "Compressed", func(t *testing.T, ctx context.Context) {
		f.compress(t, ctx, "ON")
		defer f.compress(t, ctx, "OFF")
		f.large(t, ctx, "compressed", "BEGIN", largeRows(64<<20), "COMMIT")
	})
	f.scenario(t, "XA", func(t *testing.T, ctx context.Context) {
		f.large(t, ctx, "xa", "XA START 'large'", largeRows(20<<20), "XA END 'large'", "XA PREPARE 'large'")
	})
}

// TestLargeInterrupted: a transaction is staged, and its primary is lost, or its client goes, or a node misses it.
func TestLargeInterrupted(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.think = busy
	f.scenario(t, "LostPrimary", f.largeLostPrimary)
	f.scenario(t, "Abandoned", f.largeAbandoned)
	f.scenario(t, "MissedStage", f.largeMissedStage)
}

// largeRows is a statement that inserts rows of 64 KiB, of the given length in
// all. They are random hexadecimal digits, which compress to a half.
func largeRows(bytes int) string {
	const rowBytes, randomBytes = 64 << 10, 1024 // RANDOM_BYTES gives no more
	parts := make([]string, rowBytes/randomBytes/2)
	for i := range parts {
		parts[i] = fmt.Sprintf("HEX(RANDOM_BYTES(%d))", randomBytes)
	}
	return fmt.Sprintf("INSERT /*+ SET_VAR(cte_max_recursion_depth = 1000000) */ INTO %%s WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "+
		"SELECT i, CONCAT(%s) FROM n", bytes/rowBytes, strings.Join(parts, ", "))
}

// compress switches binlog_transaction_compression for sessions to come.
func (f *fixture) compress(t *testing.T, ctx context.Context, value string) {
	t.Helper()
	if _, err := f.admin(t, f.heal(t, ctx)).ExecContext(ctx, "SET GLOBAL binlog_transaction_compression = "+value); err != nil {
		t.Fatal(err)
	}
}

// largeTable makes a table for one scenario and returns its name.
func (f *fixture) largeTable(t *testing.T, ctx context.Context, db *sql.DB, name string) string {
	t.Helper()
	table := "quorate_large." + name
	for _, q := range []string{"CREATE DATABASE IF NOT EXISTS quorate_large",
		"CREATE TABLE " + table + " (id INT PRIMARY KEY, b LONGBLOB)"} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	return table
}

// large runs the statements, of which the last makes the transaction, in one
// session beside writers of small ones.
func (f *fixture) large(t *testing.T, ctx context.Context, name string, statements ...string) {
	primary := f.heal(t, ctx)
	before, logged := f.status(t, ctx, primary), f.elections(t)
	db := f.local(t, primary)
	table := f.largeTable(t, ctx, db, name)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 10)
	small := f.startSmall(t, ctx, primary)
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var began time.Time
	for n, s := range statements {
		if strings.Contains(s, "%s") {
			s = fmt.Sprintf(s, table)
		}
		if n == len(statements)-1 {
			small.awaitWaiting(t, ctx)
		}
		began = time.Now()
		if _, err := conn.ExecContext(ctx, s); err != nil {
			t.Fatalf("%.60s: %v", s, err)
		}
	}
	commit := timedCommit{began: began, ended: time.Now(), gtid: lastGTID(t, ctx, conn)}
	load.awaitAcks(t, ctx, 10)
	small.compare(t, commit)
	if xid, prepared := strings.CutPrefix(statements[len(statements)-1], "XA PREPARE"); prepared {
		if _, err := conn.ExecContext(ctx, "XA COMMIT"+xid); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	load.stop(t)
	after := f.status(t, ctx, primary)
	if after.MysqldPID != before.MysqldPID || after.Term != before.Term {
		t.Fatalf("a large transaction ended the epoch: %+v, was %+v", after, before)
	}
	if now := f.elections(t); now != logged {
		t.Fatalf("the agents logged %d changes of Raft's term or leader", now-logged)
	}
	f.check(t, ctx)
	f.sameEverywhere(t, ctx, table)
	f.inEveryLog(t, ctx, commit.gtid)
	f.noStagesLeft(t, ctx)
}

// inEveryLog wants a segment of every node's log to be the staged transaction.
func (f *fixture) inEveryLog(t *testing.T, ctx context.Context, gtid int64) {
	t.Helper()
	for i := range f.Len() {
		out, err := exec.CommandContext(ctx, os.Getenv(binaryVariable), "log", "ls", "--json", "--dir", f.DataDir(i)+"/log").Output()
		if err != nil {
			t.Fatal(err)
		}
		var log struct {
			Segments []struct{ State, GTIDs string }
		}
		if err := json.Unmarshal(out, &log); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, s := range log.Segments {
			found = found || s.State == "staged" && strings.HasSuffix(s.GTIDs, fmt.Sprintf(":%d", gtid))
		}
		if !found {
			t.Errorf("the log of node %s has no staged transaction %d: %s", f.Name(i), gtid, out)
		}
	}
}

// elections counts how often the agents said that Raft's term or leader changed.
func (f *fixture) elections(t *testing.T) (n int) {
	t.Helper()
	for i := range f.Len() {
		text, err := os.ReadFile(f.Logs(i))
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(string(text), " msg=raft ")
	}
	return n
}

// timedCommit is one transaction as its client saw it.
type timedCommit struct {
	session      int64
	began, ended time.Time
	gtid         int64 // its number: one primary's are in the order of its binlog
}

// lastGTID returns the number of the session's last transaction.
func lastGTID(t *testing.T, ctx context.Context, conn *sql.Conn) (n int64) {
	t.Helper()
	// A prepared XA transaction is still current.
	if err := conn.QueryRowContext(ctx, `SELECT SUBSTRING_INDEX(GTID, ':', -1) FROM
		(TABLE performance_schema.events_transactions_current UNION ALL TABLE performance_schema.events_transactions_history) all_of
		WHERE THREAD_ID = PS_CURRENT_THREAD_ID() AND GTID LIKE '%:%' ORDER BY EVENT_ID DESC LIMIT 1`).Scan(&n); err != nil {
		t.Errorf("read the last GTID: %v", err)
	}
	return n
}

// smallWriters commit one row at a time and remember when.
type smallWriters struct {
	db      *sql.DB
	cancel  context.CancelFunc
	running sync.WaitGroup
	// waiting are the sessions that waited for an ACK when they were asked for,
	// just before the large transaction's last statement was sent.
	waiting []int64
	asked   time.Time

	mu       sync.Mutex
	sessions []int64
	commits  []timedCommit
}

func (f *fixture) startSmall(t *testing.T, ctx context.Context, primary int) *smallWriters {
	t.Helper()
	db := f.admin(t, primary) // who may read performance_schema
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS quorate_large.small (id INT AUTO_INCREMENT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &smallWriters{db: db, cancel: cancel}
	for range 4 {
		w.running.Go(func() { w.run(t, ctx) })
	}
	t.Cleanup(w.stop)
	return w
}

// run ends after the commit under way.
func (w *smallWriters) run(t *testing.T, ctx context.Context) {
	inside := context.WithoutCancel(ctx)
	conn, err := w.db.Conn(inside)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	var session int64
	if err := conn.QueryRowContext(inside, "SELECT CONNECTION_ID()").Scan(&session); err != nil {
		t.Error(err)
		return
	}
	w.mu.Lock()
	w.sessions = append(w.sessions, session)
	w.mu.Unlock()
	for ctx.Err() == nil && !t.Failed() {
		c := timedCommit{session: session, began: time.Now()}
		if _, err := conn.ExecContext(inside, "INSERT INTO quorate_large.small VALUES ()"); err != nil {
			t.Error(err)
			return
		}
		c.ended = time.Now()
		c.gtid = lastGTID(t, inside, conn)
		w.mu.Lock()
		w.commits = append(w.commits, c)
		w.mu.Unlock()
	}
}

func (w *smallWriters) stop() {
	w.cancel()
	w.running.Wait()
}

// awaitWaiting waits until one of them waits for an ACK.
func (w *smallWriters) awaitWaiting(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := devcluster.Poll(ctx, "a small commit waits for its ACK", func(ctx context.Context) (bool, string, error) {
		w.asked = time.Now()
		rows, err := w.db.QueryContext(ctx, "SELECT ID FROM performance_schema.processlist WHERE STATE LIKE 'Waiting for semi-sync ACK%'")
		if err != nil {
			return false, "", err
		}
		defer rows.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return false, "", err
			}
			if slices.Contains(w.sessions, id) {
				w.waiting = append(w.waiting, id)
			}
		}
		return len(w.waiting) > 0, "none does", rows.Err()
	}); err != nil {
		t.Fatal(err)
	}
}

// compare judges the small commits by their places in the binlog. Commits that
// waited already when the large one began to commit must pass: if the large one held them up, they
// would end together with it. For the other commits before it this does not hold: if
// the server flushes a commit in one group with the large one, it acknowledges both together.
func (w *smallWriters) compare(t *testing.T, large timedCommit) {
	t.Helper()
	w.stop()
	took := large.ended.Sub(large.began)
	var ahead, behind time.Duration
	for _, c := range w.commits {
		switch {
		case c.gtid > large.gtid:
			behind = max(behind, c.ended.Sub(c.began))
		case c.began.Before(w.asked) && c.ended.After(large.began) && slices.Contains(w.waiting, c.session):
			ahead = max(ahead, c.ended.Sub(large.began))
		}
	}
	t.Logf("the large commit took %v; what waited before took %v more, the longest behind it %v", took, ahead, behind)
	if took-ahead < min(took/4, 50*time.Millisecond) { // held up, they end together
		t.Errorf("what is before the large transaction in the binlog waited with it")
	}
	if behind == 0 {
		t.Error("no small commit came behind the large one: the test has tested nothing")
	}
}

// sameEverywhere compares a table's rows on all nodes; there must be some.
func (f *fixture) sameEverywhere(t *testing.T, ctx context.Context, table string) {
	t.Helper()
	committed := f.status(t, ctx, f.heal(t, ctx)).LogCommit
	want := ""
	for i := range f.Len() {
		if err := f.WaitCaughtUp(ctx, i, committed); err != nil {
			t.Fatal(err)
		}
		sum := f.rows(t, ctx, i, table)
		if i == 0 {
			want = sum
			t.Log(table, sum)
		}
		if sum != want || strings.HasPrefix(sum, "0 ") {
			t.Errorf("node %s has %s of %s, node %s has %s", f.Name(i), sum, table, f.Name(0), want)
		}
	}
}

// rows says what a table on node i holds.
func (f *fixture) rows(t *testing.T, ctx context.Context, i int, table string) (sum string) {
	t.Helper()
	if err := f.local(t, i).QueryRowContext(ctx,
		"SELECT CONCAT(COUNT(*), ' rows ', IFNULL(SUM(LENGTH(b)), 0), ' bytes ', BIT_XOR(CRC32(CONCAT(id, SHA2(b, 256))))) FROM "+table).Scan(&sum); err != nil {
		t.Fatalf("node %s: %v", f.Name(i), err)
	}
	return sum
}

// noStagesLeft waits until no node has a stage beside its log.
func (f *fixture) noStagesLeft(t *testing.T, ctx context.Context) {
	t.Helper()
	err := devcluster.Poll(ctx, "stages are in the log, or gone", func(context.Context) (bool, string, error) {
		for i := range f.Len() {
			files, err := os.ReadDir(f.DataDir(i) + "/log")
			if err != nil {
				return false, "", err
			}
			for _, file := range files {
				if strings.HasPrefix(file.Name(), "stage.") {
					return false, f.Name(i) + " has " + file.Name(), nil
				}
			}
		}
		return true, "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitStage waits until node i has begun a stage.
func (f *fixture) awaitStage(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	if err := devcluster.Poll(ctx, f.Name(i)+" has a stage", func(context.Context) (bool, string, error) {
		found, err := filepath.Glob(f.DataDir(i) + "/log/stage.*")
		return len(found) > 0, "it has none", err
	}); err != nil {
		t.Fatal(err)
	}
}

// seeded makes a table of one row, and returns a statement with more.
func (f *fixture) seeded(t *testing.T, ctx context.Context, primary int, name string) (table, insert string) {
	t.Helper()
	db := f.local(t, primary)
	table = f.largeTable(t, ctx, db, name)
	if _, err := db.ExecContext(ctx, "INSERT INTO "+table+" VALUES (0, 'seed')"); err != nil {
		t.Fatal(err)
	}
	return table, fmt.Sprintf(largeRows(32<<20), table)
}

// largeLostPrimary: the primary dies with a large transaction that no majority
// has. The client got no OK, and no node has the transaction.
func (f *fixture) largeLostPrimary(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	table, insert := f.seeded(t, ctx, primary, "lost_primary")
	db := f.local(t, primary)
	// Without a majority the stage is written, and cannot be named.
	f.pause(t, ctx, f.others(primary)...)
	told := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, insert)
		told <- err
	}()
	f.awaitStage(t, ctx, primary)
	f.awaitWaiting(t, ctx, primary)
	if err := f.KillAgent(primary); err != nil {
		t.Fatal(err)
	}
	f.resume(t, f.others(primary)...)
	if err := <-told; err == nil {
		t.Error("a transaction that no majority had was acknowledged")
	}
	f.sameEverywhere(t, ctx, table)
	if sum := f.rows(t, ctx, primary, table); !strings.HasPrefix(sum, "1 rows") {
		t.Errorf("%s has %s: no other node could have got it", table, sum)
	}
	f.noStagesLeft(t, ctx)
}

// largeAbandoned: the primary dies while its peers receive a stage. They remove
// their parts of it. Then no node has the transaction; but if it was named just
// before, all nodes have it.
func (f *fixture) largeAbandoned(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	table, insert := f.seeded(t, ctx, primary, "abandoned")
	db := f.local(t, primary)
	told := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, insert)
		told <- err
	}()
	f.awaitStage(t, ctx, f.others(primary)[0])
	if err := f.KillAgent(primary); err != nil {
		t.Fatal(err)
	}
	err := <-told
	f.sameEverywhere(t, ctx, table)
	if sum := f.rows(t, ctx, primary, table); err == nil && strings.HasPrefix(sum, "1 rows") {
		t.Errorf("%s lost what was acknowledged: it has %s", table, sum)
	}
	f.noStagesLeft(t, ctx)
}

// largeMissedStage: a node that was down while a large transaction was written
// fetches it from the node that has it, although its primary is gone.
func (f *fixture) largeMissedStage(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	missing := f.others(primary)[0]
	table, insert := f.seeded(t, ctx, primary, "missed_stage")
	if err := f.KillAgent(missing); err != nil {
		t.Fatal(err)
	}
	if _, err := f.local(t, primary).ExecContext(ctx, insert); err != nil {
		t.Fatal(err)
	}
	if err := f.KillAgent(primary); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, missing); err != nil {
		t.Fatal(err)
	}
	next, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WaitCaughtUp(ctx, missing, f.status(t, ctx, next).LogCommit); err != nil {
		t.Fatal(err)
	}
	if got, want := f.rows(t, ctx, missing, table), f.rows(t, ctx, next, table); got != want || strings.HasPrefix(got, "1 rows") {
		t.Errorf("without the primary of then, node %s has %s of %s, node %s has %s", f.Name(missing), got, table, f.Name(next), want)
	}
	f.sameEverywhere(t, ctx, table)
	f.noStagesLeft(t, ctx)
}
