package transport

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/raft/frame"
)

// entryCopyBytesMax is the largest entry data that is copied behind its header.
// Larger data is handed to writev(2) in place. Below 4 KiB the copy (some
// 100 ns) costs less than one more piece for the kernel to walk.
const entryCopyBytesMax = 4 << 10

// errFrameTooLarge means that a message does not fit into one frame of its
// class; it can never be sent.
var errFrameTooLarge = errors.New("transport: message exceeds the frame limit")

// batch collects frames that are written with one system call. (writev takes up to 1024 pieces at a time, so a
// batch of very many large entries needs more calls.) The zero batch is ready for use.
type batch struct {
	// buf holds all headers and all copied payloads.
	buf []byte
	// cuts are the places in buf where data belongs that was not copied.
	cuts []cut
	// pieces is the slice that whole returns.
	pieces [][]byte
}

// cut places data after the first at bytes of the buffer.
type cut struct {
	at   int
	data []byte
}

// addRaft appends a frame with m. On an error the batch is as it was before.
func (b *batch) addRaft(m *pb.Message, c class) error {
	start, firstCut := b.begin()
	t := frameRaft
	if isPlainAppend(m) {
		t = frameAppend
		b.putAppend(m)
	} else {
		buf, err := proto.MarshalOptions{}.MarshalAppend(b.buf, m)
		if err != nil {
			b.rollBack(start, firstCut)
			return fmt.Errorf("encode %v: %w", m.GetType(), err)
		}
		b.buf = buf
	}
	if err := b.finish(start, firstCut, t, c); err != nil {
		return fmt.Errorf("encode %v: %w", m.GetType(), err)
	}
	return nil
}

// add appends a frame with a copy of payload. On an error the batch is as it
// was before.
func (b *batch) add(t frameType, payload []byte, c class) error {
	start, firstCut := b.begin()
	b.buf = append(b.buf, payload...)
	return b.finish(start, firstCut, t, c)
}

func (b *batch) putAppend(m *pb.Message) {
	le := binary.LittleEndian
	b.buf = le.AppendUint64(b.buf, m.GetTerm())
	b.buf = le.AppendUint64(b.buf, m.GetLogTerm())
	b.buf = le.AppendUint64(b.buf, m.GetIndex())
	b.buf = le.AppendUint64(b.buf, m.GetCommit())
	b.buf = le.AppendUint32(b.buf, uint32(len(m.GetEntries())))
	b.buf = le.AppendUint32(b.buf, 0)
	for _, e := range m.GetEntries() {
		data := e.GetData()
		b.buf = le.AppendUint64(b.buf, e.GetTerm())
		b.buf = le.AppendUint64(b.buf, e.GetIndex())
		b.buf = append(b.buf, byte(e.GetType()), 0, 0, 0)
		b.buf = le.AppendUint32(b.buf, uint32(len(data)))
		if len(data) > entryCopyBytesMax {
			b.cuts = append(b.cuts, cut{at: len(b.buf), data: data})
		} else {
			b.buf = append(b.buf, data...)
		}
	}
}

func (b *batch) begin() (start, firstCut int) {
	start, firstCut = len(b.buf), len(b.cuts)
	b.buf = append(b.buf, make([]byte, frame.HeaderBytes)...)
	return start, firstCut
}

func (b *batch) rollBack(start, firstCut int) {
	b.buf, b.cuts = b.buf[:start], b.cuts[:firstCut]
}

// finish fills in the header of the frame that begin opened.
func (b *batch) finish(start, firstCut int, t frameType, c class) error {
	length := len(b.buf) - start - frame.HeaderBytes
	for _, part := range b.cuts[firstCut:] {
		length += len(part.data)
	}
	if limit := c.frameBytesMax(); length > int(limit) {
		b.rollBack(start, firstCut)
		return fmt.Errorf("%w: %d bytes, the limit is %d", errFrameTooLarge, length, limit)
	}
	head := b.buf[start : start+frame.HeaderBytes]
	crc := frameFormat.Begin(head, uint8(t), length)
	at := start + frame.HeaderBytes
	for _, part := range b.cuts[firstCut:] {
		crc = crc.Add(b.buf[at:part.at]).Add(part.data)
		at = part.at
	}
	crc.Add(b.buf[at:]).End(head)
	return nil
}

// whole returns all bytes of the batch, in order. They belong to the batch and are valid until reset.
func (b *batch) whole() [][]byte {
	at := 0
	for _, part := range b.cuts {
		b.pieces = append(b.pieces, b.buf[at:part.at], part.data)
		at = part.at
	}
	if at < len(b.buf) {
		b.pieces = append(b.pieces, b.buf[at:])
	}
	return b.pieces
}

func (b *batch) empty() bool { return len(b.buf) == 0 }

// reset empties the batch. It drops the entries' data, which would stay in memory otherwise, and a buffer that
// one burst made large.
func (b *batch) reset() {
	clear(b.cuts)
	clear(b.pieces)
	b.buf, b.cuts, b.pieces = b.buf[:0], b.cuts[:0], b.pieces[:0]
	if cap(b.buf) > scratchBytesMax {
		b.buf = nil
	}
}
