package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func xaPrepare(onePhase byte, gtrid, bqual string) Event {
	b := binary.LittleEndian.AppendUint32([]byte{onePhase}, 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(gtrid)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(bqual)))
	return event(TypeXAPrepare, append(append(b, gtrid...), bqual...)...)
}

// xaSeen is a transaction that prepares an XA transaction or ends one.
type xaSeen struct {
	N    uint64
	Ends bool
	XID  XID
}

// TestGoldenXA: the first file has x1 committed, x2 rolled back, x3 committed
// in one phase; the second x4, compressed.
func TestGoldenXA(t *testing.T) {
	var got []xaSeen
	for n := 1; n <= 2; n++ {
		events, _ := readGolden(t, n)
		for tx, err := range Transactions(events) {
			if err != nil {
				t.Fatal(err)
			}
			for ends, parse := range map[bool]func([]byte) (XID, bool, error){false: ParseXAPrepare, true: ParseXAEnd} {
				xid, found, err := parse(tx.Raw)
				if err != nil {
					t.Fatalf("%v: %v", tx.GTID, err)
				}
				if found {
					got = append(got, xaSeen{tx.GTID.N, ends, xid})
				}
			}
		}
	}
	want := []xaSeen{
		{6, false, XID{"x1", ""}}, {7, true, XID{"x1", ""}},
		{8, false, XID{"x2", "b"}}, {9, true, XID{"x2", "b"}},
		{31, false, XID{"x4", ""}}, {32, true, XID{"x4", ""}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseXAPrepare(t *testing.T) {
	start := query("XA START X'61',X'',1")
	xid := XID{"a\x00", "b'"}
	prepare := xaPrepare(0, xid.GTRID, xid.BQUAL)
	for _, c := range []struct {
		name   string
		events []Event
		want   XID
		found  bool
		bad    bool
	}{
		{"rows", rows(10), XID{}, false, false},
		{"rows in a payload", []Event{payloadEvent(t, compressionZSTD, rows(10)...)}, XID{}, false, false},
		{"prepare", []Event{start, prepare}, xid, true, false},
		{"in a payload", []Event{payloadEvent(t, compressionZSTD, start, query("XA END"), prepare)}, xid, true, false},
		{"one phase", []Event{start, xaPrepare(1, "a", "")}, XID{}, false, false},
		{"one phase in a payload", []Event{payloadEvent(t, compressionNone, start, xaPrepare(1, "a", ""))}, XID{}, false, false},
		{"lengths beyond the body", []Event{start, event(TypeXAPrepare, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 'a')}, XID{}, false, true},
		{"lengths that overflow", []Event{start, event(TypeXAPrepare, 0, 1, 0, 0, 0, 2, 0, 0, 0, 255, 255, 255, 255, 'a')}, XID{}, false, true},
		{"short", []Event{start, event(TypeXAPrepare, 0, 1)}, XID{}, false, true},
		{"too long in a payload", []Event{payloadEvent(t, compressionNone, event(TypeXAPrepare, make([]byte, 200)...))}, XID{}, false, true},
		{"cut in a payload", []Event{payloadOf(compressionNone, 30, make([]byte, 30))}, XID{}, false, true},
	} {
		got, found, err := ParseXAPrepare(concat(append([]Event{simpleGTID(1)}, c.events...)...))
		if got != c.want || found != c.found || errors.Is(err, ErrMalformed) != c.bad {
			t.Errorf("%s: got %q, %t, %v", c.name, got, found, err)
		}
		// Read as a stream, a compressed transaction gives the same.
		if c.events[0].Type() == TypeTransactionPayload {
			got, found, err = ReadXAPrepare(bytes.NewReader(concat(append([]Event{simpleGTID(1)}, c.events...)...)))
			if got != c.want || found != c.found || errors.Is(err, ErrMalformed) != c.bad {
				t.Errorf("%s as a stream: got %q, %t, %v", c.name, got, found, err)
			}
		} else if _, found, err = ReadXAPrepare(bytes.NewReader(concat(append([]Event{simpleGTID(1)}, c.events...)...))); found || err != nil {
			t.Errorf("%s as a stream: %t, %v", c.name, found, err)
		}
	}
	whole := concat(simpleGTID(1), payloadEvent(t, compressionNone, start, event(TypeWriteRows, make([]byte, 500)...), query("XA END"), prepare))
	for n := range len(whole) - ChecksumBytes {
		if _, found, err := ReadXAPrepare(bytes.NewReader(whole[:n])); found || err == nil {
			t.Fatalf("cut to %d of %d bytes: %t, %v", n, len(whole), found, err)
		}
	}
}

func TestParseXAEnd(t *testing.T) {
	long := strings.Repeat("ab", xaPartBytesMax)
	longest := strings.Repeat("\xab", xaPartBytesMax)
	for _, c := range []struct {
		text  string
		want  XID
		found bool
		bad   bool
	}{
		{"XA COMMIT X'6100',X'6227',4294967295", XID{"a\x00", "b'"}, true, false},
		{"XA ROLLBACK X'61',X'',1", XID{"a", ""}, true, false},
		{"XA ROLLBACK X'" + long + "',X'" + long + "',4294967295", XID{longest, longest}, true, false},
		{"XA START X'61',X'',1", XID{}, false, false},
		{"BEGIN", XID{}, false, false},
		{"XA COMMIT 'a'", XID{}, false, true}, // as a client may write it
		{"XA COMMIT X'6g',X'',1", XID{}, false, true},
		{"XA COMMIT X'61',X''", XID{}, false, true},
	} {
		got, found, err := ParseXAEnd(concat(simpleGTID(1), query(c.text)))
		if got != c.want || found != c.found || errors.Is(err, ErrMalformed) != c.bad {
			t.Errorf("%s: got %q, %t, %v", c.text, got, found, err)
		}
	}
	if _, found, err := ParseXAEnd(concat(append([]Event{simpleGTID(1)}, rows(10)...)...)); found || err != nil {
		t.Errorf("rows: %t, %v", found, err)
	}
	if _, _, err := ParseXAEnd(simpleGTID(1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a transaction of one event: %v", err)
	}
}

// TestXAPrepareInLongPayload: 600 rows of 1 MB that differ only in a number are 1.2 GB in a payload of 280 KB.
// Before, that counted as malformed, no durable mark passed it, and no node purged its log any more.
func TestXAPrepareInLongPayload(t *testing.T) {
	const rowsBytes = 64 << 20
	var data bytes.Buffer
	w, err := zstd.NewWriter(&data, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	plain := uint64(0)
	write := func(e Event) {
		if _, err := w.Write(e); err != nil {
			t.Fatal(err)
		}
		plain += uint64(len(e))
	}
	rows := event(TypeUpdateRows, make([]byte, rowsBytes)...)
	for plain <= scanBytesMax {
		write(rows)
	}
	want := XID{"g", "b"}
	last := xaPrepare(0, want.GTRID, want.BQUAL)
	last = last[:len(last)-ChecksumBytes] // events in a payload have none
	binary.LittleEndian.PutUint32(last[offsetLength:], uint32(len(last)))
	write(last)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	raw := concat(simpleGTID(1), payloadOf(compressionZSTD, plain, data.Bytes()))
	if xid, prepares, err := ParseXAPrepare(raw); xid != want || !prepares || err != nil {
		t.Errorf("%v %v %v of %d bytes, want %v", xid, prepares, err, len(raw), want)
	}
	if rows, err := HasRowEvents(raw); !rows || err != nil {
		t.Errorf("rows: %v %v", rows, err)
	}
}
