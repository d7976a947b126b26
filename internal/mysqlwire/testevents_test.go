package mysqlwire

import (
	"encoding/binary"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/gtid"
)

// binlogWriter makes the events of a binlog file as mysqld would.
type binlogWriter struct {
	file   string
	offset uint64
	next   uint64 // number of the next GTID
}

var testUUID = gtid.UUID{0x11, 15: 1}

func testGTID(n uint64) gtid.GTID { return gtid.GTID{UUID: testUUID, N: n} }

func newBinlogWriter(file string) *binlogWriter {
	return &binlogWriter{file: file, offset: binlogMagicBytes, next: 1}
}

// event makes an event that follows on the one before.
func (w *binlogWriter) event(kind binlog.Type, body []byte) []byte {
	w.offset += uint64(binlog.HeaderBytes + len(body) + binlog.ChecksumBytes)
	e := make([]byte, 4, binlog.HeaderBytes+len(body)+binlog.ChecksumBytes)
	e[0] = 0xef // a timestamp that looks like the mark of a semi-synchronous packet
	e = append(e, byte(kind))
	e = binary.LittleEndian.AppendUint32(e, 1)
	e = binary.LittleEndian.AppendUint32(e, uint32(cap(e)))
	e = binary.LittleEndian.AppendUint32(e, uint32(w.offset))
	e = append(append(e, 0, 0), body...)
	e = append(e, 0, 0, 0, 0)
	binlog.PutChecksum(e)
	return e
}

func (w *binlogWriter) formatDescription(checksum byte) []byte {
	body := make([]byte, 57, 99)
	body[0] = 4
	copy(body[2:], "9.7.4")
	body[56] = binlog.HeaderBytes
	body = append(body, make([]byte, 41)...)
	return w.event(binlog.TypeFormatDescription, append(body, checksum))
}

func (w *binlogWriter) fakeRotate() []byte {
	return binlog.AppendFakeRotate(nil, 1, w.file, binlogMagicBytes)
}

// rotate ends the file with a real ROTATE and goes on in the next.
func (w *binlogWriter) rotate(next string) []byte {
	body := append(binary.LittleEndian.AppendUint64(nil, binlogMagicBytes), next...)
	e := w.event(binlog.TypeRotate, body)
	w.file, w.offset = next, binlogMagicBytes
	return e
}

func (w *binlogWriter) heartbeat() []byte {
	return binlog.AppendHeartbeatV2(nil, 1, w.file, w.offset)
}

func (w *binlogWriter) query(text string) []byte {
	return w.event(binlog.TypeQuery, append(make([]byte, 14), text...))
}

// statement makes a transaction of a GTID and one statement.
func (w *binlogWriter) statement(text string) [][]byte {
	return w.transaction(func() [][]byte { return [][]byte{w.query(text)} })
}

// rows makes a transaction with a row event of the given length.
func (w *binlogWriter) rows(bytes int) [][]byte {
	return w.transaction(func() [][]byte {
		return [][]byte{
			w.query("BEGIN"),
			w.event(binlog.TypeTableMap, make([]byte, 20)),
			w.event(binlog.TypeWriteRows, make([]byte, bytes)),
			w.event(binlog.TypeXID, make([]byte, 8)),
		}
	})
}

// transaction makes the GTID event for what rest makes; rest is called twice,
// because the GTID event says how long the transaction is.
func (w *binlogWriter) transaction(rest func() [][]byte) [][]byte {
	before := *w
	length := len(w.gtid(0))
	for _, e := range rest() {
		length += len(e)
	}
	*w = before
	events := append([][]byte{w.gtid(uint64(length))}, rest()...)
	w.next++
	return events
}

func (w *binlogWriter) gtid(length uint64) []byte {
	body := make([]byte, 42, 60)
	copy(body[1:], testUUID[:])
	binary.LittleEndian.PutUint64(body[17:], w.next)
	body[25] = 2 // logical clock
	binary.LittleEndian.PutUint64(body[26:], w.next-1)
	binary.LittleEndian.PutUint64(body[34:], w.next)
	body = append(body, make([]byte, 7)...) // commit timestamp
	body = append(body, 0xfe)
	body = binary.LittleEndian.AppendUint64(body, length)
	return w.event(binlog.TypeGTID, body)
}

// start makes the events with which every file begins in a stream.
func (w *binlogWriter) start() [][]byte {
	rotate := w.fakeRotate()
	return [][]byte{rotate, w.formatDescription(1), w.previous()}
}

func (w *binlogWriter) previous() []byte {
	return w.event(binlog.TypePreviousGTIDs, make([]byte, 8))
}

func join(events ...[]byte) []byte {
	var out []byte
	for _, e := range events {
		out = append(out, e...)
	}
	return out
}
