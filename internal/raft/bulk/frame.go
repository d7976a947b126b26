package bulk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/raft/frame"
)

// Part of the format, do not change (docs/formats.md, "Bulk streams").
const (
	// frameBytesMax bounds a payload.
	frameBytesMax = 1 << 20

	idBytes      = 16
	indexBytes   = 8
	trailerBytes = 12
	tailBytes    = 33
)

// frameFormat is "QB" on the wire. Part of the format.
var frameFormat = frame.Format{Magic: 0x4251, Version: 1}

// frameType says what a frame's payload is. Part of the format.
type frameType uint8

const (
	framePut     frameType = 1 // id of a stage that the dialler sends
	frameGet     frameType = 2 // id of a stage that the dialler asks for
	frameEntries frameType = 3 // index from which on the dialler asks for entries
	frameTail    frameType = 4 // empty in the question; Tail in the answer
	frameReady   frameType = 5 // empty: the copy begins
	frameData    frameType = 6 // bytes of the copy
	frameEnd     frameType = 7 // trailer: the copy is complete
	frameDone    frameType = 8 // empty: the receiver holds the stage, fsynced
	framePing    frameType = 9 // empty: the sender is alive and will send more
	frameRefused frameType = 10
	frameFollow  frameType = 11 // index from which on the dialler asks for entries, without an end
	framePoint   frameType = 12 // Point of the entries in the body after it
)

// refusalCode says why the listener refused. Part of the format.
type refusalCode uint8

const (
	// refusedBusy: the stage is being received from another peer.
	refusedBusy refusalCode = 1
	// refusedMissing: the stage is not here, or not complete.
	refusedMissing refusalCode = 2
	// refusedCompacted: the entries were purged.
	refusedCompacted refusalCode = 3
	// refusedFailed: another reason, which the text says.
	refusedFailed refusalCode = 4
	// refusedFull: the disk has no room for the stage. It may come in the middle
	// of the copy.
	refusedFull refusalCode = 5
)

const (
	// chunkBytes is how much of a copy travels in a frame. At 10 KB/s that still takes less than writeTimeout,
	// and at 10 GB/s the cost of the head does not matter.
	chunkBytes = 256 << 10
	// refusalTextBytesMax bounds the sentence for people.
	refusalTextBytesMax = 1 << 10
	readBufferBytes     = 4 << 10

	// pingInterval and silenceMax: the sender of a copy sends something each second, so five seconds without a
	// byte mean that its host is gone.
	pingInterval = time.Second
	silenceMax   = 5 * time.Second
	// answerTimeout bounds answers that wait for a disk or for a majority.
	answerTimeout = 30 * time.Second
	// writeTimeout bounds the write of a frame, which may wait until the receiver's disk has taken the frames
	// before it.
	writeTimeout = 30 * time.Second
)

// ErrCorrupt means that a peer sent bytes that do not fit the protocol, or a copy whose length, checksum or
// order is wrong.
var ErrCorrupt = errors.New("bulk: corrupt stream")

// refusal is a peer's answer REFUSED.
type refusal struct {
	code refusalCode
	text string
}

// Error returns the sentence.
func (r *refusal) Error() string { return "peer refuses: " + r.text }

// Is makes errors.Is true for the error of the peer's log that caused the refusal.
func (r *refusal) Is(target error) bool {
	switch r.code {
	case refusedCompacted:
		return target == seglog.ErrCompacted
	case refusedFull:
		return target == seglog.ErrFull
	}
	return false
}

// trailer is the payload of END: the length of the whole copy and its CRC32C.
type trailer struct {
	bytes uint64
	crc   uint32
}

func (t *trailer) add(p []byte) {
	t.bytes += uint64(len(p))
	t.crc = uint32(frame.CRC(t.crc).Add(p))
}

// stream is one bulk connection. One goroutine sends and one, mostly the same, reads. Another one may close
// conn.
type stream struct {
	conn   Conn
	br     *bufio.Reader
	frames *frame.Reader
	// limit is how long a read may go without a byte; 0 = for ever.
	limit time.Duration
	// out is a head and room for a chunk. in is the last payload that was received.
	out, in []byte

	sent, received *atomic.Uint64
}

func (b *Bulk) newStream(conn Conn) *stream {
	return newStream(conn, b.cfg.ChunkBytesMax, &b.counters.bytesSent, &b.counters.bytesReceived)
}

func newStream(conn Conn, chunkBytes int, sent, received *atomic.Uint64) *stream {
	s := &stream{conn: conn, out: make([]byte, frame.HeaderBytes+chunkBytes), sent: sent, received: received}
	s.br = bufio.NewReaderSize(quietReader{s}, readBufferBytes)
	s.frames = frame.NewReader(s.br, frameFormat, ErrCorrupt, s.room)
	return s
}

// quietReader reads from a stream's connection. It gives up when nothing has come for the stream's limit.
type quietReader struct{ s *stream }

func (r quietReader) Read(p []byte) (int, error) {
	n, err := r.s.conn.Read(p, r.s.limit)
	r.s.received.Add(uint64(n))
	return n, err
}

// chunk is the room for the payload of the next frame that is sent.
func (s *stream) chunk() []byte { return s.out[frame.HeaderBytes:] }

// sendChunk sends the first n bytes of chunk.
func (s *stream) sendChunk(t frameType, n int) error {
	b := s.out[:frame.HeaderBytes+n]
	frameFormat.Fill(b, uint8(t))
	n, err := s.conn.Write(b, writeTimeout)
	s.sent.Add(uint64(n))
	if err != nil {
		return fmt.Errorf("send to peer: %w", err)
	}
	return nil
}

// send sends a frame with a payload that fits a chunk.
func (s *stream) send(t frameType, payload []byte) error {
	return s.sendChunk(t, copy(s.chunk(), payload))
}

func (s *stream) sendEnd(t trailer) error {
	b := binary.LittleEndian.AppendUint64(nil, t.bytes)
	return s.send(frameEnd, binary.LittleEndian.AppendUint32(b, t.crc))
}

func (s *stream) refuse(code refusalCode, text string) error {
	return s.send(frameRefused, append([]byte{byte(code)}, text[:min(len(text), refusalTextBytesMax)]...))
}

// drain discards what the peer sends until it hangs up, for silenceMax at most. A connection that is closed
// while it has unread bytes is reset, and the refusal that was sent before may be lost with it.
func (b *Bulk) drain(s *stream) {
	room, end := make([]byte, readBufferBytes), b.cfg.Tasks.Now()+silenceMax
	for left := silenceMax; left > 0; left = end - b.cfg.Tasks.Now() {
		n, err := s.conn.Read(room, left)
		s.received.Add(uint64(n))
		if err != nil {
			return // any end is fine
		}
	}
}

// next returns the next frame; limit is how long the read may go without a byte. The payload is valid until the
// next call. Errors: a *refusal for REFUSED, ErrCorrupt for bytes that are no frame, io.ErrUnexpectedEOF at the
// end of the stream, because no copy ends in that way.
func (s *stream) next(limit time.Duration) (frameType, []byte, error) {
	s.limit = limit
	kind, payload, err := s.frames.Next()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read from peer: %w", err)
	}
	t := frameType(kind)
	if t == frameRefused {
		if len(payload) == 0 {
			return 0, nil, fmt.Errorf("%w: refusal without a code", ErrCorrupt)
		}
		return 0, nil, &refusal{code: refusalCode(payload[0]), text: strings.ToValidUTF8(string(payload[1:]), "?")}
	}
	return t, payload, nil
}

// room implements frame.Room.
func (s *stream) room(_ uint8, length uint32) ([]byte, error) {
	if length > frameBytesMax {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrCorrupt, length, frameBytesMax)
	}
	if uint32(cap(s.in)) < length {
		s.in = make([]byte, length)
	}
	s.in = s.in[:length]
	return s.in, nil
}

// expect reads one frame, which must be of type want.
func (s *stream) expect(want frameType, limit time.Duration) ([]byte, error) {
	t, payload, err := s.next(limit)
	if err == nil && t != want {
		err = unexpected(t)
	}
	return payload, err
}

func unexpected(t frameType) error {
	return fmt.Errorf("%w: frame of type %d where none should be", ErrCorrupt, t)
}

// body is a copy that is being received: DATA frames, then END.
type body struct {
	s *stream
	// sum is the length and CRC32C of what has come.
	sum trailer
	// rest is the part of the last frame that Read has not returned yet.
	rest []byte
}

// next returns the next bytes of the copy, valid until the next call. It returns io.EOF once the copy is
// complete and verified.
func (b *body) next() ([]byte, error) {
	for {
		t, payload, err := b.s.next(silenceMax)
		switch {
		case err != nil:
			return nil, err
		case t == framePing:
		case t == frameData:
			b.sum.add(payload)
			return payload, nil
		case t == frameEnd:
			return nil, b.verify(payload)
		default:
			return nil, unexpected(t)
		}
	}
}

// writeTo writes the copy to w. A copy of more than bytesMax bytes is an error.
func (b *body) writeTo(w io.Writer, bytesMax uint64) error {
	for {
		p, err := b.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && b.sum.bytes > bytesMax {
			err = fmt.Errorf("%w: copy of more than %d bytes", ErrCorrupt, bytesMax)
		}
		if err == nil {
			_, err = w.Write(p)
		}
		if err != nil {
			return err
		}
	}
}

func (b *body) verify(payload []byte) error {
	if len(payload) != trailerBytes {
		return fmt.Errorf("%w: end of %d bytes", ErrCorrupt, len(payload))
	}
	want := trailer{binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint32(payload[8:])}
	if b.sum != want {
		return fmt.Errorf("%w: copy of %d bytes with CRC32C %08x, received %d with %08x",
			ErrCorrupt, want.bytes, want.crc, b.sum.bytes, b.sum.crc)
	}
	return io.EOF
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		var err error
		if b.rest, err = b.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func encodeID(id entry.StageID) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, id.Term), id.Number)
}

func parseID(b []byte) (entry.StageID, error) {
	if len(b) != idBytes {
		return entry.StageID{}, fmt.Errorf("%w: stage id of %d bytes", ErrCorrupt, len(b))
	}
	return entry.StageID{Term: binary.LittleEndian.Uint64(b), Number: binary.LittleEndian.Uint64(b[8:])}, nil
}

func appendTail(dst []byte, t Tail) []byte {
	for _, n := range []uint64{t.Term, t.First, t.Last, t.Commit} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	if t.Leading {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func parseTail(b []byte) (Tail, error) {
	if len(b) != tailBytes {
		return Tail{}, fmt.Errorf("%w: tail of %d bytes", ErrCorrupt, len(b))
	}
	le := binary.LittleEndian
	return Tail{
		Term: le.Uint64(b), First: le.Uint64(b[8:]), Last: le.Uint64(b[16:]), Commit: le.Uint64(b[24:]),
		Leading: b[32] == 1,
	}, nil
}
