package cli

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
	"github.com/quorate/quorate/internal/raft/entry"
)

// serverWait bounds every wait for a real server.
const serverWait = 2 * time.Minute

// realServer is an unmodified mysqld.
type realServer struct {
	*mysqldtest.Plain
	install *install.Installation
	db      *sql.DB
}

func findInstallation(t *testing.T) *install.Installation {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a mysqld")
	}
	base := ""
	if os.Getenv(install.EnvBaseDir) == "" {
		base = filepath.Join("..", "..", ".mysql")
	}
	install, err := install.Discover(base)
	if err != nil {
		t.Skip("no MySQL: ", err)
	}
	return install
}

// startServer starts an empty server, with a binlog in its data directory.
func startServer(t *testing.T, install *install.Installation, id int) *realServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "ql") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := mysqldtest.NewPlain(install, dir, fmt.Sprintf("server_id=%d", id), "sync_binlog=0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), serverWait)
	defer cancel()
	if err := server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	db, err := sql.Open("mysql", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &realServer{Plain: server, install: install, db: db}
}

func (s *realServer) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := s.db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (s *realServer) query(t *testing.T, query string) (value string) {
	t.Helper()
	if err := s.db.QueryRow(query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// state is the server's data and its GTIDs.
func (s *realServer) state(t *testing.T) string {
	t.Helper()
	text := strings.ReplaceAll(s.query(t, "SELECT @@gtid_executed"), "\n", "")
	for _, table := range []string{"d.small", "d.big"} {
		var name, sum sql.NullString
		if err := s.db.QueryRow("CHECKSUM TABLE "+table).Scan(&name, &sum); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf(" %s=%s/%s", table, sum.String, s.query(t, "SELECT COUNT(*) FROM "+table))
	}
	return text
}

// reset makes the server empty.
func (s *realServer) reset(t *testing.T) {
	t.Helper()
	s.exec(t, "DROP DATABASE IF EXISTS d", "RESET BINARY LOGS AND GTIDS")
}

// replay runs `mysqlbinlog ARGS | mysql`.
func (s *realServer) replay(t *testing.T, stdin io.Reader, args ...string) {
	t.Helper()
	reader, err := s.install.MysqlbinlogArgv()
	if err != nil {
		t.Skip(err)
	}
	client, err := s.install.ClientArgv()
	if err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), serverWait)
	defer cancel()
	from := exec.CommandContext(ctx, reader[0], append(append(reader[1:], "--verify-binlog-checksum"), args...)...)
	to := exec.CommandContext(ctx, client[0], append(client[1:], "--socket="+s.Socket(), "--user=root", "--max-allowed-packet=1G")...)
	var errs bytes.Buffer
	from.Stderr, to.Stderr, from.Stdin = &errs, &errs, stdin
	if to.Stdin, err = from.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := from.Start(); err != nil {
		t.Fatal(err)
	}
	toErr := to.Run()
	fromErr := from.Wait()
	if fromErr != nil || toErr != nil || errs.Len() > 0 {
		t.Fatalf("mysqlbinlog %v: %v, mysql: %v\n%s", args, fromErr, toErr, errs.String())
	}
}

// logBuilder makes a log of a server's binlog files, as the agents would.
type logBuilder struct {
	log           *seglog.Log
	index, number uint64
	// stageBytesMin is the length from which a transaction is staged.
	stageBytesMin int
	staged        int
}

func (b *logBuilder) append(t *testing.T, data []byte) {
	t.Helper()
	b.index++
	e := seglog.Entry{Index: b.index, Term: 1, Data: data}
	if err := b.log.Append([]seglog.Entry{e}, &seglog.HardState{Term: 1, Commit: b.index}); err != nil {
		t.Fatal(err)
	}
}

func (b *logBuilder) header(kind entry.Kind, count uint32) []byte {
	b.number++
	return entry.AppendHeader(nil, entry.Header{Kind: kind, Count: count, Term: 1, Number: b.number})
}

func (b *logBuilder) file(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw = raw[len(binlog.Magic):]
	fde, _, err := binlog.CutEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	if b.index == 0 {
		b.append(t, entry.EncodeEpoch(entry.Epoch{Term: 1, Primary: "a", ServerVersion: "9", FormatDescription: fde}))
	} else {
		b.append(t, append(b.header(entry.KindRotate, 0), fde...))
	}
	for transaction, err := range binlog.Transactions(raw) {
		if err != nil {
			t.Fatal(err)
		}
		if len(transaction.Raw) < b.stageBytesMin {
			b.append(t, append(b.header(entry.KindTransactions, 1), transaction.Raw...))
			continue
		}
		b.stage(t, transaction.Raw)
	}
}

func (b *logBuilder) stage(t *testing.T, raw []byte) {
	t.Helper()
	b.number++
	b.staged++
	id := entry.StageID{Term: 1, Number: b.number}
	crc := crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli))
	s, err := b.log.CreateStage(id)
	if err == nil {
		_, err = s.Write(raw)
	}
	if err == nil {
		err = s.Finish(uint64(len(raw)), crc)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint32(raw[9:])
	b.append(t, entry.EncodeStaged(entry.Staged{ID: id, Bytes: uint64(len(raw)), CRC: crc, GTIDEvent: raw[:n], EndEvent: raw[len(raw)-31:], Rows: true}))
}

// workload fills a server and returns its state, and the last GTID, in the
// middle and at the end.
func workload(t *testing.T, s *realServer) (half, whole string, halfGTID gtid.GTID) {
	t.Helper()
	s.exec(t, "RESET BINARY LOGS AND GTIDS",
		"CREATE DATABASE d",
		"CREATE TABLE d.small (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(100), t TIMESTAMP(6) DEFAULT NOW(6))",
		"CREATE TABLE d.big (id INT PRIMARY KEY AUTO_INCREMENT, v LONGBLOB)",
		"INSERT INTO d.small (v) VALUES ('one'), ('two')")
	for i := range 20 {
		s.exec(t, fmt.Sprintf("INSERT INTO d.small (v) VALUES ('row %d')", i))
	}
	s.exec(t, "UPDATE d.small SET v = CONCAT(v, '!') WHERE id % 2 = 0",
		"INSERT INTO d.big (v) VALUES (REPEAT('x', 3000000)), (REPEAT('y', 100))", // staged, one event over 1 MiB
		"FLUSH BINARY LOGS",
		"DELETE FROM d.small WHERE id = 3")
	half = s.state(t)
	_, last, _ := strings.Cut(strings.Fields(half)[0], ":")
	text := s.query(t, "SELECT @@server_uuid") + ":" + last[strings.LastIndex(last, "-")+1:]
	halfGTID, err := gtid.ParseGTID(text)
	if err != nil {
		t.Fatal(err)
	}
	s.exec(t, "ALTER TABLE d.small ADD COLUMN extra INT DEFAULT 7",
		"INSERT INTO d.small (v) SELECT v FROM d.small",
		"UPDATE d.big SET v = REPEAT('z', 2000000)",
		"XA START 'x1'", "INSERT INTO d.small (v) VALUES ('xa')", "XA END 'x1'", "XA COMMIT 'x1' ONE PHASE",
		"DELETE FROM d.small WHERE id = 5", "FLUSH BINARY LOGS")
	return half, s.state(t), halfGTID
}

// TestLogRestoresServer: a log's segments and its exports, as mysqlbinlog reads
// them, make an empty server what the primary was, up to each chosen point.
func TestLogRestoresServer(t *testing.T) {
	install := findInstallation(t)
	source := startServer(t, install, 1)
	source.db.SetMaxOpenConns(1) // XA belongs to a session
	half, whole, halfGTID := workload(t, source)
	dir := filepath.Join(t.TempDir(), "log")
	log, err := seglog.Open(seglog.Options{FS: vfs.OS{}, Dir: dir, SegmentBytesMax: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	b := &logBuilder{log: log, stageBytesMin: 1 << 20}
	for _, name := range []string{"binlog.000001", "binlog.000002", "binlog.000003"} {
		b.file(t, filepath.Join(source.Data(), name))
	}
	if b.staged != 2 || len(log.Segments()) < 8 {
		t.Fatalf("%d staged transactions, %d segments", b.staged, len(log.Segments()))
	}
	if code, out, errs := run(t, "log", "verify", "--dir", dir); code != exitOK || !strings.HasSuffix(out, ": no damage\n") {
		t.Fatalf("verify: %d, %s%s", code, out, errs)
	}
	target := startServer(t, install, 2)
	restore := func(what, want string, stdin io.Reader, args ...string) {
		t.Helper()
		target.reset(t)
		target.replay(t, stdin, args...)
		if got := target.state(t); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	var sealed []string
	for _, s := range log.Segments() {
		if s.Sealed {
			sealed = append(sealed, filepath.Join(dir, s.Name))
		}
	}
	restore("segments", whole, nil, sealed...)
	later := fmt.Sprintf("--exclude-gtids=%s:%d-1000", halfGTID.UUID, halfGTID.N+1)
	restore("segments up to a transaction", half, nil, append([]string{later}, sealed...)...)

	export := func(args ...string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "export")
		args = append([]string{"log", "export", "--dir", dir, "--to", file}, args...)
		if code, out, errs := run(t, args...); code != exitOK {
			t.Fatalf("%v: %d, %s%s", args, code, out, errs)
		}
		return file
	}
	restore("export", whole, nil, export())
	halfFile := export("--until-gtid", halfGTID.String())
	restore("export up to a transaction", half, nil, halfFile)
	// The whole export on top of that: the server skips the transactions that it already has.
	target.replay(t, nil, export())
	if got := target.state(t); got != whole {
		t.Errorf("export on top of another: %s, want %s", got, whole)
	}
	at := commitTimeOf(t, dir, halfGTID)
	restore("export up to a time", half, nil, export("--until-time", at.Format(time.RFC3339Nano)))
	if code, out, errs := run(t, "log", "export", "--dir", dir, "--to", "-"); code != exitOK {
		t.Errorf("to stdout: %d, %s", code, errs)
	} else {
		restore("export through a pipe", whole, strings.NewReader(out), "-")
	}
}

func commitTimeOf(t *testing.T, dir string, id gtid.GTID) (at time.Time) {
	t.Helper()
	in, err := seglog.Inspect(seglog.InspectOptions{FS: vfs.OS{}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	index, err := in.Find(id)
	if err == nil {
		err = in.Entries(index, index, func(e *seglog.InspectedEntry) error {
			at = e.Transactions[0].Time
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return at
}
