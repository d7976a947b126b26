//go:build large

package large

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

const (
	// residentBytesMax is what an agent may have in memory at any time.
	residentBytesMax = 256 << 20
	// memoryLimit is Go's limit for what it manages itself: the program's text
	// and the kernel's share are not in it.
	memoryLimit = "GOMEMLIMIT=200MiB"
	// caseTimeout bounds one case. The longest is 4 GiB, which a replica applies
	// at some 20 MiB/s where three of them share one disk.
	caseTimeout = 40 * time.Minute
)

// largeCase is one large transaction.
type largeCase struct {
	name  string
	bytes int64
	// oneRow: all of it is one value.
	oneRow     bool
	compressed bool
	// absent: a follower is down meanwhile and has to fetch the stage.
	absent bool
}

func cases() []largeCase {
	return []largeCase{
		{name: "Rows1GiB", bytes: 1 << 30},
		{name: "Compressed1GiB", bytes: 1 << 30, compressed: true},
		{name: "OneRow256MiB", bytes: 256 << 20, oneRow: true},
		{name: "Absent1GiB", bytes: 1 << 30, absent: true},
		// Positions in its binlog do not fit into 32 bits.
		{name: "Rows4GiB", bytes: 4<<30 + 64<<20},
	}
}

// TestLarge runs all cases and prints a table.
func TestLarge(t *testing.T) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "transaction\tstatement\tCOMMIT\tall nodes\tlongest small commit\tagents' peak MiB\t")
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			r := c.run(t)
			fmt.Fprintf(w, "%s\t%.1fs\t%.1fs\t%.1fs\t%.1fs\t%s\t\n", c.name, r.statement.Seconds(),
				r.commit.Seconds(), r.everywhere.Seconds(), r.small.Seconds(), strings.Join(r.peaks, " "))
		})
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
}

// figures are what one case gave.
type figures struct {
	// statement and commit are the client's waits, everywhere is the time from
	// then on until every mysqld has the transaction.
	statement, commit, everywhere time.Duration
	// small is the longest commit of the writer beside it.
	small time.Duration
	// peaks are each agent's highest resident memory in MiB.
	peaks []string
}

// run puts the transaction through a new cluster.
func (c largeCase) run(t *testing.T) (r figures) {
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	t.Cleanup(cancel)
	f := newFixture(t, ctx)
	primary := f.ready(t, ctx)
	f.fillCaches(t, ctx, primary)
	absent := (primary + 1) % f.Len()
	if c.absent {
		if err := f.KillAgent(absent); err != nil {
			t.Fatal(err)
		}
	}
	term, elections := f.term(t, ctx, primary), f.elections(t)
	small := f.startSmall(t, ctx, primary)
	r.statement, r.commit = c.write(t, ctx, f, primary)
	began := time.Now()
	r.small = small.stop(t)
	if !c.absent && f.elections(t) != elections || f.term(t, ctx, primary) != term {
		t.Errorf("an election: term %d, was %d; %d changes of term or leader, were %d",
			f.term(t, ctx, primary), term, f.elections(t), elections)
	}
	if c.absent {
		if err := f.Start(ctx, absent); err != nil {
			t.Fatal(err)
		}
	}
	f.awaitEverywhere(t, ctx, primary)
	r.everywhere = time.Since(began)
	if now := f.term(t, ctx, primary); now != term {
		t.Errorf("it is term %d, was %d", now, term)
	}
	f.sameRows(t, ctx, c.bytes)
	f.noStagesLeft(t, ctx)
	for i := range f.Len() {
		peak := f.peakBytes(t, i)
		r.peaks = append(r.peaks, fmt.Sprint(peak>>20))
		if peak > residentBytesMax {
			t.Errorf("the agent of node %s had %d MiB in memory, at most %d are allowed", f.Name(i), peak>>20, residentBytesMax>>20)
		}
	}
	return r
}

// write makes the transaction and returns how long its statement and its COMMIT
// took.
func (c largeCase) write(t *testing.T, ctx context.Context, f *fixture, primary int) (statement, commit time.Duration) {
	conn, err := f.local(t, primary).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	insert := "INSERT INTO quorate_large.t " + rows(c.bytes)
	if c.oneRow {
		insert = fmt.Sprintf("INSERT INTO quorate_large.t VALUES (1, REPEAT('x', %d))", c.bytes)
	}
	if c.compressed {
		// The session's own would need a right that only the agent has.
		if _, err := f.admin(t, primary).ExecContext(ctx, "SET GLOBAL binlog_transaction_compression = ON"); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if conn, err = f.local(t, primary).Conn(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var took []time.Duration
	for _, s := range []string{"BEGIN", insert, "COMMIT"} {
		began := time.Now()
		if _, err := conn.ExecContext(ctx, s); err != nil {
			t.Fatalf("%.60s: %v", s, err)
		}
		took = append(took, time.Since(began))
	}
	return took[1], took[2]
}

// fillCaches writes what goes through Raft and stays in the agents' caches, of
// which each has 64 MiB: they belong to what is measured.
func (f *fixture) fillCaches(t *testing.T, ctx context.Context, primary int) {
	t.Helper()
	db := f.local(t, primary)
	for range 32 {
		if _, err := db.ExecContext(ctx, "INSERT INTO quorate_large.ordinary (b) SELECT b FROM ("+rows(4<<20)+") AS r (id, b)"); err != nil {
			t.Fatal(err)
		}
	}
}

// rows selects rows of 64 KiB, of the given length in all: random hexadecimal
// digits, which compress to a half.
func rows(bytes int64) string {
	const rowBytes, randomBytes = 64 << 10, 1024 // RANDOM_BYTES gives no more
	parts := make([]string, rowBytes/randomBytes/2)
	for i := range parts {
		parts[i] = fmt.Sprintf("HEX(RANDOM_BYTES(%d))", randomBytes)
	}
	return fmt.Sprintf("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "+
		"SELECT /*+ SET_VAR(cte_max_recursion_depth = 1000000) */ i, CONCAT(%s) FROM n", bytes/rowBytes, strings.Join(parts, ", "))
}
