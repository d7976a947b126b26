package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestHasRowEvents(t *testing.T) {
	noRows := []Event{query("BEGIN"), event(TypeTableMap, 1), query("SAVEPOINT `a`"), event(TypeXID, 1)}
	for _, c := range []struct {
		name   string
		events []Event
		want   bool
	}{
		{"rows", rows(10), true},
		{"old rows", []Event{event(TypeDeleteRowsV1, 1)}, true},
		{"partial update", []Event{event(TypePartialUpdateRows, 1)}, true},
		{"DDL", []Event{query("DROP TABLE t")}, false},
		{"no rows", noRows, false},
		{"ZSTD with rows", []Event{payloadEvent(t, compressionZSTD, rows(1000)...)}, true},
		{"ZSTD without", []Event{payloadEvent(t, compressionZSTD, noRows...)}, false},
		{"plain with rows", []Event{payloadEvent(t, compressionNone, rows(1000)...)}, true},
		{"plain without", []Event{payloadEvent(t, compressionNone, noRows...)}, false},
		{"empty payload", []Event{payloadEvent(t, compressionNone)}, false},
	} {
		if got, err := HasRowEvents(transaction(1, c.events...)); got != c.want || err != nil {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// TestHasRowEventsUnknown: a transaction that cannot be read to its end, or to a row event, is
// an error and never "no rows".
func TestHasRowEventsUnknown(t *testing.T) {
	long := bytes.Repeat(query("x"), 100)
	compressed := payloadEvent(t, compressionZSTD, query("BEGIN"), query(string(long)), event(TypeXID, 1))
	p, err := parsePayload(compressed)
	if err != nil {
		t.Fatal(err)
	}
	noLength := query("BEGIN")[:HeaderBytes]
	binary.LittleEndian.PutUint32(noLength[offsetLength:], HeaderBytes-1)
	for name, e := range map[string]Event{
		"other compression":     payloadOf(1, 3, []byte("abc")),
		"no ZSTD":               payloadOf(compressionZSTD, 3, []byte("abc")),
		"ZSTD cut":              payloadOf(compressionZSTD, 9, p.data[:len(p.data)-5]),
		"event cut":             payloadOf(compressionNone, 9, query("BEGIN")[:25]),
		"header cut":            payloadOf(compressionNone, 9, query("BEGIN")[:10]),
		"length below a header": payloadOf(compressionNone, 9, noLength),
		"no end mark":           event(TypeTransactionPayload, payloadCompression, 1, 0, payloadSize, 1, 0),
		"no size":               event(TypeTransactionPayload, payloadCompression, 1, 0, payloadEnd),
		"no compression":        event(TypeTransactionPayload, payloadSize, 1, 0, payloadEnd),
		"size too large":        event(TypeTransactionPayload, payloadCompression, 1, 0, payloadSize, 1, 9, payloadEnd),
		"empty":                 event(TypeTransactionPayload),
	} {
		if found, err := HasRowEvents(e); found || !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	if _, err := HasRowEvents(compressed[:30]); !errors.Is(err, ErrMalformed) {
		t.Errorf("cut event: %v", err)
	}
}

// TestScanBound: a stream longer than the bound is an error, also where the bound is at the
// border of two events.
func TestScanBound(t *testing.T) {
	stream := concat(query("a"), query("b"), event(TypeWriteRows, 1))
	edge := int64(2 * len(query("a")))
	for bytesMax := range edge {
		if _, found, err := findEvent(bytes.NewReader(stream), bytesMax, IsRowEvent); found || err == nil {
			t.Fatalf("bound %d: %v, %v", bytesMax, found, err)
		}
	}
	if _, found, err := findEvent(bytes.NewReader(stream), edge, IsRowEvent); !found || err != nil {
		t.Errorf("bound %d: %v, %v", edge, found, err)
	}
	if _, found, err := findEvent(bytes.NewReader(stream[:edge]), edge, IsRowEvent); found || err != nil {
		t.Errorf("all read: %v, %v", found, err)
	}
}

// unwrap takes the events out of a transaction of two events.
func unwrap(t *rapid.T, raw []byte) []Event {
	first, rest, err := CutEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ParseEvent(rest)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parsePayload(second)
	if err != nil || p.compression != compressionNone || VerifyChecksum(first) != nil || VerifyChecksum(second) != nil {
		t.Fatalf("payload of compression %d: %v", p.compression, err)
	}
	var events []Event
	for e, err := range Events(p.data) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, Event(endEvent(bytes.Clone(e), 0)))
	}
	return events
}

func TestWrapPayloadRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Lengths around the borders of the length-encoded integers.
		size := rapid.SampledFrom([]int{1, 50, 100, 1000, 65_000, 65_400, 100_000, 900_000}).Draw(t, "size")
		events := rows(size + rapid.IntRange(0, 200).Draw(t, "more"))
		raw := transaction(7, events...)
		before := bytes.Clone(raw)
		prefix := []byte("before")
		out, ok := WrapPayload(prefix, raw)
		if !ok || !bytes.HasPrefix(out, prefix) || !bytes.Equal(raw, before) {
			t.Fatalf("not wrapped, or its arguments changed: %v", ok)
		}
		out = out[len(prefix):]
		if !slices.EqualFunc(events, unwrap(t, out), func(a, b Event) bool { return bytes.Equal(a, b) }) {
			t.Fatal("the payload holds other events")
		}
		// Transactions checks the new length.
		for tr, err := range Transactions(out) {
			if err != nil {
				t.Fatal(err)
			}
			want, _ := ParseGTID(Event(raw[:binary.LittleEndian.Uint32(raw[offsetLength:])]))
			want.TransactionLength = uint64(len(out))
			if diff := cmp.Diff(want, tr.GTIDInfo); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
		if again, ok := WrapPayload(nil, out); ok || again != nil {
			t.Fatal("wrapped twice")
		}
	})
}

func TestWrapPayloadOldGTID(t *testing.T) {
	raw := append(simpleGTID(1), concat(rows(5)...)...)
	out, ok := WrapPayload(nil, raw)
	if first := simpleGTID(1); !ok || !bytes.HasPrefix(out, first) {
		t.Errorf("a GTID event without a transaction length changed: %x", out)
	}
}

func TestWrapPayloadRefuses(t *testing.T) {
	r := rows(10)
	for at := range transaction(1, r...) {
		damaged := transaction(1, r...)
		damaged[at] ^= 0x10
		if _, ok := WrapPayload(nil, damaged); ok {
			t.Errorf("damage at byte %d was wrapped", at)
		}
	}
	for name, raw := range map[string][]byte{
		"nothing":          nil,
		"no transaction":   concat(r...),
		"GTID alone":       simpleGTID(1),
		"DDL":              transaction(1, query("DROP TABLE t")),
		"CTAS":             transaction(1, r[0], query("CREATE TABLE t (a INT) START TRANSACTION"), r[1], r[2], r[3]),
		"XA":               transaction(1, query("XA START X'31',X'',1"), r[1], r[2], query("XA END X'31',X'',1"), event(TypeXAPrepare, 1)),
		"no engine":        transaction(1, r[0], r[1], r[2], query("COMMIT")),
		"payload":          transaction(1, payloadEvent(t, compressionZSTD, r...)),
		"tagged":           append(tagged("t", clock{n: 1}), concat(r...)...),
		"behind the XID":   transaction(1, append(r[:4:4], r[1])...),
		"no XID":           transaction(1, r[:3]...),
		"cut":              transaction(1, r...)[:200],
		"too large":        transaction(1, rows(wrapBytesMax)...),
		"malformed GTID":   append(event(TypeGTID, 1, 2), concat(r...)...),
		"statement format": transaction(1, r[0], event(TypeRand, make([]byte, 16)...), query("INSERT"), r[3]),
	} {
		if out, ok := WrapPayload([]byte("dst"), raw); ok || string(out) != "dst" {
			t.Errorf("%s: wrapped", name)
		}
	}
}

// TestGoldenWrap wraps what can be wrapped of the server's own transactions. The applier of a
// replica (9.7.4) was once given the result, and made the same tables.
func TestGoldenWrap(t *testing.T) {
	wrapped := 0
	eachGolden(t, func(t *testing.T, events []byte, _ string) {
		for tr, err := range Transactions(events) {
			if err != nil {
				t.Fatal(err)
			}
			out, ok := WrapPayload(nil, tr.Raw)
			if !ok {
				continue
			}
			wrapped++
			for again, err := range Transactions(out) {
				if err != nil || again.GTID != tr.GTID || again.TransactionLength != uint64(len(out)) {
					t.Errorf("%v: %+v, %v", tr.GTID, again.GTIDInfo, err)
				}
			}
		}
	})
	if wrapped != 8 {
		t.Errorf("%d transactions were wrapped", wrapped)
	}
}

func BenchmarkWrapPayload(b *testing.B) {
	raw := transaction(1, rows(300)...)
	var room []byte
	b.ReportAllocs()
	for b.Loop() {
		var ok bool
		if room, ok = WrapPayload(room[:0], raw); !ok {
			b.Fatal("not wrapped")
		}
	}
}

func BenchmarkAssembler(b *testing.B) {
	raw := transaction(1, rows(300)...)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		for _, err := range Transactions(raw) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
