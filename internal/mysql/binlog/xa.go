package binlog

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"strings"
)

// XID names an XA transaction. The format id is not part of it: mysqld identifies an XA
// transaction by the other two parts (xid_t::eq in sql/xa.h).
type XID struct{ GTRID, BQUAL string }

// xaPrepareBytes is the length of an XA_PREPARE event's fixed part: one phase
// u8, format id u32, length of gtrid u32, length of bqual u32. gtrid and bqual
// follow (XA_prepare_event in control_events.h).
const xaPrepareBytes = 13

// xaPartBytesMax is the longest gtrid or bqual (MAXGTRIDSIZE, MAXBQUALSIZE).
const xaPartBytesMax = 64

// ParseXAPrepare reports whether the transaction raw leaves an XA transaction prepared, and
// which. XA COMMIT … ONE PHASE leaves none. It reads all of a payload, however long its events
// are once decompressed, because an XA_PREPARE event comes last. It returns ErrMalformed for
// bytes that are no such events.
func ParseXAPrepare(raw []byte) (xid XID, prepares bool, err error) {
	for e, err := range Events(raw) {
		if err == nil && e.Type() == TypeXAPrepare {
			return parseXAPrepare(e.Body())
		}
		if err == nil && e.Type() == TypeTransactionPayload {
			return payloadXAPrepare(e)
		}
		if err != nil {
			return XID{}, false, fmt.Errorf("look for XA_PREPARE: %w", err)
		}
	}
	return XID{}, false, nil
}

func payloadXAPrepare(e Event) (XID, bool, error) {
	r, err := openPayload(e)
	if err != nil {
		return XID{}, false, fmt.Errorf("look for XA_PREPARE: %w", err)
	}
	defer r.Close()
	return scanXAPrepare(r)
}

// scanXAPrepare reads all events of a payload. It holds the header of one event at a time, so it
// needs no bound: a few hundred KiB of a payload may be GiB of rows.
func scanXAPrepare(r io.Reader) (XID, bool, error) {
	head, found, err := findEvent(r, math.MaxInt64, func(t Type) bool { return t == TypeXAPrepare })
	if err == nil && !found {
		return XID{}, false, nil
	}
	var body [xaPrepareBytes + 2*xaPartBytesMax]byte
	n := int64(head.Length()) - HeaderBytes
	if err == nil && (n < 0 || n > int64(len(body))) {
		err = fmt.Errorf("event of %d bytes", head.Length())
	}
	if err == nil {
		_, err = io.ReadFull(r, body[:n])
	}
	if err != nil {
		return XID{}, false, fmt.Errorf("look for XA_PREPARE: %w: %w", ErrMalformed, err)
	}
	return parseXAPrepare(body[:n])
}

// payloadHeadBytesMax bounds the fields in front of a payload's data: three fields of 11 bytes,
// the end mark, and room for newer fields.
const payloadHeadBytesMax = 256

// ReadXAPrepare is ParseXAPrepare for a compressed transaction that is too long to hold in
// memory: r yields its events. The payload may have any length. For a transaction that is not
// compressed it returns false: the caller must look at the last event.
func ReadXAPrepare(r io.Reader) (xid XID, prepares bool, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		head, err := in.Peek(HeaderBytes)
		if err != nil {
			return XID{}, false, fmt.Errorf("look for XA_PREPARE: %w", err)
		}
		t, n := Event(head).Type(), int64(Event(head).Length())
		if n < HeaderBytes+ChecksumBytes {
			return XID{}, false, fmt.Errorf("look for XA_PREPARE: %w: event of %d bytes", ErrMalformed, n)
		}
		switch t {
		case TypeTransactionPayload:
			return readPayloadXAPrepare(in, n)
		case TypeQuery: // BEGIN, XA START or the one statement
			return XID{}, false, nil
		}
		if _, err := io.CopyN(io.Discard, in, n); err != nil {
			return XID{}, false, fmt.Errorf("look for XA_PREPARE: %w", err)
		}
	}
}

func readPayloadXAPrepare(in *bufio.Reader, length int64) (XID, bool, error) {
	if _, err := in.Discard(HeaderBytes); err != nil {
		return XID{}, false, fmt.Errorf("look for XA_PREPARE: %w", err)
	}
	r, data, err := openPayloadIn(in, length)
	if err != nil {
		return XID{}, false, fmt.Errorf("look for XA_PREPARE: %w", err)
	}
	defer r.Close()
	xid, prepares, err := scanXAPrepare(r)
	if err == nil && !prepares && data.N > 0 {
		err = fmt.Errorf("look for XA_PREPARE: %w: %d bytes of the payload are missing", ErrMalformed, data.N)
	}
	return xid, prepares, err
}

func parseXAPrepare(body []byte) (XID, bool, error) {
	if len(body) < xaPrepareBytes {
		return XID{}, false, fmt.Errorf("parse XA_PREPARE: %w: %d bytes", ErrMalformed, len(body))
	}
	data := string(body[xaPrepareBytes:])
	gtrid, bqual := binary.LittleEndian.Uint32(body[5:]), binary.LittleEndian.Uint32(body[9:])
	if gtrid > xaPartBytesMax || bqual > xaPartBytesMax || int(gtrid+bqual) != len(data) {
		return XID{}, false, fmt.Errorf("parse XA_PREPARE: %w: XID of %d and %d bytes in %d", ErrMalformed, gtrid, bqual, len(data))
	}
	if onePhase := body[0] != 0; onePhase {
		return XID{}, false, nil
	}
	return XID{data[:gtrid], data[gtrid:]}, true, nil
}

// ParseXAEnd reports whether the transaction raw commits or rolls back a prepared XA
// transaction, and which. It returns ErrMalformed for bytes that are no events, or for an XID
// in another form than mysqld's.
func ParseXAEnd(raw []byte) (xid XID, ends bool, err error) {
	_, rest, err := CutEvent(raw) // the GTID event
	if err != nil {
		return XID{}, false, fmt.Errorf("look for the end of XA: %w", err)
	}
	e, _, err := CutEvent(rest)
	if err != nil {
		return XID{}, false, fmt.Errorf("look for the end of XA: %w", err)
	}
	if e.Type() != TypeQuery { // mysqld does not compress these
		return XID{}, false, nil
	}
	q, err := parseQuery(e)
	if err != nil {
		return XID{}, false, fmt.Errorf("look for the end of XA: %w", err)
	}
	text, found := cutXAEnd(q.text)
	if !found {
		return XID{}, false, nil
	}
	xid, err = parseXIDText(text)
	return xid, err == nil, err
}

// cutXAEnd returns the text behind XA COMMIT or XA ROLLBACK. mysqld writes these words itself,
// in upper case.
func cutXAEnd(text []byte) (rest string, found bool) {
	// The longest text has two parts in hexadecimal and a format id. A longer text is cut here,
	// and then is no valid XID.
	const bytesMax = len("XA ROLLBACK X'',X'',4294967295") + 4*xaPartBytesMax
	s := string(text[:min(len(text), bytesMax+1)])
	if rest, found = strings.CutPrefix(s, "XA COMMIT "); found {
		return rest, true
	}
	return strings.CutPrefix(s, "XA ROLLBACK ")
}

// parseXIDText parses X'gtrid',X'bqual',format as mysqld writes it
// (serialize_xid in sql/xa_aux.h).
func parseXIDText(s string) (XID, error) {
	parts := strings.Split(s, ",")
	if len(parts) == 3 {
		gtrid, ok1 := unhex(parts[0])
		bqual, ok2 := unhex(parts[1])
		if ok1 && ok2 {
			return XID{gtrid, bqual}, nil
		}
	}
	return XID{}, fmt.Errorf("parse XID %q: %w", s, ErrMalformed)
}

func unhex(s string) (string, bool) {
	s, prefix := strings.CutPrefix(s, "X'")
	s, suffix := strings.CutSuffix(s, "'")
	b, err := hex.DecodeString(s)
	return string(b), prefix && suffix && err == nil
}
