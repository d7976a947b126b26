package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// threadEvent is an event of a type; a QUERY event is of connection 0x01020304.
func threadEvent(t Type, body []byte) []byte {
	e := beginEvent(nil, t, 1, 0, 0, 0)
	e = endEvent(append(e, body...), 0)
	return e
}

func TestThreadID(t *testing.T) {
	const thread = 0x01020304
	query := threadEvent(TypeQuery, append(binary.LittleEndian.AppendUint32(nil, thread), make([]byte, 15)...))
	gtidEvent := threadEvent(TypeGTID, make([]byte, 42))
	rows := threadEvent(TypeWriteRows, make([]byte, 100))
	plain := slices.Concat(gtidEvent, query, rows)
	wrapped := slices.Concat(gtidEvent, threadEvent(TypeTransactionPayload, threadPayload(query, rows)))
	for name, raw := range map[string][]byte{"plain": plain, "payload": wrapped} {
		if got, err := ThreadID(raw); err != nil || got != thread {
			t.Errorf("%s: %#x, %v", name, got, err)
		}
		if got, err := ReadThreadID(bytes.NewReader(raw)); err != nil || got != thread {
			t.Errorf("%s, read: %#x, %v", name, got, err)
		}
	}
	for name, raw := range map[string][]byte{
		"nothing":           nil,
		"no query":          gtidEvent,
		"cut":               plain[:len(gtidEvent)+10],
		"a short query":     slices.Concat(gtidEvent, threadEvent(TypeQuery, make([]byte, 3))),
		"a payload of rows": slices.Concat(gtidEvent, threadEvent(TypeTransactionPayload, threadPayload(rows))),
		"an empty payload":  slices.Concat(gtidEvent, threadEvent(TypeTransactionPayload, threadPayload())),
		"a broken payload":  slices.Concat(gtidEvent, threadEvent(TypeTransactionPayload, []byte{2, 3, 252})),
	} {
		if got, err := ThreadID(raw); err == nil {
			t.Errorf("%s: %#x without an error", name, got)
		} else if name != "cut" && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := ReadThreadID(bytes.NewReader(raw)); err == nil && name != "a short query" {
			t.Errorf("%s, read: %#x without an error", name, got)
		}
	}
}

// threadPayload is the body of an uncompressed TRANSACTION_PAYLOAD of events, whose
// checksums it leaves out.
func threadPayload(events ...[]byte) []byte {
	var data []byte
	for _, e := range events {
		inner := slices.Clone(e[:len(e)-ChecksumBytes])
		binary.LittleEndian.PutUint32(inner[offsetLength:], uint32(len(inner)))
		data = append(data, inner...)
	}
	// Field, length of the value, value: no compression (255), the sizes; end.
	body := []byte{payloadCompression, 3, 252, compressionNone, 0}
	for _, field := range []byte{3, payloadSize} {
		body = binary.LittleEndian.AppendUint16(append(body, field, 3, 252), uint16(len(data)))
	}
	return append(append(body, payloadEnd), data...)
}
