package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/raft/entry"
)

// encode returns a whole record with right checksums.
func encode(r record, data []byte, offset int64, chain uint32) []byte {
	r.dataBytes, r.inlineBytes = uint32(len(data)), uint32(len(data))
	r.dataCRC = crc32.Checksum(data, castagnoli())
	b := append(r.appendHead(nil, offset, chain), data...)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// TestScanRefusesRecords puts behind two records another one that has right checksums but does not belong
// there.
func TestScanRefusesRecords(t *testing.T) {
	tests := map[string]func(r *record, offset *int64, chain *uint32){
		"fits":             func(*record, *int64, *uint32) {},
		"index is behind":  func(r *record, _ *int64, _ *uint32) { r.index = 2 },
		"index is ahead":   func(r *record, _ *int64, _ *uint32) { r.index = 4 },
		"term goes back":   func(r *record, _ *int64, _ *uint32) { r.term = 1 },
		"other segment":    func(r *record, _ *int64, _ *uint32) { r.seed++ },
		"other place":      func(_ *record, at *int64, _ *uint32) { *at += 100 },
		"other chain":      func(_ *record, _ *int64, chain *uint32) { *chain ^= 1 },
		"durable too soon": func(r *record, at *int64, _ *uint32) { r.durable = uint64(*at + 1) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := mustOpen(t, smallOptions(fs))
			mustAppend(t, l, nil, plain(1, 1, 10))
			mustAppend(t, l, nil, plain(2, 2, 10))
			tail := l.tail()
			r := record{raftType: 1, index: 3, term: 2, seed: tail.seed, durable: uint64(tail.end)}
			at, chain, want := tail.end, tail.chain, uint64(2)
			change(&r, &at, &chain)
			if name == "fits" {
				want = 3
			}
			b := readFile(t, fs, segmentName(1))
			copy(b[tail.end:], encode(r, []byte("third"), at, chain))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			writeFile(t, fs, segmentName(1), b)
			l, err := Open(smallOptions(fs))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			if l.LastIndex() != want {
				t.Fatalf("last index %d, want %d", l.LastIndex(), want)
			}
		})
	}
}

// TestNewerRecord: a record of a later version is no damage if its checksum is right. Nothing is cut, and the
// error says who wrote the record.
func TestNewerRecord(t *testing.T) {
	for _, sound := range []bool{true, false} {
		fs := vfs.NewMem()
		l := mustOpen(t, smallOptions(fs))
		mustAppend(t, l, nil, plain(1, 1, 10), plain(2, 1, 10))
		at := recordsOf(t, l, 0)[1].offset
		_ = l.Close()
		b := readFile(t, fs, segmentName(1))
		b[at+binlog.HeaderBytes+4] = recordVersion + 1
		if sound {
			fix(b[at:][:recordBytes(10)])
		}
		writeFile(t, fs, segmentName(1), b)
		l, err := Open(smallOptions(fs))
		if !sound {
			if err != nil || l.LastIndex() != 1 {
				t.Fatalf("damaged version: %v", err)
			}
			_ = l.Close()
			continue
		}
		if !errors.Is(err, ErrFormat) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "written by a newer quorate") {
			t.Fatalf("newer version: %v", err)
		}
		if !bytes.Equal(b, readFile(t, fs, segmentName(1))) {
			t.Fatal("the segment was changed")
		}
	}
}

func TestSplitTransactions(t *testing.T) {
	good := transactions(1, 1, 1, 1, 2, 10).Data
	badChecksum := bytes.Clone(good)
	badChecksum[len(badChecksum)-1] ^= 1
	control := binlog.AppendFakeRotate(bytes.Clone(good), 1, "binlog.000002", 4)
	tests := map[string]struct {
		e     Entry
		split bool
	}{
		"transactions":   {Entry{Data: good}, true},
		"wrong checksum": {Entry{Data: badChecksum}, false},
		"control event":  {Entry{Data: control}, false},
		"cut event":      {Entry{Data: good[:len(good)-5]}, false},
		"half of one":    {Entry{Data: good[:entry.HeaderBytes+60]}, false},
		"no transaction": {Entry{Data: good[:entry.HeaderBytes]}, false},
		"conf change":    {Entry{Type: 1, Data: good}, false},
		"epoch":          {epoch(1, 1, "9.7.4"), false},
		"empty":          {Entry{}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gtids, split := splitTransactions(nil, &tc.e)
			if split != tc.split || (len(gtids) == 2) != split {
				t.Fatalf("split %v, GTIDs %v", split, gtids)
			}
			// In every form of the record, the data comes back unchanged.
			l := mustOpen(t, smallOptions(vfs.NewMem()))
			l.cache.bytesMax = 0
			e := tc.e
			e.Index, e.Term = 1, 1
			mustAppend(t, l, nil, e)
			wantEntries(t, l, []Entry{e})
		})
	}
}

// TestUnusableFormatDescription: an epoch is stored even if its FORMAT_DESCRIPTION cannot begin a file, because
// Raft has agreed on it.
func TestUnusableFormatDescription(t *testing.T) {
	fde := testFormatDescription("9.7.4")
	noChecksum := bytes.Clone(fde)
	noChecksum[len(noChecksum)-binlog.ChecksumBytes-1] = byte(binlog.ChecksumOff)
	for name, body := range map[string][]byte{
		"nothing": nil, "cut": fde[:50], "no checksums": noChecksum, "other event": testTransaction(1, 1, "x"),
	} {
		t.Run(name, func(t *testing.T) {
			data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindRotate, Term: 1, Number: 1})
			want := []Entry{plain(1, 1, 1), {Index: 2, Term: 1, Data: append(data, body...)}}
			fs := vfs.NewMem()
			l := mustOpen(t, smallOptions(fs))
			mustAppend(t, l, nil, want...)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, smallOptions(fs))
			wantEntries(t, l, want)
			got := l.tail().formatDescription
			if len(l.Segments()) != 2 || !bytes.Equal(got, builtinFormatDescription()) {
				t.Fatalf("%d segments, FORMAT_DESCRIPTION %x", len(l.Segments()), got)
			}
		})
	}
}

// TestSyncedSlotIsNeverOverwritten: the slot that was synced last may be the only one on the disk that holds
// the vote.
func TestSyncedSlotIsNeverOverwritten(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	slots := func() [stateSlots]string {
		b := readFile(t, fs, stateName)
		return [stateSlots]string{string(b[stateSectorBytes:][:stateSectorBytes]), string(b[2*stateSectorBytes:])}
	}
	synced := 0 // as Open has left it
	save := func(hs HardState) {
		t.Helper()
		before, old := slots(), l.HardState()
		mustAppend(t, l, &hs)
		after := slots()
		if after[synced] != before[synced] || after[1-synced] == before[1-synced] {
			t.Fatalf("%+v was not written to slot %d, or over slot %d, which was synced last", hs, 1-synced, synced)
		}
		if hs.Term != old.Term || hs.Vote != old.Vote {
			synced = 1 - synced
		}
	}
	mustAppend(t, l, nil, plain(1, 1, 1), plain(2, 1, 1), plain(3, 1, 1), plain(4, 1, 1))
	save(HardState{Term: 1, Vote: 1})
	save(HardState{Term: 1, Vote: 1, Commit: 1})
	save(HardState{Term: 1, Vote: 1, Commit: 2})
	save(HardState{Term: 1, Vote: 1, Commit: 3})
	save(HardState{Term: 2, Vote: 0, Commit: 3})
	save(HardState{Term: 2, Vote: 3, Commit: 3})
	save(HardState{Term: 2, Vote: 3, Commit: 4})
	// The newest slot is not synced. Open syncs it, and leaves the other one.
	before := slots()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, smallOptions(fs))
	if slots() != before || l.HardState() != (HardState{Term: 2, Vote: 3, Commit: 4}) {
		t.Fatalf("open changed the slots, or found %+v", l.HardState())
	}
	synced = 1 - synced
	save(HardState{Term: 3, Commit: 4})
}

func TestSegmentNames(t *testing.T) {
	for name, want := range map[string]uint64{
		"quorate.00000000000000000042": 42, "quorate.18446744073709551615": 1<<64 - 1,
		"quorate.42": 0, "quorate.000000000000000000042": 0, "quorate.0000000000000000004x": 0,
		"quorate.99999999999999999999": 0, "binlog.00000000000000000042": 0, "quorate.tmp": 0,
		"quorate.+0000000000000000042": 0,
	} {
		got, ok := parseSegmentName(name)
		if ok != (want > 0) || (ok && (got != want || segmentName(got) != name)) {
			t.Errorf("%s: %d, %v", filepath.Base(name), got, ok)
		}
	}
}
