package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/devcluster"
)

// largeOthersMax is how long a commit that is before a large one in the binlog
// may take. It is an fsync or two on a disk that writes three servers' copies of
// the large one at the same time; what is behind takes longer than the large one.
const largeOthersMax = 1500 * time.Millisecond

// TestLarge writes transactions that are too large for an entry and travel
// beside Raft, while others write small ones: what is before a large one in the
// binlog goes on, no election starts, every node has every row, the log of every
// node holds the transaction, and no stage stays beside it.
func TestLarge(t *testing.T) {
	f := newFixture(t, devcluster.Options{Nodes: 3})
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
	f.scenario(t, "LostPrimary", f.largeLostPrimary)
	f.scenario(t, "Abandoned", f.largeAbandoned)
	f.scenario(t, "MissedStage", f.largeMissedStage)
}

// largeRows is a statement that inserts random rows of 64 KiB, so that they do
// not compress to nothing, of the given length in all.
func largeRows(bytes int) string {
	const rowBytes = 64 << 10
	return fmt.Sprintf("INSERT /*+ SET_VAR(cte_max_recursion_depth = 1000000) */ INTO %%s WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "+
		"SELECT i, CONCAT(REPEAT(HEX(RANDOM_BYTES(512)), 32), REPEAT('y', %d)) FROM n", bytes/rowBytes, rowBytes/2)
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
	began := time.Time{}
	for _, s := range statements {
		if strings.Contains(s, "%s") {
			s = fmt.Sprintf(s, table)
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
	f.noStagesLeft(t, ctx)
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
	began, ended time.Time
	gtid         int64 // its number: one primary's are in the order of its binlog
}

// lastGTID returns the number of the session's last transaction.
func lastGTID(t *testing.T, ctx context.Context, conn *sql.Conn) (n int64) {
	t.Helper()
	if err := conn.QueryRowContext(ctx, `SELECT SUBSTRING_INDEX(GTID, ':', -1) FROM performance_schema.events_transactions_history
		WHERE THREAD_ID = PS_CURRENT_THREAD_ID() AND GTID LIKE '%:%' ORDER BY EVENT_ID DESC LIMIT 1`).Scan(&n); err != nil {
		t.Errorf("read the last GTID: %v", err)
	}
	return n
}

// smallWriters commit one row at a time and remember when.
type smallWriters struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	commits []timedCommit
}

func (f *fixture) startSmall(t *testing.T, ctx context.Context, primary int) *smallWriters {
	t.Helper()
	db := f.admin(t, primary) // who may read performance_schema
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS quorate_large.small (id INT AUTO_INCREMENT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &smallWriters{cancel: cancel}
	for range 4 {
		w.running.Go(func() { w.run(t, ctx, db) })
	}
	t.Cleanup(w.stop)
	return w
}

// run ends after the commit under way.
func (w *smallWriters) run(t *testing.T, ctx context.Context, db *sql.DB) {
	inside := context.WithoutCancel(ctx)
	conn, err := db.Conn(inside)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	for ctx.Err() == nil && !t.Failed() {
		c := timedCommit{began: time.Now()}
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

// compare holds the small commits to their places in the binlog: what is before
// the large one passes, what is behind it waits.
func (w *smallWriters) compare(t *testing.T, large timedCommit) {
	t.Helper()
	w.stop()
	var before, behind time.Duration
	beside := 0
	for _, c := range w.commits {
		took := c.ended.Sub(c.began)
		if c.gtid > large.gtid {
			behind = max(behind, took)
			continue
		}
		before = max(before, took)
		if c.ended.After(large.began) {
			beside++
		}
		if took > largeOthersMax || c.ended.After(large.ended) {
			t.Errorf("transaction %d took %v, %v after the large one, %d, which is behind it", c.gtid, took, c.ended.Sub(large.ended), large.gtid)
		}
	}
	if before == 0 || behind == 0 {
		t.Errorf("no small commits before (%v) or behind (%v) the large one: the test has tested nothing", before, behind)
	}
	t.Logf("the large commit took %v; of %d small ones the longest before it %v (%d while it was under way), behind it %v",
		large.ended.Sub(large.began), len(w.commits), before, beside, behind)
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
// has. Nobody was told OK, and it is nowhere.
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
// what they have of it; the transaction is nowhere, unless it was named just
// before, then everywhere.
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
