package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/frame"
)

// Part of the format, do not change (docs/formats.md, "Peer protocol").
const (
	appendHeaderBytes = 40
	entryHeaderBytes  = 24
)

// frameFormat is "QF" on the wire. Part of the format.
var frameFormat = frame.Format{Magic: 0x4651, Version: 1}

// frameType says what a frame's payload is. Part of the format.
type frameType uint8

const (
	frameRaft   frameType = 1 // a raftpb.Message in protobuf
	frameAppend frameType = 2 // a MsgApp in our own layout
	frameStatus frameType = 3 // an opaque status blob
	framePing   frameType = 4 // empty: the sender is alive and has nothing to say
)

const (
	// appendFrameBytesMax bounds a frame on an append connection: a message has entries of
	// at most 1 MiB together, or a single one of at most 60 MiB (agent.entryBytesMax).
	appendFrameBytesMax = 64 << 20
	// controlFrameBytesMax bounds a frame on a control connection. Raft's own
	// messages there have under 200 bytes; a status blob (two GTID sets at
	// most) stays below 100 KiB. Larger ones would delay heartbeats.
	controlFrameBytesMax = 1 << 20
	// scratchBytesMax is the largest buffer that is kept for the next frame.
	scratchBytesMax = 1 << 20
	// readBufferBytes lets one read(2) take in a burst of small frames; data
	// of larger frames is read straight into its own buffer.
	readBufferBytes = 256 << 10
)

// ErrCorrupt means that a peer sent bytes that are no frame of this protocol
// version. The connection cannot be used any further.
var ErrCorrupt = errors.New("transport: corrupt frame")

// isPlainAppend tells whether m is a MsgApp that frameAppend can carry without loss: no field is set that Raft
// does not fill in.
func isPlainAppend(m *pb.Message) bool {
	if m.GetType() != pb.MsgApp || m.Vote != nil || m.Snapshot != nil || m.Reject != nil ||
		m.RejectHint != nil || m.Context != nil || m.Responses != nil {
		return false
	}
	for _, e := range m.GetEntries() {
		if uint32(e.GetType()) > 0xff {
			return false
		}
	}
	return true
}

// decodeAppend decodes the payload of a frameAppend that node from sent to
// node to. The entries' data aliases payload, which the message then owns.
func decodeAppend(payload []byte, from, to cluster.NodeID) (*pb.Message, error) {
	if len(payload) < appendHeaderBytes {
		return nil, fmt.Errorf("%w: append of %d bytes", ErrCorrupt, len(payload))
	}
	le := binary.LittleEndian
	count := uint64(le.Uint32(payload[32:]))
	rest := payload[appendHeaderBytes:]
	// This is checked before count decides how much is allocated.
	if count*entryHeaderBytes > uint64(len(rest)) {
		return nil, fmt.Errorf("%w: append of %d bytes names %d entries", ErrCorrupt, len(payload), count)
	}
	// One allocation for all numbers and one for all entries, instead of four for each entry. They are all
	// freed together anyway.
	nums := make([]uint64, 6+2*count)
	entries := make([]pb.Entry, count)
	types := make([]pb.EntryType, count)
	m := &pb.Message{Type: pb.MsgApp.Enum(), Entries: make([]*pb.Entry, count)}
	m.From, m.To, m.Term, m.LogTerm, m.Index, m.Commit = &nums[0], &nums[1], &nums[2], &nums[3], &nums[4], &nums[5]
	nums[0], nums[1] = uint64(from), uint64(to)
	for i := range 4 {
		nums[2+i] = le.Uint64(payload[8*i:])
	}
	for i := range entries {
		if len(rest) < entryHeaderBytes {
			return nil, fmt.Errorf("%w: append ends within the header of entry %d", ErrCorrupt, i)
		}
		e, n := &entries[i], uint64(le.Uint32(rest[20:]))
		e.Term, e.Index, e.Type = &nums[6+2*i], &nums[7+2*i], &types[i]
		*e.Term, *e.Index = le.Uint64(rest), le.Uint64(rest[8:])
		types[i] = pb.EntryType(rest[16])
		rest = rest[entryHeaderBytes:]
		if n > uint64(len(rest)) {
			return nil, fmt.Errorf("%w: append ends within the data of entry %d", ErrCorrupt, i)
		}
		if n > 0 {
			// The capacity is cut so that an append to one entry's data can
			// never reach into the next one's.
			e.Data = rest[:n:n]
		}
		rest = rest[n:]
		m.Entries[i] = e
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the last entry of an append", ErrCorrupt, len(rest))
	}
	return m, nil
}

// decodeRaft decodes the payload of a frameRaft. The message owns its memory. decodeRaft checks that the
// message is from and to the nodes of the handshake.
func decodeRaft(payload []byte, from, to cluster.NodeID) (*pb.Message, error) {
	m := &pb.Message{}
	if err := proto.Unmarshal(payload, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if m.GetFrom() != uint64(from) || m.GetTo() != uint64(to) {
		return nil, fmt.Errorf("%w: %v from node %d to node %d on the connection from node %d to node %d",
			ErrCorrupt, m.GetType(), m.GetFrom(), m.GetTo(), from, to)
	}
	return m, nil
}

// frameReader cuts a byte stream into frames.
type frameReader struct {
	br     *bufio.Reader
	frames *frame.Reader
	// bytesMax bounds the payload.
	bytesMax uint32
	scratch  []byte
}

func newFrameReader(r io.Reader, c class) *frameReader {
	f := &frameReader{br: bufio.NewReaderSize(r, readBufferBytes), bytesMax: c.frameBytesMax()}
	f.frames = frame.NewReader(f.br, frameFormat, ErrCorrupt, f.room)
	return f
}

// next returns the next frame. The payload of a frameAppend or frameStatus belongs to the caller. Any other
// payload is valid until the next call. Errors: io.EOF at the end of the stream, io.ErrUnexpectedEOF within a
// frame, ErrCorrupt for bytes that are no frame.
func (r *frameReader) next() (frameType, []byte, error) {
	t, payload, err := r.frames.Next()
	return frameType(t), payload, err
}

// more tells whether the whole next frame is in the buffer already, and has a Raft message.
func (r *frameReader) more() bool {
	if r.br.Buffered() < frame.HeaderBytes {
		return false
	}
	header, _ := r.br.Peek(frame.HeaderBytes) // Peek cannot fail: the bytes are buffered
	kind, length := frame.KindAndLength(header)
	t := frameType(kind)
	return (t == frameRaft || t == frameAppend) && int64(r.br.Buffered()) >= frame.HeaderBytes+int64(length)
}

// room implements frame.Room.
func (r *frameReader) room(kind uint8, length uint32) ([]byte, error) {
	if length > r.bytesMax {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrCorrupt, length, r.bytesMax)
	}
	if t := frameType(kind); t == frameAppend || t == frameStatus || length > scratchBytesMax {
		return nil, nil
	}
	if uint32(cap(r.scratch)) < length {
		r.scratch = make([]byte, length)
	}
	return r.scratch[:length], nil
}
