package mysqlwire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
)

const (
	// packetHeaderBytes is a 3-byte length and a sequence number.
	packetHeaderBytes = 4
	// packetBytesMax is the longest payload of one packet. Behind a packet of exactly this
	// length the payload goes on in the next packet.
	packetBytesMax = 1<<24 - 1
	// streamBufferBytes is the read buffer of a stream. mysqld flushes 16 KiB at a time; under
	// load the kernel holds many such writes.
	streamBufferBytes = 256 << 10
	// eventBytesMax is max_log_event_size (1 GiB, sql/log_event.h), the largest event that
	// mysqld sends, plus the three bytes in front of an event in a packet of the stream. mysqld
	// may write longer events, but cannot send them.
	eventBytesMax = 1<<30 + 3
	// loginBytesMax bounds how much a peer can make us hold before it has logged in: handshake
	// packets have a few hundred bytes.
	loginBytesMax = 64 << 10
	// partBytesMax is the longest part of a payload that is read or sent in
	// parts, and the largest reassembly buffer kept between packets.
	partBytesMax = 1 << 20
)

// ErrPacketTooLarge is returned for a payload above the limit of its phase.
var ErrPacketTooLarge = errors.New("mysqlwire: packet too large")

// ErrMalformed is returned for a packet that violates the protocol.
var ErrMalformed = errors.New("mysqlwire: malformed packet")

// packetReader cuts a byte stream into payloads. It is used by one goroutine.
type packetReader struct {
	r *bufio.Reader
	// payloadBytesMax is the limit of the current phase.
	payloadBytesMax int
	// sequence is the number of the packet read last.
	sequence uint8
	scratch  []byte
	// partLeft and partLast are the state of a payload that is read in parts: how many bytes of
	// its current packet are left, and whether that packet is the last.
	partLeft int
	partLast bool
}

func newPacketReader(r io.Reader, bufferBytes, payloadBytesMax int) *packetReader {
	return &packetReader{r: bufio.NewReaderSize(r, bufferBytes), payloadBytesMax: payloadBytesMax}
}

// ready reports whether next would return without reading from the stream.
// It may say no for a payload that is larger than the buffer.
func (p *packetReader) ready() bool {
	n := p.r.Buffered()
	if n < packetHeaderBytes {
		return false
	}
	head, err := p.r.Peek(packetHeaderBytes)
	return err == nil && n >= packetHeaderBytes+payloadBytes(head)
}

// next returns the next payload, joined if it came in several packets. It is valid until the
// next call. Where the stream ends between packets it returns io.EOF, and inside a packet
// io.ErrUnexpectedEOF.
func (p *packetReader) next() ([]byte, error) {
	if cap(p.scratch) > partBytesMax {
		p.scratch = nil
	}
	head, err := p.r.Peek(packetHeaderBytes)
	if err != nil {
		return nil, cutShort(err, len(head) > 0)
	}
	n := payloadBytes(head)
	if n > p.payloadBytesMax {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrPacketTooLarge, n, p.payloadBytesMax)
	}
	if n == packetBytesMax || packetHeaderBytes+n > p.r.Size() {
		return p.nextLarge()
	}
	p.sequence = head[3]
	packet, err := p.r.Peek(packetHeaderBytes + n)
	if err != nil {
		return nil, cutShort(err, true)
	}
	if _, err := p.r.Discard(len(packet)); err != nil {
		return nil, err
	}
	return packet[packetHeaderBytes:], nil
}

// nextLarge reads a payload that does not fit into the read buffer.
func (p *packetReader) nextLarge() ([]byte, error) {
	p.scratch = p.scratch[:0]
	for {
		var head [packetHeaderBytes]byte
		if _, err := io.ReadFull(p.r, head[:]); err != nil {
			return nil, cutShort(err, true)
		}
		p.sequence = head[3]
		n, at := payloadBytes(head[:]), len(p.scratch)
		if at+n > p.payloadBytesMax {
			return nil, fmt.Errorf("%w: over %d bytes", ErrPacketTooLarge, p.payloadBytesMax)
		}
		p.scratch = append(p.scratch, make([]byte, n)...)
		if _, err := io.ReadFull(p.r, p.scratch[at:]); err != nil {
			return nil, cutShort(err, true)
		}
		if n < packetBytesMax {
			return p.scratch, nil
		}
	}
}

// peek returns the first n bytes of the next payload, or all of a shorter payload, without
// consuming them. n must be much smaller than the buffer. The bytes are valid until the next
// call.
func (p *packetReader) peek(n int) ([]byte, error) {
	head, err := p.r.Peek(packetHeaderBytes)
	if err != nil {
		return nil, cutShort(err, len(head) > 0)
	}
	packet, err := p.r.Peek(packetHeaderBytes + min(payloadBytes(head), n))
	if err != nil {
		return nil, cutShort(err, true)
	}
	return packet[packetHeaderBytes:], nil
}

// part returns the next part of a payload, at most partBytesMax bytes, and whether it is the
// last part, which may be empty. The part is valid until the next call. A payload of which one
// part was read must be read in parts to its end.
func (p *packetReader) part() (part []byte, last bool, err error) {
	if p.partLeft == 0 {
		var head [packetHeaderBytes]byte
		if _, err := io.ReadFull(p.r, head[:]); err != nil {
			return nil, false, cutShort(err, true)
		}
		p.sequence, p.partLeft = head[3], payloadBytes(head[:])
		p.partLast = p.partLeft < packetBytesMax
	}
	n := min(p.partLeft, partBytesMax)
	p.scratch = slices.Grow(p.scratch[:0], n)[:n]
	if _, err := io.ReadFull(p.r, p.scratch); err != nil {
		return nil, false, cutShort(err, true)
	}
	p.partLeft -= n
	return p.scratch, p.partLast && p.partLeft == 0, nil
}

func cutShort(err error, inside bool) error {
	if inside && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func payloadBytes(head []byte) int {
	return int(head[0]) | int(head[1])<<8 | int(head[2])<<16
}

// appendPacketHeader appends the header of a packet with n payload bytes.
func appendPacketHeader(dst []byte, n int, sequence uint8) []byte {
	return append(dst, byte(n), byte(n>>8), byte(n>>16), sequence)
}

// wire is a connection in its request/response phase: login and commands.
// Streams have their own framing, because the two directions are then
// independent. One goroutine uses it at a time.
type wire struct {
	conn net.Conn
	in   *packetReader
	// sequence is the number of the next packet to write.
	sequence uint8
}

func (w *wire) read() ([]byte, error) {
	payload, err := w.in.next()
	w.sequence = w.in.sequence + 1
	return payload, err
}

// write sends payloads as one packet each, in one system call. Each is shorter
// than packetBytesMax: requests and responses are small.
func (w *wire) write(payloads ...[]byte) error {
	var out []byte
	for _, payload := range payloads {
		if len(payload) >= packetBytesMax {
			return fmt.Errorf("%w: %d bytes to send", ErrPacketTooLarge, len(payload))
		}
		out = appendPacketHeader(out, len(payload), w.sequence)
		out = append(out, payload...)
		w.sequence++
	}
	_, err := w.conn.Write(out)
	return err
}

// command starts a new exchange: its sequence numbers count from 0.
func (w *wire) command(payload []byte) error {
	w.sequence = 0
	return w.write(payload)
}

// expectOK reads one response and returns nil for OK and a *ServerError for
// ERR.
func (w *wire) expectOK() error {
	payload, err := w.read()
	if err != nil {
		return err
	}
	switch {
	case len(payload) > 0 && payload[0] == headerOK:
		return nil
	case len(payload) > 0 && payload[0] == headerErr:
		return parseServerError(payload)
	}
	return fmt.Errorf("%w: neither OK nor an error", ErrMalformed)
}

// First bytes of a response.
const (
	headerOK        = 0x00
	headerAuthMore  = 0x01
	headerEOF       = 0xfe
	headerLocalFile = 0xfb
	headerErr       = 0xff
)

// ServerError is an ERR packet: from mysqld to the tap, or from a Source to its replica.
type ServerError struct {
	Code uint16
	// State is the five-character SQLSTATE.
	State   string
	Message string
}

// Error formats the error as MySQL clients print it.
func (e *ServerError) Error() string {
	return fmt.Sprintf("server error %d (%s): %s", e.Code, e.State, e.Message)
}

func (e *ServerError) payload() []byte {
	dst := binary.LittleEndian.AppendUint16([]byte{headerErr}, e.Code)
	dst = append(dst, '#')
	dst = append(dst, (e.State + "HY000")[:5]...)
	return append(dst, e.Message...)
}

func parseServerError(payload []byte) error {
	if len(payload) < 3 {
		return fmt.Errorf("%w: error of %d bytes", ErrMalformed, len(payload))
	}
	e := &ServerError{Code: binary.LittleEndian.Uint16(payload[1:]), State: "HY000"}
	rest := payload[3:]
	if len(rest) >= 6 && rest[0] == '#' {
		e.State, rest = string(rest[1:6]), rest[6:]
	}
	e.Message = string(rest)
	return e
}

// okPayload is OK with no rows, status "autocommit" and no warnings.
func okPayload() []byte { return []byte{headerOK, 0, 0, 2, 0, 0, 0} }

// eofPayload ends the columns or the rows of a result set.
func eofPayload() []byte { return []byte{headerEOF, 0, 0, 2, 0} }

// isEOF tells an EOF packet from a row that starts with the same byte.
func isEOF(payload []byte) bool {
	return len(payload) > 0 && len(payload) < 9 && payload[0] == headerEOF
}
