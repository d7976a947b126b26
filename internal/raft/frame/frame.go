package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// HeaderBytes is the length of a header. Part of the format.
const HeaderBytes = 12

// crcOffset is where the header's CRC stands.
const crcOffset = 8

// Format is what the frames of one protocol begin with.
type Format struct {
	Magic   uint16
	Version uint8
}

// CRC is a CRC32C, of nothing at first.
type CRC uint32

// Add returns the CRC of what c is of and b behind that.
func (c CRC) Add(b []byte) CRC {
	return CRC(crc32.Update(uint32(c), crc32.MakeTable(crc32.Castagnoli), b)) // the package makes this table once
}

// Begin writes a header but for its CRC, and returns that as far as it goes: the payload is
// still to be added to it.
func (f Format) Begin(header []byte, kind uint8, length int) CRC {
	binary.LittleEndian.PutUint16(header, f.Magic)
	header[2], header[3] = f.Version, kind
	binary.LittleEndian.PutUint32(header[4:], uint32(length))
	return CRC(0).Add(header[:crcOffset])
}

// End writes the CRC of a whole frame into its header.
func (c CRC) End(header []byte) { binary.LittleEndian.PutUint32(header[crcOffset:], uint32(c)) }

// Fill writes the header of a frame that has its payload behind the room for it.
func (f Format) Fill(frame []byte, kind uint8) {
	f.Begin(frame, kind, len(frame)-HeaderBytes).Add(frame[HeaderBytes:]).End(frame)
}

// KindAndLength returns the type and the length of the payload that a header names.
func KindAndLength(header []byte) (kind uint8, length uint32) {
	return header[3], binary.LittleEndian.Uint32(header[4:])
}

// roomBytes is the most that a Reader has room for before any of a payload has come: more is
// made as it comes. What is announced costs the sender nothing.
const roomBytes = 2 << 20

// Room returns where the payload of a frame shall go, or an error if there may be no such
// frame. It has that length, or nil: the Reader makes the room itself, and hands it on.
type Room func(kind uint8, length uint32) ([]byte, error)

// Reader cuts a byte stream into frames. One goroutine uses it.
type Reader struct {
	src     io.Reader
	format  Format
	room    Room
	corrupt error
	header  [HeaderBytes]byte
}

// NewReader returns a reader of src. Its errors about bytes that are no frame wrap corrupt.
func NewReader(src io.Reader, format Format, corrupt error, room Room) *Reader {
	return &Reader{src: src, format: format, corrupt: corrupt, room: room}
}

// Next returns the next frame. It returns io.EOF at the end of the stream,
// io.ErrUnexpectedEOF within a frame, the error of the room that it asks for, and one that
// wraps corrupt for bytes that are no frame.
func (r *Reader) Next() (kind uint8, payload []byte, err error) {
	header := r.header[:]
	if _, err := io.ReadFull(r.src, header); err != nil {
		return 0, nil, err
	}
	if binary.LittleEndian.Uint16(header) != r.format.Magic || header[2] != r.format.Version {
		return 0, nil, fmt.Errorf("%w: it starts with % x", r.corrupt, header[:4])
	}
	kind, length := KindAndLength(header)
	payload, err = r.room(kind, length)
	if err != nil {
		return 0, nil, err
	}
	if payload == nil {
		payload, err = r.grow(int(length))
	} else {
		_, err = io.ReadFull(r.src, payload)
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	got := CRC(0).Add(header[:crcOffset]).Add(payload)
	if want := CRC(binary.LittleEndian.Uint32(header[crcOffset:])); got != want {
		return 0, nil, fmt.Errorf("%w: CRC32C %08x, computed %08x", r.corrupt, want, got)
	}
	return kind, payload, nil
}

// grow reads length bytes into room of their own, of which there is never more than twice
// what has come, or roomBytes.
func (r *Reader) grow(length int) ([]byte, error) {
	payload := make([]byte, min(length, roomBytes))
	for read := 0; ; {
		if _, err := io.ReadFull(r.src, payload[read:]); err != nil {
			return nil, err
		}
		if len(payload) == length {
			return payload, nil
		}
		read = len(payload)
		more := make([]byte, min(length, 2*read))
		copy(more, payload)
		payload = more
	}
}
