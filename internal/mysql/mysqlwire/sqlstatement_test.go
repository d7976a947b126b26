package mysqlwire

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestClassify: which statements a reader with SQL may send, and who answers them. -1 = refused.
func TestClassify(t *testing.T) {
	for text, want := range map[string]statementKind{
		"":         askMysqld,
		"SELECT 1": askMysqld,
		"/* mysql-connector-j-9.5.0 */SELECT @@session.auto_increment_increment AS x": askMysqld,
		"-- why\n# so\n\tselect * from t":                                             askMysqld,
		"(SELECT 1) UNION (SELECT 2)":                                                 askMysqld,
		"WITH c AS (SELECT 1) TABLE c":                                                askMysqld,
		"START TRANSACTION /*!40100 WITH CONSISTENT SNAPSHOT */":                      askMysqld,
		"/*!40100 SET @@SQL_MODE='' */":                                               askMysqld,
		"SET SESSION lock_wait_timeout=10":                                            askMysqld,
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ":                     askMysqld,
		"set session transaction read write":                                          askNothing,
		"FLUSH TABLES WITH READ LOCK":                                                 askMysqld,
		"FLUSH TABLES `a`.`b`, c WITH READ LOCK;":                                     askMysqld,
		"FLUSH /*!40101 LOCAL */ TABLES":                                              askMysqld,
		"LOCK TABLES t READ, u READ LOCAL":                                            askMysqld,
		"UNLOCK TABLES":                                                               askMysqld,
		"show /* gh-ost */ master status":                                             askStatus,
		"SHOW BINARY LOG STATUS;":                                                     askStatus,
		"SHOW BINARY LOGS":                                                            askFiles,
		"SHOW MASTER LOGS":                                                            askFiles,
		"SHOW SLAVE HOSTS":                                                            askReplicas,
		"SHOW GRANTS FOR CURRENT_USER":                                                askGrants,
		"SHOW GLOBAL VARIABLES LIKE 'binlog_format'":                                  askVariables,
		"SHOW VARIABLES":                                                              askVariables,
		"SHOW CREATE TABLE t":                                                         askMysqld,

		"SELECT @@global.rpl_semi_sync_source_enabled":             -1,
		"INSERT INTO t VALUES (1)":                                 -1,
		"/* x */ delete from t":                                    -1,
		"/*!99999 SELECT */ DELETE FROM t":                         -1,
		"/*!080099 SELECT */ DELETE FROM t":                        -1,
		"/*!40000 SELECT */ DELETE FROM t":                         -1,
		"FLUSH /*!99999 LOCAL */ TABLES":                           -1,
		"FLUSH TABLES":                                             -1,
		"FLUSH PRIVILEGES":                                         -1,
		"FLUSH LOCAL BINARY LOGS":                                  -1,
		"LOCK TABLES t READ, u WRITE":                              -1,
		"LOCK TABLES t /*!40000 WRITE */":                          -1,
		"WITH c AS (SELECT 1) DELETE FROM t":                       -1,
		"SET GLOBAL read_only = 0":                                 -1,
		"SET @@session.transaction_read_only = 0":                  -1,
		`SET @a = 'x\', tx_read_only = 0 -- '`:                     -1,
		"SET @a = 1, PASSWORD = 'x'":                               askMysqld, // mysqld does not know this one
		"SET PASSWORD = 'x'":                                       -1,
		"SET @@global.max_connections = 1":                         -1,
		"SET PERSIST x = 1":                                        -1,
		"START TRANSACTION READ WRITE":                             -1,
		"START TRANSACTION READ /* */ WRITE":                       -1,
		"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE": -1,
		"ANALYZE TABLE t":                                          -1,
		"CALL p()":                                                 -1,
		"PREPARE s FROM 'DROP …'":                                  -1,
		"XA COMMIT 'x'":                                            -1,
		"KILL 1":                                                   -1,
		"LOAD DATA LOCAL INFILE 'x' INTO TABLE t":                  -1,
	} {
		got, err := parseStatement(text).classify()
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%s: %d (%v), want %d", text, got, err, want)
		}
	}
}

func TestStatementWithValues(t *testing.T) {
	values := map[string]string{"gtid_purged": "'a:1'", "server_id": "7"}
	for text, want := range map[string]string{
		"SELECT @@global.GTID_PURGED, @@server_id, 1":                                            "SELECT 'a:1', 7, 1",
		"SELECT '@@server_id', `@@server_id`, @server_id, @@global.server_ids /* @@server_id */": "SELECT '@@server_id', `@@server_id`, @server_id, @@global.server_ids /* @@server_id */",
		"SELECT GTID_SUBTRACT('x', @@session.gtid_purged)":                                       "SELECT GTID_SUBTRACT('x', 'a:1')",
	} {
		if got, err := parseStatement(text).with(values); got != want || err != nil {
			t.Errorf("%s: %s (%v), want %s", text, got, err, want)
		}
	}
	if _, err := parseStatement("SELECT 1" + strings.Repeat(", @@gtid_purged", columnsMax+1)).with(values); !isTooLong(err) {
		t.Errorf("a text that would grow: %v", err)
	}
}

// TestLongStatements: a reader's text of 4 MiB of commas became 985 MiB of words. Dump requests may still be long.
func TestLongStatements(t *testing.T) {
	commas := parseStatement("SELECT " + strings.Repeat(",", statementBytesMax))
	if _, err := commas.classify(); len(commas.words) > wordsMax || !isTooLong(err) {
		t.Errorf("a text of %d words: %v", len(commas.words), err)
	}
	if kind, err := parseStatement("SELECT 1" + strings.Repeat(", 1", wordsMax/2-1)).classify(); kind != askMysqld || err != nil {
		t.Errorf("a text of %d words: %d, %v", wordsMax, kind, err)
	}
	r := dialFeed(t, startReaders(t, newReaderLog())).loginAs("cdc")
	for _, command := range []byte{comQuery, comStmtPrepare} {
		for _, n := range []int{statementBytesMax + 1, packetBytesMax, 2*packetBytesMax + 7} {
			if _, err := r.wire.conn.Write(frame(append([]byte{command}, bytes.Repeat([]byte(","), n-1)...), 0)); err != nil {
				t.Fatal(err)
			}
			answer, err := r.wire.read()
			if err != nil || !isTooLong(parseServerError(answer)) || int(r.wire.in.sequence) != n/packetBytesMax+1 {
				t.Fatalf("command %#x of %d bytes: %q as packet %d, %v", command, n, answer, r.wire.in.sequence, err)
			}
		}
	}
	if got := r.query("SELECT 1" + strings.Repeat(" ", statementBytesMax-10)); got != "1" {
		t.Errorf("behind them: %s", got)
	}
	has := &gtid.Set{}
	for n := range uint64(100_000) {
		has.Add(gtid.GTID{UUID: binlogtest.GTID(1).UUID, N: 2*n + 1})
	}
	if _, err := r.byGTID("", has, flagNonBlock).events(1); !errors.Is(err, errEOF) {
		t.Errorf("a dump request of 1.6 MB: %v", err)
	}
}

func isTooLong(err error) bool {
	e, ok := errors.AsType[*ServerError](err)
	return ok && e.Code == 1153
}

// FuzzStatement: any text is cut into its words, in order.
func FuzzStatement(f *testing.F) {
	f.Add("/*!40101 SET */ @a = 'x\\'' -- \n; #")
	f.Add("select `a```, \"b\" /*")
	f.Fuzz(func(t *testing.T, text string) {
		s := parseStatement(text)
		at := 0
		for _, w := range s.words {
			if w.start < at || w.end <= w.start || w.end > len(text) {
				t.Fatalf("word %+v behind %d of %q", w, at, text)
			}
			at = w.end
		}
		_, _ = s.classify()
		if got, err := s.with(nil); got != text || err != nil {
			t.Fatalf("%q became %q", text, got)
		}
	})
}
