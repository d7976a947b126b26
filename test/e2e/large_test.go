package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/devcluster"
)

// TestLarge writes transactions that are too large for an entry and travel
// beside Raft, while others write small ones: what is before a large one in the
// binlog goes on, no election starts, every node has every row, and the log of
// every node holds the transaction.
func TestLarge(t *testing.T) {
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "Rows", func(t *testing.T, ctx context.Context) {
		f.large(t, ctx, "many_rows", largeRows(64<<20))
	})
	f.scenario(t, "OneRow", func(t *testing.T, ctx context.Context) {
		f.large(t, ctx, "one_row", "INSERT INTO %s VALUES (1, REPEAT('x', 64 << 20))")
	})
	f.scenario(t, "Compressed", func(t *testing.T, ctx context.Context) {
		f.compress(t, ctx, "ON")
		defer f.compress(t, ctx, "OFF")
		f.large(t, ctx, "compressed", largeRows(64<<20))
	})
	f.scenario(t, "XA", func(t *testing.T, ctx context.Context) {
		f.large(t, ctx, "xa", "XA START 'large'", largeRows(20<<20), "XA END 'large'", "XA PREPARE 'large'", "XA COMMIT 'large'")
	})
	f.scenario(t, "LostPrimary", f.largeLostPrimary)
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

// large runs the statements in one session beside writers of small ones.
func (f *fixture) large(t *testing.T, ctx context.Context, name string, statements ...string) {
	primary := f.heal(t, ctx)
	before := f.status(t, ctx, primary)
	db := f.local(t, primary)
	table := f.largeTable(t, ctx, db, name)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 10)
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if strings.Contains(s, "%s") {
			s = fmt.Sprintf(s, table)
		}
		if _, err := conn.ExecContext(ctx, s); err != nil {
			t.Fatalf("%.60s: %v", s, err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 10)
	load.stop(t)
	after := f.status(t, ctx, primary)
	if after.MysqldPID != before.MysqldPID || after.Term != before.Term {
		t.Fatalf("a large transaction ended the epoch: %+v, was %+v", after, before)
	}
	f.check(t, ctx)
	f.sameEverywhere(t, ctx, table)
	f.noStagesLeft(t, ctx)
}

// sameEverywhere compares a table's rows on all nodes; there must be some.
func (f *fixture) sameEverywhere(t *testing.T, ctx context.Context, table string) {
	t.Helper()
	f.heal(t, ctx)
	want := ""
	for i := range f.Len() {
		var sum string
		if err := f.local(t, i).QueryRowContext(ctx,
			"SELECT CONCAT(COUNT(*), ' rows ', IFNULL(SUM(LENGTH(b)), 0), ' bytes ', BIT_XOR(CRC32(CONCAT(id, SHA2(b, 256))))) FROM "+table).Scan(&sum); err != nil {
			t.Fatalf("node %s: %v", f.Name(i), err)
		}
		if i == 0 {
			want = sum
			t.Log(table, sum)
		}
		if sum != want || strings.HasPrefix(sum, "0 ") {
			t.Errorf("node %s has %s of %s, node %s has %s", f.Name(i), sum, table, f.Name(0), want)
		}
	}
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

// largeLostPrimary: the primary dies while it sends a large transaction. Nobody
// was told OK; the transaction is nowhere, or everywhere.
func (f *fixture) largeLostPrimary(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	table := f.largeTable(t, ctx, f.local(t, primary), "lost_primary")
	seed := fmt.Sprintf("INSERT INTO %s VALUES (0, 'seed')", table)
	if _, err := f.local(t, primary).ExecContext(ctx, seed); err != nil {
		t.Fatal(err)
	}
	// Without a majority the stage is written, and cannot be named.
	f.pause(t, ctx, f.others(primary)...)
	told := make(chan error, 1)
	go func() {
		_, err := f.local(t, primary).ExecContext(ctx, fmt.Sprintf(largeRows(32<<20), table))
		told <- err
	}()
	f.awaitWaiting(t, ctx, primary)
	if err := f.KillAgent(primary); err != nil {
		t.Fatal(err)
	}
	f.resume(t, f.others(primary)...)
	if err := <-told; err == nil {
		t.Error("a transaction that no majority had was acknowledged")
	}
	f.sameEverywhere(t, ctx, table)
	f.noStagesLeft(t, ctx)
}

// largeMissedStage: a node that was down while a large transaction was written
// fetches it from the others, also when its primary is gone.
func (f *fixture) largeMissedStage(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	missing := f.others(primary)[0]
	table := f.largeTable(t, ctx, f.local(t, primary), "missed_stage")
	if err := f.KillAgent(missing); err != nil {
		t.Fatal(err)
	}
	if _, err := f.local(t, primary).ExecContext(ctx, fmt.Sprintf(largeRows(32<<20), table)); err != nil {
		t.Fatal(err)
	}
	f.sameEverywhere(t, ctx, table)
	f.noStagesLeft(t, ctx)
}
