package following

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// pair is a source, and a server that follows it.
type pair struct {
	source, target *server
	follower       *Follower
}

// sourceBaseVariable names the MySQL of the sources; without it they have the same version as their followers.
const sourceBaseVariable = "QUORATE_SOURCE_BASE"

// newPair starts both. Like a cluster's mysqld, the target takes no other engine than InnoDB.
func newPair(t *testing.T, options ...string) *pair {
	t.Helper()
	p := &pair{
		source: newServerOf(t, os.Getenv(sourceBaseVariable), "s", options...),
		target: newServer(t, "t", "server_id=1002", "disabled_storage_engines=MyISAM,MEMORY,CSV,ARCHIVE,BLACKHOLE,MRG_MYISAM,FEDERATED"),
	}
	t.Log("the source is ", p.source.query(t, "SELECT @@version"), ", the target ", p.target.query(t, "SELECT @@version"))
	p.source.do(t, "CREATE USER rep@'%' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO rep@'%'")
	sessions, err := mysqld.FollowSessions(p.target.Socket(), "root", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sessions.Close() })
	p.follower = New(Config{
		Dial: p.source.dial("x"), Sessions: sessions, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Executed: func(ctx context.Context) (*gtid.Set, error) { return p.target.executed(t), nil },
		Withheld: func(q binlog.Query) bool { return mysqld.Bypasses(q, false) },
	})
	return p
}

// follow follows until the target has all of the source; it returns how the follower ended.
func (p *pair) follow(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.follower.Run(ctx, t.Context()) }()
	want := p.source.executed(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			if p.target.executed(t).ContainsSet(want) {
				cancel()
				return <-ended
			}
		}
	}
}

// mustFollow follows to the end, and compares.
func (p *pair) mustFollow(t *testing.T) {
	t.Helper()
	if err := p.follow(t); !errors.Is(err, context.Canceled) {
		t.Fatalf("the follower ended with %v", err)
	}
	if s, d := p.source.executed(t), p.target.executed(t); !s.Equal(d) {
		t.Errorf("the source has %v, the target %v", s, d)
	}
	rows, err := p.source.db.QueryContext(t.Context(), "SELECT CONCAT('`', table_schema, '`.`', REPLACE(table_name, '`', '``'), '`') FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema LIKE 'shop%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	tables := 0
	for ; rows.Next(); tables++ {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		for _, q := range []string{"SHOW CREATE TABLE " + name, "CHECKSUM TABLE " + name} {
			var of, s, d string
			if err := errors.Join(p.source.db.QueryRowContext(t.Context(), q).Scan(&of, &s), p.target.db.QueryRowContext(t.Context(), q).Scan(&of, &d)); err != nil || s != d {
				t.Errorf("%s: %v\n%s\n%s", q, err, s, d)
			}
		}
	}
	if err := rows.Err(); err != nil || tables == 0 {
		t.Errorf("%d tables were compared: %v", tables, err)
	}
}

// TestFollower: what a source writes arrives, with its GTIDs. A transaction that cannot be carried over ends the
// following.
func TestFollower(t *testing.T) {
	p := newPair(t, "character_set_server=latin1", "binlog_rows_query_log_events=ON")
	t.Run("Statements", p.statements)
	t.Run("Definers", p.definers)
	t.Run("Large", p.large)
	t.Run("Parallel", p.parallel)
	t.Run("Unsupported", p.unsupported)
	t.Run("Purged", p.purged)
}

func (p *pair) statements(t *testing.T) {
	p.source.do(t, "CREATE DATABASE shop", "USE shop",
		"CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200), j JSON, at TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6), KEY (v))",
		"INSERT INTO t (v, j) VALUES ('a', '{\"a\": 1}'), ('b', NULL), (0x41DF, '[]')",
		"UPDATE t SET v = CONCAT(v, 'x'), j = JSON_SET(j, '$.b', 2)", "DELETE FROM t WHERE id = 2",
		"CREATE TABLE copied SELECT * FROM t", "CREATE TABLE `a``b` LIKE t", "INSERT INTO `a``b` SELECT * FROM t")
	p.mustFollow(t)
	p.source.do(t, "SET NAMES utf8mb4, time_zone = '+05:00', sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES', timestamp = 1000000000.25",
		"USE shop", `CREATE TABLE "u" (a VARCHAR(20) DEFAULT 'é\', b TIMESTAMP NOT NULL DEFAULT '2020-01-01 05:00:00', c DATETIME DEFAULT CURRENT_TIMESTAMP)`,
		"ALTER TABLE u ADD COLUMN d DATETIME DEFAULT CURRENT_TIMESTAMP, ADD COLUMN e VARCHAR(20) AS (DATE_FORMAT(c, '%Y')) VIRTUAL",
		"INSERT INTO u (a) VALUES ('ü')", "ALTER TABLE u ADD COLUMN f DATETIME NOT NULL DEFAULT (NOW())",
		"SET foreign_key_checks = 0", "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
		"CREATE TABLE parent (id INT PRIMARY KEY)", "SET foreign_key_checks = 1", "INSERT INTO parent VALUES (1), (2)", "INSERT INTO child VALUES (1, 1), (2, 2)",
		"DELETE FROM parent WHERE id = 1",
		"CREATE TRIGGER tr BEFORE INSERT ON parent FOR EACH ROW INSERT INTO t (v) VALUES (CONCAT('by trigger ', NEW.id))", "INSERT INTO parent VALUES (7)",
		"CREATE PROCEDURE p() BEGIN SELECT 1; INSERT INTO parent VALUES (8); END", "CALL p()", "CREATE VIEW w AS SELECT * FROM t",
		"CREATE USER 'x'@'%' IDENTIFIED BY 'it''s'", "GRANT SELECT ON shop.* TO 'x'@'%'",
		"grant replication client, system_variables_admin, connection_admin, xa_recover_admin on *.* to x@'%'", "grant reload, process, lock tables on *.* to x",
		"USE mysql", "GRANT INSERT ON * TO x", "USE shop", "REVOKE INSERT ON mysql.* FROM x", "GRANT PROCESS ON *.* TO x",
		"CREATE TEMPORARY TABLE tmp (a INT)", "INSERT INTO tmp VALUES (1)", "INSERT INTO t (v) SELECT a FROM tmp", "DROP TEMPORARY TABLE tmp",
		"BEGIN", "INSERT INTO t (v) VALUES ('one')", "SAVEPOINT s", "INSERT INTO t (v) VALUES ('two')", "ROLLBACK TO s", "INSERT INTO t (v) VALUES ('three')", "COMMIT",
		"BEGIN", "UPDATE t, copied SET t.v = 'joined', copied.v = 'too' WHERE t.id = 1 AND copied.id = 3", "COMMIT",
		"SET gtid_next = '99999999-0000-0000-0000-000000000001:5'", "BEGIN", "COMMIT", "SET gtid_next = 'AUTOMATIC'",
		"FLUSH BINARY LOGS", "CREATE DATABASE shop2", "USE shop2", "CREATE TABLE z (a INT)", "DROP DATABASE shop2", "CREATE DATABASE shop2", "CREATE TABLE shop2.z (b INT)",
		"TRUNCATE TABLE shop.child", "RENAME TABLE shop.child TO shop2.child", "ANALYZE TABLE shop.t")
	p.mustFollow(t)
	if got := p.target.query(t, "SELECT COUNT(*) FROM mysql.user WHERE user = 'rep' AND repl_slave_priv = 'Y'"); got != "0" {
		t.Error("a privilege that is withheld was granted")
	}
	if got := p.target.query(t, "SELECT GROUP_CONCAT(privilege_type) FROM information_schema.user_privileges WHERE grantee = CONCAT(QUOTE('x'), '@', QUOTE('%'))"); got != "PROCESS" {
		t.Errorf("x was granted %s", got)
	}
	if p := p.follower.Progress(); p.LeftOut != 4 || p.Transactions < 30 || time.Since(p.Committed) > time.Hour {
		t.Errorf("progress: %+v", p)
	}
}

// definers: an event belongs to the account that alters it, as at the source; a schema has its name, whatever the
// character set.
func (p *pair) definers(t *testing.T) {
	p.source.do(t, "CREATE USER ev@'%' IDENTIFIED BY 'x'", "CREATE DATABASE shop5", "GRANT ALL ON shop5.* TO ev@'%'", "CREATE USER old@'%'", "CREATE DEFINER = old@'%' EVENT shop5.e ON SCHEDULE EVERY 1 YEAR STARTS '2099-01-01' DO DELETE FROM shop5.t")
	db, err := sql.Open("mysql", "ev:x@tcp("+p.source.addr+")/shop5")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range []string{"ALTER EVENT e COMMENT 'c'", "CREATE PROCEDURE q() SELECT CURRENT_USER()", "CREATE TABLE t (a VARCHAR(300))"} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	p.source.do(t, "SET NAMES utf8mb4", "CREATE DATABASE `shopbücher`", "USE `shopbücher`", "SET NAMES latin1", "INSERT INTO shop5.t VALUES ('a')",
		"CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)", "INSERT INTO shop5.t VALUES ('b')", "USE shop5", "CREATE TABLE v (a INT)",
		"SET NAMES utf8mb4", "USE `shopbücher`", "SET NAMES latin1", "CREATE TABLE u (a INT DEFAULT (7))")
	p.mustFollow(t)
	for _, q := range []string{
		"SELECT GROUP_CONCAT(definer, event_comment) FROM information_schema.events WHERE event_schema = 'shop5'",
		"SELECT GROUP_CONCAT(definer) FROM information_schema.routines WHERE routine_schema = 'shop5'",
	} {
		if s, d := p.source.query(t, q), p.target.query(t, q); s != d || !strings.HasPrefix(d, "ev@%") {
			t.Errorf("%s: %s there, %s here", q, s, d)
		}
	}
}

// large: a transaction of any size, compressed or not, with rows of any size.
func (p *pair) large(t *testing.T) {
	p.source.do(t, "CREATE DATABASE shop3", "USE shop3", "CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)", "CREATE TABLE u LIKE t",
		"SET cte_max_recursion_depth = 100000",
		"INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i, REPEAT(SHA2(i, 256), 100) FROM n",
		"INSERT INTO t VALUES (100001, REPEAT('x', 20000000))",
		"SET binlog_transaction_compression = ON",
		"BEGIN", "INSERT INTO u SELECT * FROM t", "UPDATE t SET v = CONCAT(v, 'y')", "DELETE FROM t WHERE id % 7 = 0", "COMMIT",
		"INSERT INTO u VALUES (200001, 'small')")
	p.mustFollow(t)
}

// parallel: sessions write at the same time, and some of their transactions conflict.
func (p *pair) parallel(t *testing.T) {
	p.source.do(t, "CREATE DATABASE shop4", "CREATE TABLE shop4.t (id INT PRIMARY KEY, v INT, UNIQUE (v))")
	const writers, each = 8, 100
	ended := make(chan error, writers)
	for w := range writers {
		go func() {
			for i := range each {
				id := w*each + i
				if _, err := p.source.db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO shop4.t VALUES (%d, %d) ON DUPLICATE KEY UPDATE v = -id", id, id)); err != nil {
					ended <- err
					return
				}
				_, _ = p.source.db.ExecContext(t.Context(), "UPDATE shop4.t SET v = v + 10000 WHERE id = ?", id/3)
			}
			ended <- nil
		}()
	}
	for range writers {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	p.mustFollow(t)
}

// TestSourceTextIsOneStatement: what was one statement at the source is not executed as several here. MySQL's binlog has
// some statements in UTF-8, and says that they are in the client's character set: read so, a string ends elsewhere.
func TestSourceTextIsOneStatement(t *testing.T) {
	p := newPair(t)
	p.source.do(t, "CREATE DATABASE shop", "CREATE DATABASE bank", "USE shop")
	if err := p.follow(t); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	p.source.do(t, "USE shop", "SET NAMES gbk",
		"CREATE TEMPORARY TABLE tt (c INT COMMENT '\xd6\xd0\\\\', d INT COMMENT ');SET gtid_next=AUTOMATIC;DROP DATABASE bank;/*', e INT) COMMENT '*/ -- '",
		"CREATE TABLE looted LIKE tt")
	if err := p.follow(t); err == nil || !strings.Contains(err.Error(), "1064") {
		t.Errorf("the follower ended with %v", err)
	}
	if n := p.target.query(t, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'bank'"); n != "1" {
		t.Error("a part of a string at the source was executed here")
	}
}

// unsupported: a transaction that cannot be carried over ends the following, in one line that says what to do, and
// does so again.
func (p *pair) unsupported(t *testing.T) {
	p.source.do(t, "CREATE TABLE shop.n (id INT PRIMARY KEY)")
	for _, c := range []struct {
		says string
		do   []string
	}{
		{"Error 3161 (HY000): Storage engine MyISAM is disabled", []string{"CREATE TABLE shop.m (id INT) ENGINE = MyISAM"}},
		{"was binlogged as a statement, not as rows: set binlog_format = ROW", []string{"SET binlog_format = STATEMENT", "INSERT INTO shop.n VALUES (2)"}},
		{"is an XA transaction", []string{"XA START 'x'", "INSERT INTO shop.n VALUES (3)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"}},
		{"has a GTID with a tag", []string{"SET gtid_next = 'AUTOMATIC:tag'", "INSERT INTO shop.n VALUES (4)"}},
	} {
		p.mustFollow(t)
		p.source.do(t, c.do...)
		for range 2 {
			if err := p.follow(t); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the follower ended with %v, want %q", err, c.says)
			}
		}
		p.source.do(t, "TRUNCATE TABLE shop.n", "DROP TABLE IF EXISTS shop.m")
		lacks := p.source.executed(t)
		lacks.Subtract(p.target.executed(t))
		for of, interval := range lacks.Intervals() { // as if an operator had solved it
			for n := interval.Start; n < interval.End; n++ {
				p.target.do(t, fmt.Sprintf("SET gtid_next = '%v'", gtid.GTID{UUID: of.UUID, Tag: of.Tag, N: n}), "BEGIN", "COMMIT")
			}
		}
	}
}

func (p *pair) purged(t *testing.T) {
	p.source.do(t, "FLUSH BINARY LOGS", "INSERT INTO shop.n VALUES (9)", "FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
	if err := p.follow(t); err == nil || !strings.Contains(err.Error(), "purged") {
		t.Errorf("the follower ended with %v", err)
	}
}
