package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/entry"
)

// Upload is a stage that this node, the leader, writes and its peers copy as it
// grows. Write and Finish belong to one goroutine; any may close it.
type Upload struct {
	b  *Bulk
	id entry.StageID
	// writing is held over each use of w: Close may come in between.
	writing sync.Mutex
	w       StageWriter

	// attempts ends the pushes that are under way, waits the others. leave makes
	// an end of both.
	attempts, waits             context.Context
	cancelAttempts, cancelWaits context.CancelFunc
	leave                       func()

	// ended is closed by Finish, which has set end. majority is closed once this
	// node and a majority of the voters hold the stage.
	ended, majority chan struct{}
	end             trailer

	mu    sync.Mutex
	tally tally
	// users are the pushes, and the caller until it closes the Upload. The last
	// one leaves.
	users  int
	closed bool
}

// Upload creates a stage in this node's log and begins to push it to every peer.
// A lost peer is tried again until ctx ends or the Upload is closed. The caller
// must close it, also after an error and when ctx has ended.
func (b *Bulk) Upload(ctx context.Context, id entry.StageID) (*Upload, error) {
	ctx, leave, ok := b.join(ctx)
	if !ok {
		return nil, fmt.Errorf("upload stage %v: %w", id, ErrStopped)
	}
	w, err := b.cfg.Stages.CreateStage(id)
	if err != nil {
		leave()
		return nil, fmt.Errorf("create stage %v: %w", id, err)
	}
	u := &Upload{
		b: b, id: id, w: w, leave: leave, ended: make(chan struct{}), majority: make(chan struct{}),
		tally: tally{self: b.cfg.Self, voters: b.cfg.Voters}, users: 1 + len(b.peers),
	}
	u.attempts, u.cancelAttempts = context.WithCancel(ctx)
	u.waits, u.cancelWaits = context.WithCancel(u.attempts)
	for _, peer := range b.peers {
		go func() {
			defer u.release()
			u.push(peer)
		}()
	}
	return u, nil
}

// Write appends to the stage. It waits for this node's disk and for no peer.
func (u *Upload) Write(p []byte) (int, error) {
	u.writing.Lock()
	defer u.writing.Unlock()
	n, err := u.w.Write(p)
	if err != nil {
		err = fmt.Errorf("write stage %v: %w", u.id, err)
	}
	return n, err
}

// Finish says that the stage is complete, with its length and CRC32C, and
// returns when this node holds it. It is called once.
func (u *Upload) Finish(bytes uint64, crc uint32) error {
	// The peers' last fsync goes on beside this node's own. They verify the same
	// length and CRC; a stage that this node then fails to finish is never named.
	u.end = trailer{bytes: bytes, crc: crc}
	close(u.ended)
	u.writing.Lock()
	defer u.writing.Unlock()
	if err := u.w.Finish(bytes, crc); err != nil {
		return fmt.Errorf("finish stage %v: %w", u.id, err)
	}
	u.held(u.b.cfg.Self)
	return nil
}

// WaitMajority returns nil once this node and a majority of the voters hold the
// stage, fsynced. It returns an error when ctx, the context of Upload or Run has
// ended, and after Close, if that comes first.
func (u *Upload) WaitMajority(ctx context.Context) error {
	select {
	case <-u.majority:
		return nil
	default:
	}
	err := error(nil)
	select {
	case <-u.majority:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-u.waits.Done():
		err = context.Cause(u.waits)
	}
	return fmt.Errorf("wait for a majority to hold stage %v: %w", u.id, err)
}

// Close aborts the stage unless it was finished, and stops its pushes. Only if a
// majority holds it, those under way go on, while Upload's context lives: a slow
// peer would have to begin again. The next stage of such a peer waits for that.
func (u *Upload) Close() {
	u.mu.Lock()
	again, reached := u.closed, u.tally.reached()
	u.closed = true
	u.mu.Unlock()
	if again {
		return
	}
	u.cancelWaits()
	if !reached {
		u.cancelAttempts()
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	if err := u.w.Abort(); err != nil {
		u.b.cfg.Logger.Warn("cannot abort stage", "stage", u.id.String(), "err", err)
	}
	u.release()
}

func (u *Upload) release() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users--; u.users == 0 {
		u.leave()
	}
}

// held counts a node that holds the stage.
func (u *Upload) held(id cluster.NodeID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.tally.reached()
	if u.tally.add(id); !before && u.tally.reached() {
		close(u.majority)
	}
}

// push pushes the stage to one peer until that holds it.
func (u *Upload) push(peer cluster.NodeID) {
	lane := u.b.lanes[peer]
	for failures := 0; ; failures++ {
		select {
		case <-lane:
		case <-u.waits.Done():
			return
		}
		err := u.waits.Err()
		if err == nil {
			err = u.pushOnce(peer)
		}
		lane <- struct{}{}
		switch {
		case err == nil:
			u.b.counters.stagesPushed.Add(1)
			u.held(peer)
			return
		case u.waits.Err() != nil:
			return
		}
		u.b.counters.pushesFailed.Add(1)
		u.b.logFailure(failures, "cannot push stage to peer", "node", uint64(peer), "stage", u.id.String(), "err", err)
		if !pause(u.waits, failures) {
			return
		}
	}
}

// pushOnce returns nil if the peer holds the stage.
func (u *Upload) pushOnce(peer cluster.NodeID) error {
	r, err := u.b.cfg.Stages.OpenStage(u.id)
	if err != nil {
		return fmt.Errorf("open stage %v: %w", u.id, err)
	}
	defer func() { _ = r.Close() }()
	s, hangUp, err := u.b.open(u.attempts, peer, framePut, appendID(nil, u.id))
	if err != nil {
		return err
	}
	defer hangUp()
	switch t, _, err := s.next(silenceMax); {
	case err != nil:
		return err
	case t == frameDone:
		return nil
	case t != frameReady:
		return unexpected(t)
	}
	if err := u.send(s, r); err != nil {
		return err
	}
	_, err = s.expect(frameDone, answerTimeout)
	return err
}

// send sends the stage as it grows, up to its end.
func (u *Upload) send(s *stream, r StageReader) error {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	var sum trailer
	for ended := u.ended; ; {
		// Asked for before Bytes, so that no growth is missed.
		grown := r.Grown()
		n, complete := r.Bytes()
		for sum.bytes < uint64(n) {
			if err := s.sendPart(r, &sum, uint64(n)); err != nil {
				return err
			}
		}
		if ended == nil && sum.bytes == u.end.bytes {
			// The CRC is the writer's: what this disk spoilt is refused.
			return s.sendEnd(u.end)
		}
		if _, err := r.ReadAt(s.chunk()[:1], n); err != nil && !complete && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read stage at its end: %w", err)
		}
		select {
		case <-grown:
		case <-ended:
			ended = nil
		case <-ping.C:
			if err := s.send(framePing, nil); err != nil {
				return err
			}
		case <-u.attempts.Done():
			return context.Cause(u.attempts)
		}
	}
}
