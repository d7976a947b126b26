package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestToolbox runs tools of DBAs as docs/tools.md says. A tool that is not installed is skipped (Debian:
// percona-toolkit, mydumper, sysbench).
func TestToolbox(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.scenario(t, "Dumps", f.dumps)
	f.scenario(t, "Tools", f.tools)
}

// toolbox runs tools as ann.
type toolbox struct {
	install *install.Installation
	// host, port and readPort are where ann connects.
	host, port, readPort string
}

func (f *fixture) toolbox(t *testing.T, ctx context.Context, primary int) *toolbox {
	t.Helper()
	in, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	execAll(t, ctx, f.local(t, primary), "CREATE USER IF NOT EXISTS ann@'%' IDENTIFIED BY 'Aa1-ann' DEFAULT ROLE quorate_dba")
	b := &toolbox{install: in}
	other := f.others(primary)[0]
	if b.host, b.port, err = net.SplitHostPort(f.RouterAddr(other)); err != nil {
		t.Fatal(err)
	}
	if _, b.readPort, err = net.SplitHostPort(f.ReadAddr(other)); err != nil {
		t.Fatal(err)
	}
	return b
}

// run runs a tool at a port.
func (b *toolbox) run(t *testing.T, ctx context.Context, port, input, tool string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	login := []string{"--host=" + b.host, "--port=" + port, "--user=ann", "--password=Aa1-ann"}
	switch tool {
	case "sysbench":
		login = []string{"--db-driver=mysql", "--mysql-host=" + b.host, "--mysql-port=" + port, "--mysql-user=ann", "--mysql-password=Aa1-ann"}
	case "pt-online-schema-change", "pt-archiver", "pt-query-digest":
		login = nil // it is in the DSN
	}
	return runTool(t, ctx, b.install, login, input, tool, args...)
}

// dsn is how tools of Percona name a table.
func (b *toolbox) dsn(rest string) string {
	return fmt.Sprintf("h=%s,P=%s,u=ann,p=Aa1-ann,%s", b.host, b.port, rest)
}

// bank has rows that add up in every consistent snapshot, and only there: each balance is the sum of its entries.
type bank struct {
	transfers atomic.Int64
	stop      func()
}

const (
	bankAccounts = 5000
	bankWriters  = 4
	bankWrong    = `SELECT COUNT(*) FROM %[1]s.account a LEFT JOIN (SELECT id, SUM(amount) AS moved FROM
		(SELECT debit AS id, -amount AS amount FROM %[1]s.entry UNION ALL SELECT credit, amount FROM %[1]s.entry) e GROUP BY id) m USING (id)
		WHERE balance <> 1000 + COALESCE(moved, 0)`
)

func execAll(t *testing.T, ctx context.Context, db *sql.DB, statements ...string) {
	t.Helper()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// openBank makes the bank, and lets writers move money in it until stop.
func (b *toolbox) openBank(t *testing.T, ctx context.Context) *bank {
	t.Helper()
	db := openDSN(t, fmt.Sprintf("ann:Aa1-ann@tcp(%s:%s)/?allowNativePasswords=false", b.host, b.port), nil)
	execAll(t, ctx, db, "CREATE DATABASE bank", "CREATE TABLE bank.account (id INT PRIMARY KEY, balance INT NOT NULL, note VARCHAR(100) NOT NULL, KEY short (note), KEY long_one (note, balance))",
		"CREATE TABLE bank.entry (id BIGINT AUTO_INCREMENT PRIMARY KEY, debit INT NOT NULL, credit INT NOT NULL, amount INT NOT NULL)",
		"SET cte_max_recursion_depth = 100000",
		fmt.Sprintf("INSERT INTO bank.account WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i, 1000, SHA2(i, 256) FROM n", bankAccounts))
	ctx, cancel := context.WithCancel(ctx)
	k := &bank{}
	var writers sync.WaitGroup
	for w := range bankWriters {
		writers.Go(func() {
			for i := w; ctx.Err() == nil; i += bankWriters {
				if err := transfer(ctx, db, i*7919%(bankAccounts-1)+1, i%10+1); err != nil && ctx.Err() == nil {
					t.Errorf("transfer: %v", err)
					return
				}
				k.transfers.Add(1)
			}
		})
	}
	k.stop = func() { cancel(); writers.Wait() }
	t.Cleanup(k.stop)
	return k
}

// transfer moves amount from one account to the next, always in this order, so that two transfers never deadlock.
func transfer(ctx context.Context, db *sql.DB, account, amount int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{
		fmt.Sprintf("UPDATE bank.account SET balance = balance - %d WHERE id = %d", amount, account),
		fmt.Sprintf("UPDATE bank.account SET balance = balance + %d WHERE id = %d", amount, account+1),
		fmt.Sprintf("INSERT INTO bank.entry (debit, credit, amount) VALUES (%d, %d, %d)", account, account+1, amount),
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// underLoad dumps while transfers are committed, loads the dump, and checks the loaded data.
func (k *bank) underLoad(t *testing.T, ctx context.Context, db *sql.DB, name string, dump func() (load func())) {
	t.Helper()
	before := k.transfers.Load()
	if err := devcluster.Poll(ctx, "money is moved", func(context.Context) (bool, string, error) { return k.transfers.Load() > before+50, "", nil }); err != nil {
		t.Fatal(err)
	}
	before = k.transfers.Load()
	load := dump()
	if k.transfers.Load() == before {
		t.Error("nothing was written while it was dumped")
	}
	load()
	var wrong, accounts int
	if err := db.QueryRowContext(ctx, fmt.Sprintf(bankWrong, name)).Scan(&wrong); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name+".account").Scan(&accounts); err != nil {
		t.Fatal(err)
	}
	if wrong != 0 || accounts != bankAccounts {
		t.Errorf("%d of %d accounts are not what their entries say", wrong, accounts)
	}
}

// dumps: a dump under load is one snapshot, and can be loaded again at the clients' port.
func (f *fixture) dumps(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	b := f.toolbox(t, ctx, primary)
	k := b.openBank(t, ctx)
	db := f.local(t, primary)
	load := func(t *testing.T, name, dump string) {
		t.Helper()
		execAll(t, ctx, db, "CREATE DATABASE "+name)
		if _, errs, err := b.run(t, ctx, b.port, dump, "mysql", name); err != nil {
			t.Fatalf("load %s: %v: %s", name, err, errs)
		}
	}
	mysqldump := func(t *testing.T, port string) string {
		t.Helper()
		out, errs, err := b.run(t, ctx, port, "", "mysqldump", "--single-transaction", "--set-gtid-purged=OFF", "--routines", "--triggers", "--events", "bank")
		if err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
		return out
	}
	t.Run("mysqldump", func(t *testing.T) {
		k.underLoad(t, ctx, db, "bank_mysqldump", func() func() {
			dump := mysqldump(t, b.port)
			return func() { load(t, "bank_mysqldump", dump) }
		})
	})
	t.Run("mydumper", func(t *testing.T) {
		if _, err := exec.LookPath("mydumper"); err != nil {
			t.Skip(err)
		}
		dir := filepath.Join(t.TempDir(), "dump")
		mydumper := func(tool string, args ...string) {
			if _, errs, err := b.run(t, ctx, b.port, "", tool, args...); err != nil {
				t.Fatalf("%s: %v: %s", tool, err, errs)
			}
		}
		k.underLoad(t, ctx, db, "bank_mydumper", func() func() {
			mydumper("mydumper", "--trx-consistency-only", "--no-views", "--triggers", "--database=bank", "--outputdir="+dir)
			return func() {
				mydumper("myloader", "--enable-binlog", "--source-db=bank", "--database=bank_mydumper", "--directory="+dir)
			}
		})
	})
	k.stop()
	t.Run("AtRest", func(t *testing.T) {
		load(t, "bank_rest", mysqldump(t, b.port))
		for _, table := range []string{"account", "entry"} {
			var sums [2]sql.NullString
			for i, schema := range []string{"bank.", "bank_rest."} {
				if err := db.QueryRowContext(ctx, "CHECKSUM TABLE "+schema+table).Scan(new(string), &sums[i]); err != nil {
					t.Fatal(err)
				}
			}
			if !sums[0].Valid || sums[0] != sums[1] {
				t.Errorf("%s: dumped %v, loaded %v", table, sums[0], sums[1])
			}
		}
	})
}

// tools: the tools that work by docs/tools.md do work, and those that are refused get the text that it names. They
// use the bank.
func (f *fixture) tools(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	term := f.status(t, ctx, primary).Term
	b := f.toolbox(t, ctx, primary)
	execAll(t, ctx, f.local(t, primary), "CREATE DATABASE tools", "CREATE TABLE tools.entry_old LIKE bank.entry",
		"CREATE TABLE tools.heartbeat (ts VARCHAR(26) NOT NULL, server_id INT UNSIGNED NOT NULL PRIMARY KEY)", "CREATE TABLE tools.names (id INT PRIMARY KEY)")
	var id int
	if err := f.local(t, primary).QueryRowContext(ctx, "SELECT @@server_id").Scan(&id); err != nil {
		t.Fatal(err)
	}
	names := filepath.Join(t.TempDir(), "names.txt")
	beat := []string{"--database=tools", "--table=heartbeat"}
	osc := []string{b.dsn("D=bank,t=entry"), "--recursion-method=none", "--alter", "ADD COLUMN more INT", "--execute"}
	archive := []string{"--source", b.dsn("D=bank,t=account"), "--purge", "--where", "id <= 500", "--limit", "100", "--commit-each"}
	for _, c := range []struct {
		tool, port string
		args       []string
		// refused is a part of the tool's error; "" = the tool works. Then says is a part of its output.
		refused, says string
	}{
		{"mysqldump", b.port, []string{"--single-transaction", "--flush-logs", "bank"}, "RELOAD", ""},
		{"mysqldump", b.port, []string{"--single-transaction", "--set-gtid-purged=OFF", "--events", "--all-databases"}, "to database 'mysql' (1044)", ""},
		{"mysqldump", b.port, []string{"--set-gtid-purged=OFF", "--tab=/tmp", "bank"}, "FILE", ""},
		{"mysqldump", b.readPort, []string{"--dump-replica=2", "--set-gtid-purged=OFF", "bank"}, "REPLICATION_SLAVE_ADMIN", ""},
		{"mysqldump", b.readPort, []string{"--single-transaction", "--set-gtid-purged=OFF", "bank"}, "", "CREATE TABLE `account`"},
		{"mysqlcheck", b.port, []string{"--databases", "bank"}, "", "bank.account"},
		{"mysqlcheck", b.port, []string{"--analyze", "--all-databases"}, "INSERT command denied", ""},
		{"mysqlslap", b.port, []string{"--auto-generate-sql", "--number-of-queries=20", "--create-schema=slap"}, "", "Benchmark"},
		{"mysqlimport", b.port, []string{"--local", "tools", names}, "SESSION_VARIABLES_ADMIN", ""},
		{"mysqladmin", b.port, []string{"flush-logs"}, "RELOAD", ""},
		{"mysqladmin", b.port, []string{"flush-tables"}, "", ""},
		{"mysqladmin", b.port, []string{"shutdown"}, "SHUTDOWN", ""},
		{"pt-table-checksum", b.port, []string{"--databases=bank"}, "SESSION_VARIABLES_ADMIN", ""},
		{"pt-heartbeat", b.port, append(beat, "--update", "--run-time=1"), "", ""},
		{"pt-heartbeat", b.readPort, append(beat, "--check", "--master-server-id="+strconv.Itoa(id)), "", "."},
		{"pt-online-schema-change", b.port, osc, "", "Successfully altered"},
		{"pt-archiver", b.port, archive, "", ""},
		{"pt-kill", b.port, []string{"--match-user=nobody", "--kill", "--busy-time=1", "--run-time=1", "--interval=1"}, "", ""},
		{"pt-show-grants", b.port, nil, "", "quorate_dba"},
		{"pt-duplicate-key-checker", b.port, []string{"--databases=bank"}, "", "short is a left-prefix of long_one"},
		{"pt-query-digest", b.port, []string{"--processlist", b.dsn(""), "--run-time=1"}, "", ""},
		{"sysbench", b.port, []string{"--mysql-db=tools", "--table-size=100", "oltp_read_write", "prepare"}, "", ""},
		{"sysbench", b.port, []string{"--mysql-db=tools", "--table-size=100", "--time=1", "oltp_read_write", "run"}, "", "transactions:"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			if _, err := exec.LookPath(c.tool); err != nil && !strings.HasPrefix(c.tool, "mysql") {
				t.Skip(err)
			}
			out, errs, err := b.run(t, ctx, c.port, "", c.tool, c.args...)
			switch {
			case c.refused == "" && (err != nil || !strings.Contains(out, c.says)):
				t.Errorf("%v: %v: %.1000s\n%.1000s; want %q", c.args, err, errs, out, c.says)
			case c.refused != "" && (err == nil || !strings.Contains(errs, c.refused)):
				t.Errorf("%v: %v: %.1000s\n%.1000s; want it refused for %q", c.args, err, errs, out, c.refused)
			}
		})
	}
	if now := f.heal(t, ctx); now != primary || f.status(t, ctx, now).Term != term {
		t.Errorf("the primary is %s of term %d, it was %s of term %d", f.Name(now), f.status(t, ctx, now).Term, f.Name(primary), term)
	}
}
