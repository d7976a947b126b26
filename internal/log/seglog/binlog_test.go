package seglog

import (
	"bytes"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// serverBinlog returns the entries that a primary would make of a binlog file of a real server, and the GTIDs
// in the file in order.
func serverBinlog(t *testing.T, name string) (entries []Entry, gtids []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "mysql", "binlog", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	raw = raw[len(binlog.Magic):]
	fde, _, err := binlog.CutEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	entries = []Entry{plain(1, 1, 0), {Index: 2, Term: 1, Data: entry.EncodeEpoch(entry.Epoch{
		Term: 1, Primary: "a", ServerVersion: "9.7.4", FormatDescription: fde,
	})}}
	for trx, err := range binlog.Transactions(raw) {
		if err != nil {
			t.Fatal(err)
		}
		index := uint64(len(entries) + 1)
		data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: 1, Term: 1, Number: index})
		entries = append(entries, Entry{Index: index, Term: 1, Data: append(data, trx.Raw...)})
		gtids = append(gtids, trx.GTID.String())
	}
	return entries, gtids
}

// sealedServerBinlog stores these entries in dir, in a sealed segment.
func sealedServerBinlog(t *testing.T, dir string) (path string, entries []Entry, gtids []string) {
	t.Helper()
	entries, gtids = serverBinlog(t, "mysql-9.7.4.000001")
	l := mustOpen(t, Options{FS: vfs.OS{}, Dir: dir, Identity: testIdentity()})
	last := uint64(len(entries)) + 1
	entries = append(entries, rotate(last, 1, "9.7.4"))
	mustAppend(t, l, &HardState{Term: 1, Commit: last}, entries...)
	infos := l.Segments()
	if len(infos) != 3 || !infos[1].Sealed || infos[1].FirstIndex != 2 || len(gtids) < 10 {
		t.Fatalf("segments %+v with %d transactions", infos, len(gtids))
	}
	wantEntries(t, l, entries)
	want, err := gtid.ParseSet(strings.Join(gtids, ","))
	if err != nil || !want.Equal(infos[2].GTIDsBefore) {
		t.Fatalf("GTIDs before the last segment: %v, want %v (%v)", infos[2].GTIDsBefore, want, err)
	}
	return filepath.Join(dir, segmentName(2)), entries, gtids
}

// TestSealedSegmentIsBinlog reads a sealed segment with a library's parser.
func TestSealedSegmentIsBinlog(t *testing.T) {
	path, entries, gtids := sealedServerBinlog(t, t.TempDir())
	p := replication.NewBinlogParser()
	p.SetVerifyChecksum(true)
	var found []string
	ignorable := 0
	err := p.ParseFile(path, 0, func(e *replication.BinlogEvent) error {
		switch g := e.Event.(type) {
		case *replication.GTIDEvent:
			next, err := g.GTIDNext()
			if err != nil {
				return err
			}
			found = append(found, next.String())
		case *replication.GtidTaggedLogEvent:
			next, err := g.GTIDNext()
			if err != nil {
				return err
			}
			found = append(found, next.String())
		}
		if e.Header.EventType == replication.IGNORABLE_EVENT {
			ignorable++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(found, "\n"), strings.Join(gtids, "\n"); got != want {
		t.Fatalf("GTIDs:\n%s\nwant:\n%s", got, want)
	}
	// There is one for the segment's header, and one for each entry except the first and the last.
	if ignorable != len(entries)-1 {
		t.Fatalf("%d ignorable events for %d entries", ignorable, len(entries))
	}
}

// mysqlbinlog returns the command, from PATH or from the private copy that
// `make mysql` provides.
func mysqlbinlog(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if path, err := exec.LookPath("mysqlbinlog"); err == nil {
		return exec.Command(path, args...)
	}
	prefix, err := filepath.Abs(filepath.Join("..", "..", "..", ".mysql", "usr"))
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(prefix, "lib", "x86_64-linux-gnu")
	binary := filepath.Join(prefix, "bin", "mysqlbinlog")
	if _, err := os.Stat(binary); err != nil {
		t.Skip("there is no mysqlbinlog")
	}
	args = append([]string{"--library-path", lib, binary, "--no-defaults",
		"--character-sets-dir=" + filepath.Join(prefix, "share", "mysql", "charsets")}, args...)
	return exec.Command(filepath.Join(lib, "ld-linux-x86-64.so.2"), args...)
}

// TestStagedSegmentsAreBinlogs stages every transaction of a server's file. Each stage is a binlog file of its
// own. Together they have the same statements as the server's file.
func TestStagedSegmentsAreBinlogs(t *testing.T) {
	const gtidLines = "SET @@SESSION.GTID_NEXT= '"
	entries, gtids := serverBinlog(t, "mysql-9.7.4.000001")
	dir := t.TempDir()
	l := mustOpen(t, Options{FS: vfs.OS{}, Dir: dir, Identity: testIdentity()})
	mustAppend(t, l, nil, entries[:2]...)
	for i, e := range entries[2:] {
		raw := e.Data[entry.HeaderBytes:]
		first, _, err := binlog.CutEvent(raw)
		if err != nil {
			t.Fatal(err)
		}
		named := Entry{Index: e.Index, Term: 1, Data: entry.EncodeStaged(entry.Staged{
			ID: entry.StageID{Term: 1, Number: e.Index}, Bytes: uint64(len(raw)), CRC: crc32.Checksum(raw, castagnoli()), GTIDEvent: first,
		})}
		// Some stages are copied, because too little room was reserved.
		l.slackBytes = []int64{stageSlackBytes, -stageAlign}[i%2]
		mustAppendStaged(t, l, nil, named, raw)
	}
	var own []string
	for _, s := range l.Segments()[2:] {
		own = append(own, dump(t, filepath.Join(dir, s.Name), gtidLines))
	}
	server := dump(t, filepath.Join("..", "..", "mysql", "binlog", "testdata", "mysql-9.7.4.000001"), gtidLines)
	if got := strings.Join(own, ""); got != server || strings.Count(server, "\n") < len(gtids) {
		t.Fatalf("segments:\n%s\nserver:\n%s", got, server)
	}
}

// dump returns the lines of mysqlbinlog's output for a file that begin with prefix, without comments.
func dump(t *testing.T, path, prefix string) string {
	t.Helper()
	cmd := mysqlbinlog(t, "--verify-binlog-checksum", path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("mysqlbinlog %s: %v\n%s", path, err, stderr.String())
	}
	if stderr.Len() > 0 {
		t.Errorf("mysqlbinlog %s: %s", path, stderr.String())
	}
	var statements []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") && strings.HasPrefix(line, prefix) && (prefix == "" || !strings.Contains(line, "AUTOMATIC")) {
			statements = append(statements, line)
		}
	}
	return strings.Join(statements, "")
}

// TestSealedSegmentWithMysqlbinlog compares mysqlbinlog's output for a segment with that for the server's own
// file: the statements are the same.
func TestSealedSegmentWithMysqlbinlog(t *testing.T) {
	dir := t.TempDir()
	path, _, _ := sealedServerBinlog(t, dir)
	own, server := dump(t, path, ""), dump(t, filepath.Join("..", "..", "mysql", "binlog", "testdata", "mysql-9.7.4.000001"), "")
	if own != server || strings.Count(own, "GTID_NEXT") < 10 {
		t.Fatalf("segment:\n%s\nserver:\n%s", own, server)
	}
	// The first segment has only the built-in FORMAT_DESCRIPTION, and no
	// transaction.
	dump(t, filepath.Join(dir, segmentName(1)), "")
}
