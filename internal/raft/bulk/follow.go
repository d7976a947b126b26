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
	// pointBytes is the length of a Point. Part of the format.
	pointBytes = 24
	// followBytesMax bounds the data that the follower holds of one part. A longer entry is a part by itself.
	followBytesMax = 1 << 20
	// followEntriesMax bounds the number of entries in one part. Every entry but the empty one that begins a
	// term has a header of its own.
	followEntriesMax = followBytesMax / 8
)

// Point says for which leader entries are given, and up to which index that is allowed (consensus.RelayPoint).
type Point struct {
	Term   uint64
	Leader cluster.NodeID
	Commit uint64
}

// Source feeds learners.
type Source interface {
	// Open returns the committed log, which node to follows until it is closed.
	Open(to cluster.NodeID) Feed
}

// Feed is the committed log for one learner that follows it.
type Feed interface {
	// Next returns committed entries from index on, at most bytesMax bytes of them unless the first is larger.
	// It waits until there are some. If ctx ends before, it returns no entries and no error. An error ends the
	// stream: this node cannot feed that learner now.
	Next(ctx context.Context, index, bytesMax uint64) (Point, []seglog.Entry, error)
	Close()
}

// serveFollow sends the committed entries from index on, and later ones when they are committed.
func (b *Bulk) serveFollow(ctx context.Context, s *stream, to cluster.NodeID, index uint64) error {
	if b.cfg.Source == nil {
		return s.refuse(refusedFailed, "this node is not a source of any learner")
	}
	feed := b.cfg.Source.Open(to)
	defer feed.Close()
	for ready := false; ; ready = true {
		waiting, cancel := b.cfg.Tasks.WithTimeout(ctx, pingInterval)
		p, found, err := feed.Next(waiting, index, followBytesMax)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return s.fail(fmt.Errorf("feed entry %d: %w", index, err))
		}
		if !ready {
			if err := s.send(frameReady, nil); err != nil {
				return err
			}
		}
		if len(found) == 0 {
			err = s.send(framePing, nil)
		} else {
			err = s.sendPartOfLog(p, found)
		}
		if err != nil {
			return err
		}
		b.counters.entriesSent.Add(uint64(len(found)))
		index += uint64(len(found))
	}
}

// sendPartOfLog sends a point and the entries that belong to it.
func (s *stream) sendPartOfLog(p Point, found []seglog.Entry) error {
	if err := s.send(framePoint, appendPoint(nil, p)); err != nil {
		return err
	}
	out := bodyWriter{s: s}
	for i := range found {
		if err := out.writeEntry(&found[i]); err != nil {
			return err
		}
	}
	if err := out.flush(); err != nil {
		return err
	}
	return s.sendEnd(out.sum)
}

// Follow gets from node from the committed entries from index on, and later ones when they are committed, until
// ctx or the stream ends. It calls f for each part, in order and without a gap; f owns the entries. It calls
// alive at least every second while that node could send more. An error of alive or f ends the stream.
func (b *Bulk) Follow(ctx context.Context, from cluster.NodeID, index uint64, f func(Point, []seglog.Entry) error, alive func() error) error {
	ctx, leave, ok := b.join(ctx)
	if !ok {
		return ErrStopped
	}
	defer leave()
	s, hangUp, err := b.open(ctx, from, frameFollow, binary.LittleEndian.AppendUint64(nil, index))
	if err != nil {
		return fmt.Errorf("follow node %d: %w", from, err)
	}
	defer hangUp()
	term := uint64(0)
	for {
		t, payload, err := s.next(silenceMax)
		if err != nil {
			return fmt.Errorf("follow node %d: %w", from, err)
		}
		switch t {
		case frameReady, framePing:
			err = alive()
		case framePoint:
			var p Point
			var found []seglog.Entry
			if p, found, err = s.readPartOfLog(payload, index, term); err == nil {
				index, term = index+uint64(len(found)), found[len(found)-1].Term
				b.counters.entriesReceived.Add(uint64(len(found)))
				if err = alive(); err == nil {
					err = f(p, found)
				}
			}
		default:
			err = unexpected(t)
		}
		if err != nil {
			return fmt.Errorf("follow node %d at entry %d: %w", from, index, err)
		}
	}
}

func (s *stream) readPartOfLog(payload []byte, index, term uint64) (p Point, found []seglog.Entry, err error) {
	if p, err = parsePoint(payload); err != nil {
		return p, nil, err
	}
	in := &body{s: s}
	for bytes := 0; ; {
		e, err := in.readEntry(index+uint64(len(found)), term)
		switch {
		case errors.Is(err, io.EOF) && len(found) > 0:
			return p, found, nil
		case errors.Is(err, io.EOF):
			return p, nil, fmt.Errorf("%w: a part of the log without an entry", ErrCorrupt)
		case err != nil:
			return p, nil, err
		case len(found) > 0 && bytes+len(e.Data) > followBytesMax:
			return p, nil, fmt.Errorf("%w: a part of the log of more than %d bytes", ErrCorrupt, followBytesMax)
		case len(found) == followEntriesMax:
			return p, nil, fmt.Errorf("%w: a part of the log of more than %d entries", ErrCorrupt, followEntriesMax)
		}
		found, bytes, term = append(found, e), bytes+len(e.Data), e.Term
	}
}

func appendPoint(dst []byte, p Point) []byte {
	for _, n := range []uint64{p.Term, uint64(p.Leader), p.Commit} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return dst
}

func parsePoint(b []byte) (Point, error) {
	if len(b) != pointBytes {
		return Point{}, fmt.Errorf("%w: point of %d bytes", ErrCorrupt, len(b))
	}
	le := binary.LittleEndian
	return Point{Term: le.Uint64(b), Leader: cluster.NodeID(le.Uint64(b[8:])), Commit: le.Uint64(b[16:])}, nil
}
