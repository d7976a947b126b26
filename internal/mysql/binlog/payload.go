package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Fields of a TRANSACTION_PAYLOAD event's body, each as type, length and value,
// all length-encoded; the payload follows the end mark (codecs/binary.cpp).
const (
	payloadEnd              = 0
	payloadSize             = 1
	payloadCompression      = 2
	payloadUncompressedSize = 3
)

// Compression types of a payload.
const (
	compressionZSTD = 0
	compressionNone = 255
)

// Bounds for looking into a payload.
const (
	// zstdWindowBytesMax bounds the memory of the decompressor. mysqld's highest level
	// (binlog_transaction_compression_level_zstd=22) has a window of 2^27 bytes.
	zstdWindowBytesMax = 1 << 27
	// scanBytesMax bounds how much of a payload is decompressed in search of a row event. Row
	// events come early. A long payload without one is a single statement, which is at most 1
	// GiB long (max_allowed_packet).
	scanBytesMax = 1<<30 + 1<<20
)

// payload is the content of a TRANSACTION_PAYLOAD event.
type payload struct {
	compression uint64
	// data is the events without checksums, compressed or not.
	data []byte
}

func parsePayload(e Event) (payload, error) {
	p, size, rest, err := cutPayloadHead(e.Body())
	if err != nil {
		return payload{}, err
	}
	if size > uint64(len(rest)) {
		return payload{}, fmt.Errorf("%w: payload of %d bytes, %d at hand", ErrMalformed, size, len(rest))
	}
	p.data = rest[:size]
	return p, nil
}

// cutPayloadHead parses the fields in front of a payload's data. It returns the length of the
// data, as the fields give it, and the bytes that follow the fields.
func cutPayloadHead(b []byte) (p payload, size uint64, rest []byte, err error) {
	hasSize, hasCompression := false, false
	for {
		var field tlv
		if field, b, err = cutTLV(b); err != nil {
			return payload{}, 0, nil, err
		}
		switch field.kind {
		case payloadSize:
			size, _, err = CutNetInt(field.value)
			hasSize = true
		case payloadCompression:
			p.compression, _, err = CutNetInt(field.value)
			hasCompression = true
		case payloadEnd:
			if !hasSize || !hasCompression {
				return payload{}, 0, nil, fmt.Errorf("%w: payload without its length or compression", ErrMalformed)
			}
			return p, size, b, nil
		}
		if err != nil {
			return payload{}, 0, nil, err
		}
	}
}

// IsRowEvent reports whether events of type t change rows.
func IsRowEvent(t Type) bool {
	switch t {
	case TypeWriteRows, TypeUpdateRows, TypeDeleteRows, TypePartialUpdateRows,
		TypeWriteRowsV1, TypeUpdateRowsV1, TypeDeleteRowsV1:
		return true
	}
	return false
}

// HasRowEvents reports whether a transaction changes rows, also where its events are
// compressed. It decompresses as a stream and stops at the first row event. ErrMalformed means
// that the answer is not known: for bytes that are no events, an unknown compression, or a
// payload of more than scanBytesMax without a row event.
func HasRowEvents(raw []byte) (bool, error) {
	for e, err := range Events(raw) {
		if err != nil {
			return false, fmt.Errorf("look for row events: %w", err)
		}
		if IsRowEvent(e.Type()) {
			return true, nil
		}
		if e.Type() != TypeTransactionPayload {
			continue
		}
		if found, err := payloadHasRowEvents(e); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func payloadHasRowEvents(e Event) (bool, error) {
	r, err := openPayload(e)
	if err != nil {
		return false, fmt.Errorf("look for row events: %w", err)
	}
	defer r.Close()
	_, found, err := findEvent(r, scanBytesMax, IsRowEvent)
	if err != nil {
		return false, fmt.Errorf("look for row events: %w: %w", ErrMalformed, err)
	}
	return found, nil
}

// openPayload returns a reader of a payload's events, decompressed.
func openPayload(e Event) (io.ReadCloser, error) {
	p, err := parsePayload(e)
	if err != nil {
		return nil, err
	}
	return decompress(p.compression, bytes.NewReader(p.data))
}

func decompress(compression uint64, r io.Reader) (io.ReadCloser, error) {
	switch compression {
	case compressionNone:
		return io.NopCloser(r), nil
	case compressionZSTD:
		// Concurrency 1 decodes in the caller's goroutine.
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindowBytesMax))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return d.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("%w: compression %d", ErrMalformed, compression)
}

// findEvent reads events without checksums, up to the first of a wanted type. It returns the header of that
// event, and r is then directly behind the header. It returns an error if there is none in the first bytesMax
// bytes and r goes on.
func findEvent(r io.Reader, bytesMax int64, wanted func(Type) bool) (head Event, found bool, err error) {
	head = make(Event, HeaderBytes)
	for {
		if _, err := io.ReadFull(r, head); errors.Is(err, io.EOF) {
			return head, false, nil
		} else if err != nil {
			return head, false, err
		}
		if wanted(head.Type()) {
			return head, true, nil
		}
		n := int64(head.Length())
		if n < HeaderBytes || n > bytesMax {
			return head, false, fmt.Errorf("event of %d bytes, %d left to look into", n, bytesMax)
		}
		bytesMax -= n
		if _, err := io.CopyN(io.Discard, r, n-HeaderBytes); err != nil {
			return head, false, err
		}
	}
}

// wrapBytesMax is the longest transaction that WrapPayload accepts. For a longer one the saved
// packets do not matter, but the copy does.
const wrapBytesMax = 1 << 20

// WrapPayload appends to dst the transaction raw, rewritten as its GTID event and one
// TRANSACTION_PAYLOAD event that holds the others uncompressed. A replica's connection then
// carries 2 packets instead of 5 or more. raw must have at most wrapBytesMax bytes, and consist
// of an untagged GTID, BEGIN, table maps and row events, XID. For any other transaction it
// returns dst unchanged and false. It does so also for a wrong checksum: a new one over damaged
// bytes would hide the damage from the replica.
func WrapPayload(dst []byte, raw []byte) ([]byte, bool) {
	if len(raw) > wrapBytesMax {
		return dst, false
	}
	first, rest, err := CutEvent(raw)
	if err != nil || first.Type() != TypeGTID || VerifyChecksum(first) != nil {
		return dst, false
	}
	_, lengthAt, err := parseUntagged(first.Body())
	last, events, ok := wrappable(rest)
	if err != nil || !ok {
		return dst, false
	}
	size := uint64(len(rest) - events*ChecksumBytes)
	payloadBytes := HeaderBytes + ChecksumBytes + size +
		uint64(2+netIntBytes(compressionNone)+2+netIntBytes(size)+1)
	dst = appendGTIDWithLength(dst, first, lengthAt, payloadBytes)

	start := len(dst)
	dst = beginEvent(dst, TypeTransactionPayload, last.ServerID(), last.Timestamp(), last.LogPos(), 0)
	dst = append(dst, payloadCompression, byte(netIntBytes(compressionNone)))
	dst = AppendNetInt(dst, compressionNone)
	dst = append(dst, payloadSize, byte(netIntBytes(size)))
	dst = append(AppendNetInt(dst, size), payloadEnd)
	for e := range Events(rest) {
		at := len(dst)
		dst = append(dst, e[:len(e)-ChecksumBytes]...)
		binary.LittleEndian.PutUint32(dst[at+offsetLength:], uint32(len(e)-ChecksumBytes))
	}
	return endEvent(dst, start), true
}

// wrappable reports whether b is BEGIN, table maps, row events, XID; it returns
// the XID event and the number of events.
func wrappable(b []byte) (last Event, events int, ok bool) {
	for e, err := range Events(b) {
		if err != nil || VerifyChecksum(e) != nil || last != nil && last.Type() == TypeXID {
			return nil, 0, false
		}
		switch t := e.Type(); {
		case events == 0:
			if k, err := kindOf(e); err != nil || t != TypeQuery || k != kindBegin {
				return nil, 0, false
			}
		case t != TypeTableMap && t != TypeRowsQuery && t != TypeXID && !IsRowEvent(t):
			return nil, 0, false
		}
		last = e
		events++
	}
	return last, events, last != nil && last.Type() == TypeXID
}

// appendGTIDWithLength appends the GTID event e with a new transaction length, which is at
// body[at]: the length of the event itself plus othersBytes.
func appendGTIDWithLength(dst []byte, e Event, at int, othersBytes uint64) []byte {
	if at == 0 { // before 8.0.2: no such field
		return append(dst, e...)
	}
	start := len(dst)
	body := e.Body()
	_, behind, _ := CutNetInt(body[at:]) // parsed before, cannot fail
	// The length of the field depends on its value, and the value includes the field. A second
	// round settles it.
	fixed := uint64(HeaderBytes+at+len(behind)+ChecksumBytes) + othersBytes
	length := fixed + uint64(netIntBytes(fixed))
	length = fixed + uint64(netIntBytes(length))
	dst = AppendNetInt(append(dst, e[:HeaderBytes+at]...), length)
	return endEvent(append(dst, behind...), start)
}
