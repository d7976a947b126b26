package bulk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
)

// Serve makes the copy that a peer asks for on conn, and closes conn. It returns when the copy is over, at once
// if Run is not under way, and soon after ctx or Run ends.
func (b *Bulk) Serve(ctx context.Context, from cluster.NodeID, conn Conn) {
	defer func() { _ = conn.Close() }()
	ctx, leave, ok := b.join(ctx)
	if !ok {
		return
	}
	defer leave()
	defer conn.EndWith(ctx)()
	s := b.newStream(conn)
	t, payload, err := s.next(silenceMax)
	if err == nil {
		err = b.answer(ctx, s, from, t, payload)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, seglog.ErrFull):
		b.warnSeldom(&b.ownFull, "cannot take a stage from a peer: this node's disk is full", "node", uint64(from), "err", err)
	default:
		b.logServed(from, t, err)
	}
}

func (b *Bulk) answer(ctx context.Context, s *stream, from cluster.NodeID, t frameType, payload []byte) error {
	switch t {
	case framePut, frameGet:
		id, err := parseID(payload)
		if err != nil {
			return err
		}
		if t == framePut {
			return b.servePut(s, from, id)
		}
		return b.serveGet(s, id)
	case frameEntries, frameFollow:
		if len(payload) != indexBytes {
			return fmt.Errorf("%w: request for entries of %d bytes", ErrCorrupt, len(payload))
		}
		index := binary.LittleEndian.Uint64(payload)
		if t == frameFollow {
			return b.serveFollow(ctx, s, from, index)
		}
		return b.serveEntries(s, index)
	case frameTail:
		return b.serveTail(ctx, s)
	}
	return errors.Join(unexpected(t), s.refuse(refusedFailed, fmt.Sprintf("request of unknown type %d", t)))
}

// fail tells the peer why its request fails, and returns the reason.
func (s *stream) fail(err error) error {
	code := refusedFailed
	switch {
	case errors.Is(err, seglog.ErrCompacted):
		code = refusedCompacted
	case errors.Is(err, seglog.ErrFull):
		code = refusedFull
	}
	return errors.Join(err, s.refuse(code, err.Error()))
}

// servePut receives a stage that the peer pushes. The peer must lead in the stage's term: no entry will ever
// name a stage of another node, and a stage of a later term would be kept until that term. A leader that this
// node has not heard yet tries again.
func (b *Bulk) servePut(s *stream, from cluster.NodeID, id entry.StageID) error {
	if b.cfg.Leads == nil || !b.cfg.Leads(from, id.Term) {
		return s.refuse(refusedFailed, fmt.Sprintf("node %d does not lead in term %d, as far as this node knows", from, id.Term))
	}
	release, _ := b.claim(id)
	if release == nil {
		return s.refuse(refusedBusy, "the stage is being received")
	}
	defer release()
	if b.cfg.Stages.HasStage(id) {
		return s.send(frameDone, nil)
	}
	w, err := b.createStage(id)
	if err != nil {
		return s.fail(fmt.Errorf("create stage %v: %w", id, err))
	}
	if err := s.send(frameReady, nil); err != nil {
		return b.abort(w, err)
	}
	in := body{s: s}
	if err := in.writeTo(w, math.MaxUint64); err != nil {
		err = b.abort(w, fmt.Errorf("receive stage %v: %w", id, err))
		if errors.Is(err, seglog.ErrFull) {
			// The peer is in the middle of its writes, and reads at the same time.
			err = s.fail(err)
			b.drain(s)
		}
		return err
	}
	if err := w.Finish(in.sum.bytes, in.sum.crc); err != nil {
		return s.fail(b.abort(w, fmt.Errorf("finish stage %v: %w", id, err)))
	}
	b.counters.stagesReceived.Add(1)
	return s.send(frameDone, nil)
}

// abort removes what was received of a stage. err is the reason, which abort returns.
func (b *Bulk) abort(w StageWriter, err error) error {
	b.counters.stagesAborted.Add(1)
	if e := w.Abort(); e != nil {
		err = errors.Join(err, fmt.Errorf("abort stage: %w", e))
	}
	return err
}

// serveGet sends a complete stage. A stage that still grows is not served: it may never be complete, and its
// primary pushes it to all nodes.
func (b *Bulk) serveGet(s *stream, id entry.StageID) error {
	if !b.cfg.Stages.HasStage(id) {
		return s.refuse(refusedMissing, "the stage is not here")
	}
	r, err := b.cfg.Stages.OpenStage(id)
	if err != nil {
		return s.fail(fmt.Errorf("open stage %v: %w", id, err))
	}
	defer func() { _ = r.Close() }()
	n, complete := r.Bytes()
	if !complete {
		return s.refuse(refusedMissing, "the stage is not complete here")
	}
	if err := s.send(frameReady, nil); err != nil {
		return err
	}
	var sum trailer
	for sum.bytes < uint64(n) {
		if err := s.sendPart(r, &sum, uint64(n)); err != nil {
			return fmt.Errorf("send stage %v: %w", id, err)
		}
	}
	if err := s.sendEnd(sum); err != nil {
		return fmt.Errorf("send stage %v: %w", id, err)
	}
	b.counters.stagesServed.Add(1)
	return nil
}

// sendPart sends the next chunk of a stage and adds it to sum. sum is what was sent before; end is how many
// bytes the stage has.
func (s *stream) sendPart(r StageReader, sum *trailer, end uint64) error {
	p := s.chunk()
	p = p[:min(uint64(len(p)), end-sum.bytes)]
	if n, err := r.ReadAt(p, int64(sum.bytes)); n < len(p) {
		if errors.Is(err, seglog.ErrNoStage) { // removed meanwhile
			return fmt.Errorf("read stage at %d: %w", sum.bytes, err)
		}
		return fmt.Errorf("%w: at %d: %w", ErrUnreadable, sum.bytes, err)
	}
	sum.add(p)
	return s.sendChunk(frameData, len(p))
}

func (b *Bulk) serveTail(ctx context.Context, s *stream) error {
	ctx, cancel := b.cfg.Tasks.WithTimeout(ctx, answerTimeout/2)
	defer cancel()
	t, err := b.cfg.Entries.Tail(ctx)
	if err != nil {
		return s.fail(fmt.Errorf("find the log's tail: %w", err))
	}
	return s.send(frameTail, appendTail(nil, t))
}
