package binlog

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Builders of events for the tests, made from the documented layouts and not
// with the code under test, except for the header and the checksum, which the
// golden files prove right.

func event(t Type, body ...byte) Event {
	return eventFlags(t, 0, body...)
}

func eventFlags(t Type, flags uint16, body ...byte) Event {
	b := beginEvent(nil, t, 7, 1_700_000_000, 4711, flags)
	return Event(endEvent(append(b, body...), 0))
}

func query(text string) Event {
	body := make([]byte, queryPostHeaderBytes)
	const schema, variables = "db", "\x00\x01\x02\x03\x04"
	body[8], body[9], body[11] = byte(len(schema)), 0x39, byte(len(variables))
	body = append(append(append(body, variables...), schema...), 0)
	return event(TypeQuery, append(body, text...)...)
}

// clock is the variable part of a GTID event.
type clock struct {
	n                uint64
	committed, seq   int64
	immediate, first uint64 // commit timestamps; immediate 0: the event ends before them
	length           uint64 // transaction length; 0: the event ends before it
	versions         []byte // what follows
}

func testUUID() gtid.UUID {
	return gtid.UUID{0xf0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff}
}

func gtidEvent(c clock) Event {
	u := testUUID()
	b := append([]byte{1}, u[:]...)
	b = binary.LittleEndian.AppendUint64(b, c.n)
	b = append(b, logicalClockType)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.committed))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.seq))
	put56 := func(v uint64) { b = append(b, binary.LittleEndian.AppendUint64(nil, v)[:7]...) }
	switch {
	case c.immediate == 0:
		return event(TypeGTID, b...)
	case c.immediate == c.first:
		put56(c.immediate)
	default:
		put56(c.immediate | 1<<55)
		put56(c.first)
	}
	if c.length != 0 {
		b = append(AppendNetInt(b, c.length), c.versions...)
	}
	return event(TypeGTID, b...)
}

// simpleGTID is a GTID event that does not say how long its transaction is.
func simpleGTID(n uint64) Event { return gtidEvent(clock{n: n, committed: 1, seq: 2}) }

// appendVarint appends v as mysql::serialization encodes unsigned integers.
func appendVarint(dst []byte, v uint64) []byte {
	for n := 1; n <= 8; n++ {
		if v < 1<<(7*n) {
			return append(dst, binary.LittleEndian.AppendUint64(nil, v<<n|(1<<(n-1)-1))[:n]...)
		}
	}
	return binary.LittleEndian.AppendUint64(append(dst, 0xff), v)
}

func appendVarintSigned(dst []byte, v int64) []byte {
	return appendVarint(dst, uint64(v)<<1^uint64(v>>63))
}

// taggedFields are the fields of a tagged GTID event, by id.
func taggedFields(tag string, c clock) [][]byte {
	u := testUUID()
	var id []byte
	for _, b := range u {
		id = appendVarint(id, uint64(b))
	}
	return [][]byte{
		appendVarint(nil, 1), id, appendVarintSigned(nil, int64(c.n)),
		append(appendVarint(nil, uint64(len(tag))), tag...),
		appendVarintSigned(nil, c.committed), appendVarintSigned(nil, c.seq),
		appendVarint(nil, c.immediate), appendVarint(nil, c.first),
		appendVarint(nil, c.length), appendVarint(nil, 90704), appendVarint(nil, 80400), appendVarint(nil, 1<<63),
	}
}

// taggedEvent makes an event of the fields whose ids are listed. lastKnown is the
// last field that a reader may not ignore.
func taggedEvent(fields [][]byte, lastKnown uint64, ids ...int) Event {
	var body []byte
	for _, id := range ids {
		body = append(appendVarint(body, uint64(id)), fields[id]...)
	}
	head := appendVarint(nil, 1)
	head = appendVarint(head, uint64(len(body))+3)
	head = appendVarint(head, lastKnown)
	return event(TypeGTIDTagged, append(head, body...)...)
}

func tagged(tag string, c clock) Event {
	return taggedEvent(taggedFields(tag, c), 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
}

// payloadEvent makes a TRANSACTION_PAYLOAD event of events with checksums.
func payloadEvent(t testing.TB, compression uint64, events ...Event) Event {
	t.Helper()
	var data []byte
	for _, e := range events {
		stripped := slices.Clone(e[:len(e)-ChecksumBytes])
		binary.LittleEndian.PutUint32(stripped[offsetLength:], uint32(len(stripped)))
		data = append(data, stripped...)
	}
	plain := uint64(len(data))
	if compression == compressionZSTD {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		data = w.EncodeAll(data, nil)
	}
	return payloadOf(compression, plain, data)
}

func payloadOf(compression, plain uint64, data []byte) Event {
	var body []byte
	for _, field := range [][2]uint64{{payloadCompression, compression}, {payloadUncompressedSize, plain}, {payloadSize, uint64(len(data))}} {
		value := AppendNetInt(nil, field[1])
		body = append(append(body, byte(field[0]), byte(len(value))), value...)
	}
	return event(TypeTransactionPayload, append(append(body, payloadEnd), data...)...)
}

func concat(events ...Event) []byte {
	var out []byte
	for _, e := range events {
		out = append(out, e...)
	}
	return out
}

// transaction makes a transaction of a GTID event that knows its length and the
// events.
func transaction(n uint64, events ...Event) []byte {
	rest := concat(events...)
	c := clock{n: n, committed: int64(n) - 1, seq: int64(n), immediate: 1_700_000_000_000_000, first: 1_700_000_000_000_000,
		versions: []byte{0x50, 0x62, 1, 0}}
	for c.length = 1; ; { // until the length includes itself
		e := gtidEvent(c)
		if total := uint64(len(e) + len(rest)); total != c.length {
			c.length = total
			continue
		}
		return append(e, rest...)
	}
}

func rows(n int) []Event {
	return []Event{query("BEGIN"), event(TypeTableMap, make([]byte, 20)...),
		event(TypeWriteRows, make([]byte, n)...), event(TypeXID, 1, 2, 3, 4, 5, 6, 7, 8)}
}
