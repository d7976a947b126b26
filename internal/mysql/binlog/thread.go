package binlog

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// ThreadID returns the id of the connection that wrote the transaction raw, also where it is
// compressed. It takes the id from the first QUERY event (BEGIN, XA START, or the only
// statement). It returns ErrMalformed for bytes that are no such transaction.
func ThreadID(raw []byte) (uint32, error) {
	for e, err := range Events(raw) {
		if err != nil {
			return 0, fmt.Errorf("look for a connection's id: %w", err)
		}
		switch e.Type() {
		case TypeQuery:
			return queryThread(e.Body())
		case TypeTransactionPayload:
			r, err := openPayload(e)
			if err != nil {
				return 0, fmt.Errorf("look for a connection's id: %w", err)
			}
			defer r.Close()
			return payloadThread(r)
		}
	}
	return 0, fmt.Errorf("look for a connection's id: %w: there is no QUERY event", ErrMalformed)
}

// ReadThreadID is ThreadID for a transaction that is too long to hold in memory: r yields its
// events. It reads no more than it needs.
func ReadThreadID(r io.Reader) (uint32, error) {
	in := bufio.NewReaderSize(r, 4<<10)
	for {
		head, err := in.Peek(HeaderBytes)
		if err != nil {
			return 0, fmt.Errorf("look for a connection's id: %w", err)
		}
		t, n := Event(head).Type(), int64(Event(head).Length())
		if n < HeaderBytes+ChecksumBytes {
			return 0, fmt.Errorf("look for a connection's id: %w: event of %d bytes", ErrMalformed, n)
		}
		switch t {
		case TypeQuery:
			return payloadThread(in)
		case TypeTransactionPayload:
			return readPayloadThread(in, n)
		}
		if _, err := io.CopyN(io.Discard, in, n); err != nil {
			return 0, fmt.Errorf("look for a connection's id: %w", err)
		}
	}
}

func readPayloadThread(in *bufio.Reader, length int64) (uint32, error) {
	if _, err := in.Discard(HeaderBytes); err != nil {
		return 0, fmt.Errorf("look for a connection's id: %w", err)
	}
	r, err := OpenPayload(in, length)
	if err != nil {
		return 0, fmt.Errorf("look for a connection's id: %w", err)
	}
	defer r.Close()
	return payloadThread(r)
}

// payloadThread reads the first event of r, which must be a QUERY event.
func payloadThread(r io.Reader) (uint32, error) {
	var e [HeaderBytes + queryPostHeaderBytes]byte
	if _, err := io.ReadFull(r, e[:]); err != nil {
		return 0, fmt.Errorf("look for a connection's id: %w: %w", ErrMalformed, err)
	}
	if t := Event(e[:]).Type(); t != TypeQuery {
		return 0, fmt.Errorf("look for a connection's id: %w: it begins with an event of type %d", ErrMalformed, t)
	}
	return queryThread(e[HeaderBytes:])
}

func queryThread(body []byte) (uint32, error) {
	if len(body) < queryPostHeaderBytes {
		return 0, fmt.Errorf("look for a connection's id: %w: QUERY event of %d bytes", ErrMalformed, len(body))
	}
	return binary.LittleEndian.Uint32(body), nil
}
