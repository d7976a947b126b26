package mysqlwire

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/raft/entry"
)

// binlogBytes returns what the server's binlog has up to end.
func (m *testMysqld) binlogBytes(t *testing.T, end Position, bytes int) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join(filepath.Dir(m.socket), "d", end.File))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	out := make([]byte, bytes)
	if _, err := f.ReadAt(out, int64(end.Offset)-int64(bytes)); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return out
}

// incompressible inserts rows of 1000 random bytes.
func incompressible(rows int) string {
	return fmt.Sprintf("INSERT INTO d.t (v) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "+
		"SELECT RANDOM_BYTES(1000) FROM n", rows)
}

// stageCase is a large transaction and the wanted content of its stage.
type stageCase struct {
	name       string
	statements []string
	want       binlog.Type
	longest    int  // the longest event has more bytes
	end        bool // the naming entry has the last event
	xa         bool // it is compressed and prepares XA transaction x
}

func stageCases() []stageCase {
	const compress = "SET binlog_transaction_compression=ON"
	view := "CREATE VIEW d.v AS SELECT '" + strings.Repeat("x", 9<<20) + "' AS x"
	return []stageCase{
		{"many rows", []string{incompressible(20000)}, binlog.TypeWriteRows, 1000, true, false},
		{"one row", []string{"INSERT INTO d.t (v) VALUES (REPEAT('x', 20000000))"}, binlog.TypeWriteRows, 20000000, true, false},
		{"one row before and after", []string{"UPDATE d.t SET v = CONCAT(v, 'y') WHERE LENGTH(v) = 20000000"},
			binlog.TypeUpdateRows, 40000000, true, false},
		{"compressed", []string{compress, incompressible(20000)}, binlog.TypeTransactionPayload, 20000000, false, false},
		{"XA", []string{"XA START 'x'", incompressible(9000), "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"},
			binlog.TypeXAPrepare, 1000, true, false},
		{"compressed XA", []string{compress, "XA START 'x'", incompressible(9000), "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"},
			binlog.TypeTransactionPayload, 9000000, false, true},
		{"statement", []string{view}, binlog.TypeQuery, 9 << 20, false, false},
	}
}

// check compares a staged transaction with its case.
func (c *stageCase) check(t *testing.T, b Batch, body []byte) {
	t.Helper()
	types, longest := map[binlog.Type]int{}, 0
	for event, err := range binlog.Events(body) {
		if err != nil {
			t.Fatal(err)
		}
		types[event.Type()]++
		longest = max(longest, len(event))
	}
	h, named, err := entry.Parse(b.Data)
	if err != nil {
		t.Fatal(err)
	}
	s, err := entry.ParseStaged(h, named)
	if err != nil {
		t.Fatal(err)
	}
	if types[c.want] == 0 || longest <= c.longest || len(s.EndEvent) > 0 != c.end || s.Rows != (c.name != "statement") {
		t.Errorf("%s: types %v, longest %d, named with rows %v, end %x", c.name, types, longest, s.Rows, s.EndEvent)
	}
	xid, prepares, err := binlog.ReadXAPrepare(bytes.NewReader(body))
	if err != nil || prepares != c.xa || prepares && xid.GTRID != "x" {
		t.Errorf("%s: prepares %q: %v, %v", c.name, xid, prepares, err)
	}
}

// Large transactions of a real mysqld go through stages, byte for byte as in its binlog, and
// from there to a real replica. Small ones between them go in batches.
func TestMysqldStages(t *testing.T) {
	roomy := []string{"--innodb-redo-log-capacity=256M", "--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M",
		"--binlog-transaction-compression=OFF", "--cte-max-recursion-depth=100000"}
	source := startMysqld(t, 1, append(sourceOptions(), roomy...)...)
	source.createTapUser(t)
	stages := newMemoryStages()
	c := runTapWith(t, source, func(cfg *TapConfig) { cfg.StageBytesMin, cfg.OpenStage = 8<<20, stages.open })
	source.exec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)",
		"INSERT INTO d.t (v) VALUES ('small')")
	for _, tc := range stageCases() {
		before := len(c.received())
		source.exec(t, tc.statements...)
		var staged []Batch
		for _, b := range c.received()[before:] {
			if b.Staged != nil {
				staged = append(staged, b)
			}
		}
		if len(staged) != 1 {
			t.Fatalf("%s: %d staged transactions", tc.name, len(staged))
		}
		body, _ := stages.stage(*staged[0].Staged)
		tc.check(t, staged[0], body)
		if !bytes.Equal(body, source.binlogBytes(t, staged[0].End, staged[0].Bytes)) {
			t.Errorf("%s: the stage's %d bytes are not the binlog's", tc.name, len(body))
		}
	}
	source.exec(t, "INSERT INTO d.t (v) VALUES ('behind')")

	log := newTestLog(Piece{FormatDescription: c.tap.FormatDescription()})
	for _, b := range c.received() {
		log.appendStaged(b, stages)
	}
	replica := startMysqld(t, 2, append(replicaOptions(), roomy...)...)
	replica.replicateFrom(t, startFeed(t, log, source.text(t, "SELECT @@version"), true), "feed's secret")
	replica.waitApplied(t, source)
	for _, sum := range []string{"SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(v)), ' ', SUM(id)) FROM d.t", "SELECT CRC32(x) FROM d.v"} {
		if got, want := replica.text(t, sum), source.text(t, sum); got != want {
			t.Errorf("replica has %s, source %s", got, want)
		}
	}
}
