package binlogtest

import (
	"encoding/binary"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Writer makes the events of one binlog file after the other.
type Writer struct {
	// File and Offset are the place of the next event.
	File   string
	Offset uint64
	// Next is the number of the next GTID.
	Next uint64
}

// GTID returns the GTID of the n-th transaction.
func GTID(n uint64) gtid.GTID { return gtid.GTID{UUID: gtid.UUID{0x11, 15: 1}, N: n} }

// New returns a writer at the start of a file.
func New(file string) *Writer {
	return &Writer{File: file, Offset: uint64(len(binlog.Magic)), Next: 1}
}

// Event makes an event that follows on the one before.
func (w *Writer) Event(kind binlog.Type, body []byte) []byte {
	w.Offset += uint64(binlog.HeaderBytes + len(body) + binlog.ChecksumBytes)
	e := make([]byte, 4, binlog.HeaderBytes+len(body)+binlog.ChecksumBytes)
	e[0] = 0xef // a timestamp that looks like the mark of a semi-synchronous packet
	e = append(e, byte(kind))
	e = binary.LittleEndian.AppendUint32(e, 1)
	e = binary.LittleEndian.AppendUint32(e, uint32(cap(e)))
	e = binary.LittleEndian.AppendUint32(e, uint32(w.Offset))
	e = append(append(e, 0, 0), body...)
	e = append(e, 0, 0, 0, 0)
	binlog.PutChecksum(e)
	return e
}

// FormatDescription makes a FORMAT_DESCRIPTION event for a file with the given checksum
// algorithm.
func (w *Writer) FormatDescription(checksum byte) []byte {
	body := make([]byte, 57, 99)
	body[0] = 4
	copy(body[2:], "9.7.4")
	body[56] = binlog.HeaderBytes
	body = append(body, make([]byte, 41)...)
	return w.Event(binlog.TypeFormatDescription, append(body, checksum))
}

// FakeRotate makes the ROTATE event that a source sends before a file.
func (w *Writer) FakeRotate() []byte {
	return binlog.AppendFakeRotate(nil, 1, w.File, uint64(len(binlog.Magic)))
}

// Rotate ends the file with a real ROTATE and goes on in the next.
func (w *Writer) Rotate(next string) []byte {
	body := append(binary.LittleEndian.AppendUint64(nil, uint64(len(binlog.Magic))), next...)
	e := w.Event(binlog.TypeRotate, body)
	w.File, w.Offset = next, uint64(len(binlog.Magic))
	return e
}

// Heartbeat makes a heartbeat of version 2 for the writer's place.
func (w *Writer) Heartbeat() []byte {
	return binlog.AppendHeartbeatV2(nil, 1, w.File, w.Offset)
}

// Query makes a QUERY event.
func (w *Writer) Query(text string) []byte {
	return w.Event(binlog.TypeQuery, append(make([]byte, 14), text...))
}

// Statement makes a transaction of a GTID and one statement.
func (w *Writer) Statement(text string) [][]byte {
	return w.Transaction(func() [][]byte { return [][]byte{w.Query(text)} })
}

// Rows makes a transaction with a row event of the given length.
func (w *Writer) Rows(bytes int) [][]byte {
	return w.Transaction(func() [][]byte {
		return [][]byte{
			w.Query("BEGIN"),
			w.Event(binlog.TypeTableMap, make([]byte, 20)),
			w.Event(binlog.TypeWriteRows, make([]byte, bytes)),
			w.Event(binlog.TypeXID, make([]byte, 8)),
		}
	})
}

// Transaction makes a GTID event and the events of rest. It calls rest twice, because the GTID
// event has the transaction's length.
func (w *Writer) Transaction(rest func() [][]byte) [][]byte {
	before := *w
	length := len(w.gtid(0))
	for _, e := range rest() {
		length += len(e)
	}
	*w = before
	events := append([][]byte{w.gtid(uint64(length))}, rest()...)
	w.Next++
	return events
}

// LongGTID makes the GTID event of a transaction. The caller makes its other events, which have
// othersBytes bytes.
func (w *Writer) LongGTID(othersBytes uint64) []byte {
	before := *w
	n := uint64(len(w.gtid(0)))
	*w = before
	e := w.gtid(n + othersBytes)
	w.Next++
	return e
}

func (w *Writer) gtid(length uint64) []byte {
	body := make([]byte, 42, 60)
	id := GTID(w.Next)
	copy(body[1:], id.UUID[:])
	binary.LittleEndian.PutUint64(body[17:], id.N)
	body[25] = 2 // logical clock
	binary.LittleEndian.PutUint64(body[26:], w.Next-1)
	binary.LittleEndian.PutUint64(body[34:], w.Next)
	body = append(body, make([]byte, 7)...) // commit timestamp
	body = append(body, 0xfe)
	body = binary.LittleEndian.AppendUint64(body, length)
	return w.Event(binlog.TypeGTID, body)
}

// Start makes the events with which every file begins in a stream.
func (w *Writer) Start() [][]byte {
	rotate := w.FakeRotate()
	return [][]byte{rotate, w.FormatDescription(1), w.previous()}
}

func (w *Writer) previous() []byte {
	return w.Event(binlog.TypePreviousGTIDs, make([]byte, 8))
}

// Join concatenates events.
func Join(events ...[]byte) []byte {
	var out []byte
	for _, e := range events {
		out = append(out, e...)
	}
	return out
}
