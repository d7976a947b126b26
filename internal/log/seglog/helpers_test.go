package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

const testDir = "/log"

func testIdentity() [16]byte { return [16]byte([]byte("clusterAnode0001")) }

// smallOptions make segments of a few entries and a cache of a few more.
func smallOptions(fs vfs.FS) Options {
	return Options{FS: fs, Dir: testDir, Identity: testIdentity(), SegmentBytesMax: 1500, CacheBytesMax: 1200}
}

// indexedOptions are smallOptions with saved indexes.
func indexedOptions(fs vfs.FS) Options {
	o := smallOptions(fs)
	o.Indexed = true
	return o
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustAppend(t testing.TB, l *Log, hs *HardState, entries ...Entry) {
	t.Helper()
	if err := l.Append(entries, hs); err != nil {
		t.Fatalf("append: %v", err)
	}
}

// all returns the whole log.
func all(t testing.TB, l *Log) []Entry {
	t.Helper()
	entries, err := allOf(l)
	if err != nil {
		t.Fatalf("read log: %v", err)
	}
	return entries
}

func allOf(l *Log) ([]Entry, error) {
	var entries []Entry
	for lo := l.FirstIndex(); lo <= l.LastIndex(); {
		got, err := l.Entries(lo, l.LastIndex()+1, 700)
		if err != nil {
			return nil, err
		}
		if len(got) == 0 {
			return nil, fmt.Errorf("no entry at index %d", lo)
		}
		entries, lo = append(entries, got...), lo+uint64(len(got))
	}
	return entries, nil
}

func wantEntries(t testing.TB, l *Log, want []Entry) {
	t.Helper()
	if diff := cmp.Diff(want, all(t, l)); diff != "" {
		t.Fatalf("log (-want +got):\n%s", diff)
	}
}

func plain(index, term uint64, size int) Entry {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(index*31 + term*7 + uint64(i))
	}
	if size == 0 {
		data = nil
	}
	return Entry{Index: index, Term: term, Type: 1, Data: data}
}

// testEvent builds an event with a checksum.
func testEvent(kind binlog.Type, body []byte) []byte {
	return appendEvent(nil, kind, 0, body, 1000)
}

func testUUID(server byte) gtid.UUID { return gtid.UUID{0: server, 15: 1} }

// testTransaction returns "GTID, QUERY <statement>", the form of DDL in a binlog.
func testTransaction(server byte, n uint64, statement string) []byte {
	uuid := testUUID(server)
	g := append([]byte{1}, uuid[:]...)
	g = binary.LittleEndian.AppendUint64(g, n)
	g = append(g, 2)
	g = binary.LittleEndian.AppendUint64(g, n-1)
	g = binary.LittleEndian.AppendUint64(g, n)
	q := make([]byte, 13)
	q[8] = 1 // length of the schema
	q = append(append(q, "d\x00"...), statement...)
	return append(testEvent(binlog.TypeGTID, g), testEvent(binlog.TypeQuery, q)...)
}

// transactions returns an entry with count transactions. n is the number of the first GTID.
func transactions(index, term uint64, server byte, n uint64, count, size int) Entry {
	data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: uint32(count), Term: term, Number: index})
	for i := range count {
		data = append(data, testTransaction(server, n+uint64(i), "create table t"+strings.Repeat("x", size))...)
	}
	return Entry{Index: index, Term: term, Data: data}
}

// staged returns an entry that names a stage, and the bytes of the stage.
func staged(index, term uint64, server byte, n uint64, size int) (Entry, []byte) {
	raw := testTransaction(server, n, "create table t"+strings.Repeat("s", size))
	event, _, err := binlog.CutEvent(raw)
	if err != nil {
		panic(err)
	}
	return Entry{Index: index, Term: term, Data: entry.EncodeStaged(entry.Staged{
		ID: entry.StageID{Term: term, Number: index}, Bytes: uint64(len(raw)),
		CRC: crc32.Checksum(raw, castagnoli()), GTIDEvent: event,
	})}, raw
}

// stagedOf finds the same as namingOf, with other code.
func stagedOf(e Entry) (entry.Staged, bool) {
	h, body, err := entry.Parse(e.Data)
	if e.Type != 0 || err != nil || h.Kind != entry.KindStaged {
		return entry.Staged{}, false
	}
	s, err := entry.ParseStaged(h, body)
	return s, err == nil
}

// putStage writes a whole stage, in pieces.
func putStage(l *Log, id entry.StageID, raw []byte) error {
	s, err := l.CreateStage(id)
	if err != nil {
		return err
	}
	for rest := raw; len(rest) > 0 && err == nil; {
		n := min(len(rest), 300)
		_, err = s.Write(rest[:n])
		rest = rest[n:]
	}
	if err == nil {
		err = s.Finish(uint64(len(raw)), crc32.Checksum(raw, castagnoli()))
	}
	if err != nil {
		return errors.Join(err, s.Abort())
	}
	return nil
}

// stageBytes reads a stage through a StageReader.
func stageBytes(l *Log, id entry.StageID) ([]byte, error) {
	r, err := l.OpenStage(id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	n, _ := r.Bytes()
	return io.ReadAll(io.NewSectionReader(r, 0, n))
}

// mustAppendStaged puts the stage and appends the entry that names it.
func mustAppendStaged(t testing.TB, l *Log, hs *HardState, e Entry, raw []byte) {
	t.Helper()
	s, _ := stagedOf(e)
	if err := putStage(l, s.ID, raw); err != nil {
		t.Fatalf("stage: %v", err)
	}
	mustAppend(t, l, hs, e)
}

// testFormatDescription returns a FORMAT_DESCRIPTION as a server of this version would write it.
func testFormatDescription(version string) []byte {
	fde := builtinFormatDescription()
	copy(fde[binlog.HeaderBytes+2:], version+"\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	fde[17] |= byte(binlog.FlagInUse)
	clean, err := binlog.CleanFormatDescription(fde, false)
	if err != nil {
		panic(err)
	}
	clean[17] |= byte(binlog.FlagInUse)
	return clean
}

func epoch(index, term uint64, version string) Entry {
	return Entry{Index: index, Term: term, Data: entry.EncodeEpoch(entry.Epoch{
		Term: term, Primary: "node-a", ServerUUID: testUUID(1), ServerVersion: version,
		FormatDescription: testFormatDescription(version),
	})}
}

func rotate(index, term uint64, version string) Entry {
	data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindRotate, Term: term, Number: index})
	return Entry{Index: index, Term: term, Data: append(data, testFormatDescription(version)...)}
}

// gtidsOf returns the GTIDs of all transactions in entries. It does not use the code under test.
func gtidsOf(entries []Entry) *gtid.Set {
	set := &gtid.Set{}
	for _, e := range entries {
		h, body, err := entry.Parse(e.Data)
		if s, ok := stagedOf(e); ok {
			info, err := binlog.ParseGTID(s.GTIDEvent)
			if err != nil {
				panic(err)
			}
			set.Add(info.GTID)
		}
		if e.Type != 0 || err != nil || h.Kind != entry.KindTransactions {
			continue
		}
		for t := range binlog.Transactions(body) {
			set.Add(t.GTID)
		}
	}
	return set
}

// sameEntries is cmp.Equal, but fast.
func sameEntries(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(a, b Entry) bool {
		return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data)
	})
}

// checkSegments compares Segments with the entries of the log. The entries before the log's first index were
// purged.
func checkSegments(l *Log, entries []Entry, commit uint64) error {
	infos := l.Segments()
	next := l.FirstIndex()
	before := gtidsOf(entries[:next-1])
	if term, err := l.Term(next - 1); err != nil || next > 1 && term != entries[next-2].Term || next == 1 && term != 0 {
		return fmt.Errorf("term %d before the first index %d: %v", term, next, err)
	}
	if next > 1 && next > commit {
		return fmt.Errorf("the log begins at %d, %d is committed", next, commit)
	}
	for i, s := range infos {
		if s.Name != segmentName(s.FirstIndex) {
			return fmt.Errorf("segment %d from %d has the name %q", i, s.FirstIndex, s.Name)
		}
		if s.FirstIndex != next || s.LastIndex+1 < s.FirstIndex {
			return fmt.Errorf("segment %d holds %d-%d, expected to begin at %d", i, s.FirstIndex, s.LastIndex, next)
		}
		if !before.Equal(s.GTIDsBefore) {
			return fmt.Errorf("segment %d: GTIDs before are %v, want %v", i, s.GTIDsBefore, before)
		}
		if s.LastIndex > uint64(len(entries)) {
			return fmt.Errorf("segment %d ends at %d, the log at %d", i, s.LastIndex, len(entries))
		}
		before.Union(gtidsOf(entries[s.FirstIndex-1 : s.LastIndex]))
		if want := i < len(infos)-1 && s.LastIndex <= commit; s.Sealed != want {
			return fmt.Errorf("segment %d: sealed %v, want %v", i, s.Sealed, want)
		}
		next = s.LastIndex + 1
	}
	if next-1 != uint64(len(entries)) {
		return fmt.Errorf("segments end at %d, the log at %d", next-1, len(entries))
	}
	var total int64
	for _, s := range infos {
		total += s.Bytes
	}
	if n, bytes := l.Size(); n != len(infos) || bytes != total {
		return fmt.Errorf("%d segments of %d bytes in all; the log's size is %d, %d", len(infos), total, n, bytes)
	}
	return nil
}

// foundRecord is one record of a segment's file.
type foundRecord struct {
	offset int64
	record
}

// recordsOf returns the records of the segment at position i.
func recordsOf(t testing.TB, l *Log, i int) (records []foundRecord) {
	t.Helper()
	s := l.segments[i]
	f, err := l.options.FS.Open(filepath.Join(l.options.Dir, s.name()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if s.empty() {
		return nil
	}
	for c := s.walk(&window{file: f, size: s.end, ahead: pointBytes}, 0); c.ordinal < s.index.count; {
		r, err := c.head()
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, foundRecord{c.offset, r})
		c.pass(&r)
	}
	return records
}

func readFile(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	b, err := fileBytes(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fileBytes(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(filepath.Join(testDir, name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// writeFile replaces a file's content, durably.
func writeFile(t testing.TB, fs vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := fs.Create(filepath.Join(testDir, name))
	if err == nil {
		_, err = f.WriteAt(content, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fs.SyncDir(testDir)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// content returns all files of the directory.
func content(t testing.TB, fs vfs.FS) map[string][]byte {
	t.Helper()
	names, err := fs.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		files[name] = readFile(t, fs, name)
	}
	return files
}

// fix writes the checksum of an event that was changed.
func fix(event []byte) { binlog.PutChecksum(event) }
