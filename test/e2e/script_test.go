package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// scriptDatabase is where the scripts create their tables.
const scriptDatabase = "quorate_scripts"

// rowsPerScript is how many rows a whole script leaves in its table.
const rowsPerScript = 3

// statements of one mysqldump-like script. Many of them change nothing, so
// InnoDB keeps no trace of their GTIDs (the prefix rule). If they ran again out of
// order, the DROP would destroy acknowledged rows.
func statements(round int) []string {
	table := fmt.Sprintf("%s.dump_%d", scriptDatabase, round)
	s := []string{
		"DROP TABLE IF EXISTS " + table,
		"CREATE TABLE " + table + " (id INT PRIMARY KEY, note VARCHAR(40) NOT NULL)",
		"DROP USER IF EXISTS nobody_at_all",
		"BEGIN", "COMMIT",
	}
	for id := 1; id <= rowsPerScript; id++ {
		s = append(s, fmt.Sprintf("INSERT INTO %s VALUES (%d, 'round %d')", table, id, round))
		s = append(s, "CREATE TABLE IF NOT EXISTS "+table+" (id INT)", "FLUSH PRIVILEGES",
			fmt.Sprintf("DROP TABLE IF EXISTS %s.never_there", scriptDatabase))
	}
	return append(s, "CREATE DATABASE IF NOT EXISTS "+scriptDatabase, "DROP USER IF EXISTS nobody_at_all")
}

// script is one writer of scripts: a round at a time, each with a table of its
// own. A round whose connection breaks is left as it is.
type script struct {
	mu sync.Mutex
	// rows holds, per round whose CREATE was acknowledged, the acknowledged
	// inserts.
	rows map[int]int
	// whole counts the rounds of which every statement was acknowledged.
	whole int
}

// run writes rounds until ctx is done.
func (s *script) run(ctx context.Context, db *sql.DB) {
	for round := 0; ctx.Err() == nil; round++ {
		conn, err := db.Conn(ctx)
		if err != nil {
			select { // the agent may be down: do not spin
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		// The round under way is finished, whatever happens to ctx.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), scenarioTimeout)
		s.round(whole, conn, round)
		cancel()
		_ = conn.Close()
	}
}

func (s *script) round(ctx context.Context, conn *sql.Conn, round int) {
	for _, stmt := range statements(round) {
		if _, err := conn.ExecContext(ctx, stmt); err != nil {
			return
		}
		s.mu.Lock()
		switch {
		case strings.HasPrefix(stmt, "CREATE TABLE "+scriptDatabase):
			s.rows[round] = 0
		case strings.HasPrefix(stmt, "INSERT"):
			s.rows[round]++
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole++
}

func (s *script) rounds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole
}

// TestPrefixRule runs dump-like scripts between and during kills. Every table
// and row that was acknowledged is there on every node afterwards, and all
// have the same gtid_executed.
func TestPrefixRule(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "Scripts", f.scripts)
}

func (f *fixture) scripts(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	if err := f.CreateApplication(ctx, primary, scriptDatabase); err != nil {
		t.Fatal(err)
	}
	dba := f.local(t, primary)
	for _, stmt := range []string{
		"CREATE USER script@'%' IDENTIFIED BY 'Scripts-1'",
		"GRANT ALL ON " + scriptDatabase + ".* TO script@'%'",
		"GRANT CREATE USER ON *.* TO script@'%'",
		"GRANT FLUSH_PRIVILEGES ON *.* TO script@'%'",
	} {
		if _, err := dba.ExecContext(ctx, stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	db := openDSN(t, fmt.Sprintf("script:Scripts-1@tcp(%s)/", f.RouterAddr(f.others(primary)[0])), nil)
	s := &script{rows: map[int]int{}}
	writing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.run(writing, db) })
	defer wg.Wait()
	defer stop()
	for _, kill := range []func(int) error{f.KillBoth, f.KillMysqld, f.KillBoth, f.killAll} {
		s.awaitRounds(t, ctx, 3)
		primary, err := f.WaitPrimary(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := kill(primary); err != nil {
			t.Fatal(err)
		}
		f.heal(t, ctx)
	}
	s.awaitRounds(t, ctx, 3)
	stop()
	wg.Wait()
	f.check(t, ctx) // waits for equal gtid_executed
	f.checkScripts(t, ctx, s)
	f.mustHaveFilledHoles(t)
}

// mustHaveFilledHoles looks in the agents' logs for the no-ops that a restarted
// node declared done. Without any of them the kills have not tested the rule.
func (f *fixture) mustHaveFilledHoles(t *testing.T) {
	t.Helper()
	filled := regexp.MustCompile(`no_ops="?[0-9a-f]{8}-`)
	n := 0
	for i := range f.Len() {
		text, err := os.ReadFile(f.Logs(i))
		if err != nil {
			t.Fatal(err)
		}
		n += len(filled.FindAll(text, -1))
	}
	if n == 0 {
		t.Error("no restarted node had holes in its gtid_executed: the test has tested nothing")
	}
	t.Logf("restarted nodes filled the holes in their gtid_executed %d times", n)
}

// killAll ends all processes, whoever the primary is.
func (f *fixture) killAll(int) error {
	for i := range f.Len() {
		if err := f.KillBoth(i); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) awaitRounds(t *testing.T, ctx context.Context, n int) {
	t.Helper()
	want := s.rounds() + n
	if err := devcluster.Poll(ctx, fmt.Sprintf("%d whole scripts have run", want), func(context.Context) (bool, string, error) {
		n := s.rounds()
		return n >= want, fmt.Sprintf("%d have", n), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// checkScripts compares the nodes with each other, and with every table and row
// that was acknowledged.
func (f *fixture) checkScripts(t *testing.T, ctx context.Context, s *script) {
	t.Helper()
	first := f.scriptTables(t, ctx, 0)
	for _, i := range f.others(0) {
		if d := cmp.Diff(first, f.scriptTables(t, ctx, i)); d != "" {
			t.Errorf("tables differ (-%s +%s):\n%s", f.Name(0), f.Name(i), d)
		}
	}
	for round, acked := range s.rows {
		notes, ok := first[fmt.Sprintf("dump_%d", round)]
		switch {
		case !ok:
			t.Errorf("the table of script %d is lost", round)
		case len(notes) < acked:
			t.Errorf("script %d has %d of its %d acknowledged rows", round, len(notes), acked)
		}
		for _, note := range notes {
			if note != fmt.Sprintf("round %d", round) {
				t.Errorf("script %d has a row %q", round, note)
			}
		}
	}
	t.Logf("%d tables, %d of them acknowledged, %d scripts ran to their end", len(first), len(s.rows), s.whole)
}

// scriptTables returns the notes in each table of the scripts, by id.
func (f *fixture) scriptTables(t *testing.T, ctx context.Context, i int) map[string][]string {
	t.Helper()
	db := f.local(t, i)
	tables := map[string][]string{}
	for _, name := range queryStrings(t, ctx, db, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = '"+scriptDatabase+"'") {
		tables[name] = queryStrings(t, ctx, db, fmt.Sprintf("SELECT note FROM %s.%s ORDER BY id", scriptDatabase, name))
	}
	return tables
}

func queryStrings(t *testing.T, ctx context.Context, db *sql.DB, query string) (found []string) {
	t.Helper()
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		found = append(found, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return found
}
