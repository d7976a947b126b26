package binlog

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// OpenPayload returns a reader of the events in a TRANSACTION_PAYLOAD event, decompressed; they
// have no checksums. in must stand directly behind the event's header, which gives the event's
// length. The caller must have verified the event's own checksum before.
func OpenPayload(in *bufio.Reader, length int64) (io.ReadCloser, error) {
	r, _, err := openPayloadIn(in, length)
	if err != nil {
		return nil, fmt.Errorf("open payload: %w", err)
	}
	return r, nil
}

// openPayloadIn is OpenPayload. data reads the bytes of the payload as they are in the event;
// its N is how many are left.
func openPayloadIn(in *bufio.Reader, length int64) (r io.ReadCloser, data *io.LimitedReader, err error) {
	body := length - HeaderBytes - ChecksumBytes
	head, err := in.Peek(int(min(max(body, 0), payloadHeadBytesMax)))
	if err != nil {
		return nil, nil, err
	}
	p, size, rest, err := cutPayloadHead(head)
	if left := body - int64(len(head)-len(rest)); err == nil && size > uint64(left) {
		err = fmt.Errorf("%w: payload of %d bytes, %d at hand", ErrMalformed, size, left)
	}
	if err != nil {
		return nil, nil, err
	}
	if _, err := in.Discard(len(head) - len(rest)); err != nil {
		return nil, nil, err
	}
	data = &io.LimitedReader{R: in, N: int64(size)}
	r, err = decompress(p.compression, data)
	return r, data, err
}

// Relocated returns the header of the event with another length and another end in the file.
// The event then needs a new checksum.
func (e Event) Relocated(length, logPos uint32) (header [HeaderBytes]byte) {
	copy(header[:], e)
	binary.LittleEndian.PutUint32(header[offsetLength:], length)
	binary.LittleEndian.PutUint32(header[offsetLogPos:], logPos)
	return header
}
