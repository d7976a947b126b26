package seglog

import (
	"bytes"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

// sampleSegment returns a segment with each kind of record.
func sampleSegment(t testing.TB) (segment []byte, entries []Entry, records []foundRecord, seed uint32) {
	fs := vfs.NewMem()
	l := mustOpen(t, Options{FS: fs, Dir: testDir, Identity: testIdentity()})
	entries = []Entry{epoch(1, 1, "9.7.4"), transactions(2, 1, 1, 1, 2, 5), plain(3, 1, 20), plain(4, 2, 0)}
	mustAppend(t, l, nil, entries...)
	segment = readFile(t, fs, segmentName(1))
	return segment[:l.segments[0].end], entries, recordsOf(t, l, 0), l.segments[0].seed
}

// FuzzDecodeEntry: no bytes make the decoder panic, and accepted bytes encode to the same bytes again, apart
// from unused fields.
func FuzzDecodeEntry(f *testing.F) {
	segment, _, records, seed := sampleSegment(f)
	for i, p := range records {
		end := len(segment)
		if i+1 < len(records) {
			end = int(records[i+1].offset)
		}
		f.Add(segment[p.offset:end], p.offset, seed)
	}
	f.Fuzz(func(t *testing.T, b []byte, offset int64, seed uint32) {
		spoilt := bytes.Clone(b)
		e, err := decodeEntry(spoilt, offset, seed)
		if err != nil {
			return
		}
		r, err := parseRecordHead(b, offset, seed)
		if err != nil || r.bytes() != int64(len(b)) || r.index != e.Index || r.term != e.Term || int(r.dataBytes) != len(e.Data) {
			t.Fatalf("%+v, %v for an entry %d of term %d with %d bytes", r, err, e.Index, e.Term, len(e.Data))
		}
		inline, rest, err := r.parts(b)
		if err != nil || !bytes.Equal(append(bytes.Clone(inline), rest...), e.Data) {
			t.Fatalf("data differs: %v", err)
		}
	})
}

// FuzzOpen: no content of the last segment makes Open panic or return an entry
// that was not written.
func FuzzOpen(f *testing.F) {
	segment, entries, records, _ := sampleSegment(f)
	f.Add(segment)
	f.Add(segment[:records[2].offset+30])
	f.Add(append(bytes.Clone(segment), make([]byte, 600)...))
	f.Add(append(bytes.Clone(segment), segment[records[1].offset:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem()
		o := Options{FS: fs, Dir: testDir, Identity: testIdentity()}
		l := mustOpen(t, o)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		writeFile(t, fs, segmentName(1), b)
		l, err := Open(o)
		if err != nil {
			return
		}
		defer func() { _ = l.Close() }()
		got, err := allOf(l)
		if err != nil || len(got) > len(entries) || !sameEntries(got, entries[:len(got)]) {
			t.Fatalf("%d entries: %v", len(got), err)
		}
	})
}
