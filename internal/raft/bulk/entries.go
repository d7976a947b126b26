package bulk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
)

const (
	// entryHeadBytes is the length of the head before an entry's data. Part of the format.
	entryHeadBytes = 24
	// entryBytesMax bounds an entry's data: a larger entry does not fit into MsgApp's frame of 64 MiB, so it is
	// never replicated.
	entryBytesMax = 64 << 20
)

// bodyWriter sends what is written to it as the body of a copy.
type bodyWriter struct {
	s *stream
	// n bytes of the stream's chunk wait to be sent.
	n   int
	sum trailer
}

// Write implements io.Writer.
func (w *bodyWriter) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n := copy(w.s.chunk()[w.n:], p[written:])
		w.n += n
		written += n
		if w.n == len(w.s.chunk()) {
			if err := w.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

func (w *bodyWriter) flush() error {
	w.sum.add(w.s.chunk()[:w.n])
	n := w.n
	w.n = 0
	return w.s.sendChunk(frameData, n)
}

// serveEntries sends the committed entries from index on.
func (b *Bulk) serveEntries(s *stream, index uint64) error {
	log := b.cfg.Entries.Open()
	defer log.Close()
	out := bodyWriter{s: s}
	for ready := false; ; ready = true {
		found, ok, err := log.ReadCommitted(index, chunkBytes)
		if err != nil {
			return s.fail(fmt.Errorf("read entry %d: %w", index, err))
		}
		if !ready {
			if err := s.send(frameReady, nil); err != nil {
				return err
			}
		}
		if !ok || len(found) == 0 {
			break
		}
		for i := range found {
			if err := out.writeEntry(&found[i]); err != nil {
				return err
			}
		}
		b.counters.entriesSent.Add(uint64(len(found)))
		index += uint64(len(found))
	}
	if err := out.flush(); err != nil {
		return err
	}
	return s.sendEnd(out.sum)
}

func (w *bodyWriter) writeEntry(e *seglog.Entry) error {
	le := binary.LittleEndian
	head := le.AppendUint64(make([]byte, 0, entryHeadBytes), e.Index)
	head = le.AppendUint64(head, e.Term)
	head = le.AppendUint32(head, uint32(len(e.Data)))
	if _, err := w.Write(append(head, e.Type, 0, 0, 0)); err != nil {
		return err
	}
	_, err := w.Write(e.Data)
	return err
}

// FetchEntries calls f for every entry from index on that node from knows to be committed, in order and without
// a gap. It returns f's first error. If the node's log begins behind index, the error is a seglog.ErrCompacted.
// f owns the entry.
func (b *Bulk) FetchEntries(ctx context.Context, from cluster.NodeID, index uint64, f func(seglog.Entry) error) error {
	s, hangUp, err := b.open(ctx, from, frameEntries, binary.LittleEndian.AppendUint64(nil, index))
	if err != nil {
		return fmt.Errorf("fetch entries from node %d: %w", from, err)
	}
	defer hangUp()
	if _, err := s.expect(frameReady, silenceMax); err != nil {
		return fmt.Errorf("fetch entries from node %d: %w", from, err)
	}
	in := &body{s: s}
	for term := uint64(0); ; index++ {
		e, err := in.readEntry(index, term)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fetch entry %d from node %d: %w", index, from, err)
		}
		if err := f(e); err != nil {
			return err
		}
		b.counters.entriesReceived.Add(1)
		term = e.Term
	}
}

// readEntry reads the entry with this index. The entry before it has the given term. It returns io.EOF if there
// are no more entries.
func (b *body) readEntry(index, term uint64) (seglog.Entry, error) {
	le := binary.LittleEndian
	var head [entryHeadBytes]byte
	if _, err := io.ReadFull(b, head[:]); err != nil {
		return seglog.Entry{}, err
	}
	e := seglog.Entry{Index: le.Uint64(head[:]), Term: le.Uint64(head[8:]), Type: head[20]}
	length := le.Uint32(head[16:])
	if e.Index != index || e.Term < term || length > entryBytesMax {
		return seglog.Entry{}, fmt.Errorf("%w: entry %d of term %d with %d bytes, behind entry %d of term %d",
			ErrCorrupt, e.Index, e.Term, length, index-1, term)
	}
	if length == 0 {
		return e, nil
	}
	e.Data = make([]byte, length)
	if _, err := io.ReadFull(b, e.Data); err != nil {
		if errors.Is(err, io.EOF) {
			// The end of the copy in the middle of an entry is an error.
			err = io.ErrUnexpectedEOF
		}
		return seglog.Entry{}, fmt.Errorf("read data: %w", err)
	}
	return e, nil
}

// AskTail asks a node for the tail of its log.
func (b *Bulk) AskTail(ctx context.Context, id cluster.NodeID) (Tail, error) {
	s, hangUp, err := b.open(ctx, id, frameTail, nil)
	if err != nil {
		return Tail{}, fmt.Errorf("ask node %d for its tail: %w", id, err)
	}
	defer hangUp()
	payload, err := s.expect(frameTail, answerTimeout)
	if err != nil {
		return Tail{}, fmt.Errorf("ask node %d for its tail: %w", id, err)
	}
	t, err := parseTail(payload)
	if err != nil {
		return Tail{}, fmt.Errorf("ask node %d for its tail: %w", id, err)
	}
	return t, nil
}
