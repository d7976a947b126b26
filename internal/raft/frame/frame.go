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

// crcOffset is where the CRC is in the header.
const crcOffset = 8

// Format is the beginning of all frames of one protocol.
type Format struct {
	Magic   uint16
	Version uint8
}

// CRC is a CRC32C. Its zero value is the CRC of no bytes.
type CRC uint32

// Add returns the CRC after b, which follows the bytes of c.
func (c CRC) Add(b []byte) CRC {
	return CRC(crc32.Update(uint32(c), crc32.MakeTable(crc32.Castagnoli), b)) // the package makes this table once
}

// Begin writes a header without its CRC. It returns the CRC of that part; the caller adds the payload to it.
func (f Format) Begin(header []byte, kind uint8, length int) CRC {
	binary.LittleEndian.PutUint16(header, f.Magic)
	header[2], header[3] = f.Version, kind
	binary.LittleEndian.PutUint32(header[4:], uint32(length))
	return CRC(0).Add(header[:crcOffset])
}

// End writes the CRC of a whole frame into its header.
func (c CRC) End(header []byte) { binary.LittleEndian.PutUint32(header[crcOffset:], uint32(c)) }

// Fill writes the header of a frame. frame has room for the header, and the payload behind it.
func (f Format) Fill(frame []byte, kind uint8) {
	f.Begin(frame, kind, len(frame)-HeaderBytes).Add(frame[HeaderBytes:]).End(frame)
}

// KindAndLength returns the type, and the length of the payload, from a header.
func KindAndLength(header []byte) (kind uint8, length uint32) {
	return header[3], binary.LittleEndian.Uint32(header[4:])
}

// roomBytes is the most that a Reader allocates for a payload before any of it has come. It allocates more when
// the bytes come, because it costs a sender nothing to announce a large payload.
const roomBytes = 2 << 20

// Room returns the buffer for the payload of a frame, or an error if such a frame is not allowed. The buffer
// has the payload's length. nil: the Reader allocates it, and the caller of Next owns it.
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

// Next returns the next frame. Errors: io.EOF at the end of the stream, io.ErrUnexpectedEOF within a frame,
// Room's error, and an error that wraps corrupt for bytes that are no frame.
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

// grow reads length bytes into a new buffer. The buffer never has more than twice the bytes that have come, or
// roomBytes.
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
