package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

// ErrUnreadable is returned for a stage that this node's own disk does not return as it was written.
var ErrUnreadable = errors.New("this node cannot read the stage from its disk")

// Upload is a stage that this node, the leader, writes, and that its peers copy while it grows. One goroutine
// calls Write and Finish; any goroutine may call Close.
type Upload struct {
	b  *Bulk
	id entry.StageID
	// writing is held during each use of w: Close may come at any time.
	writing sync.Mutex
	w       StageWriter
	// bytes is how much was written.
	bytes atomic.Uint64

	// The end of attempts ends the pushes that are under way. The end of waits ends those that wait. leave
	// leaves the workers of the Bulk.
	attempts, waits context.Context
	cancelAttempts  context.CancelFunc
	cancelWaits     context.CancelCauseFunc
	leave           func()

	// majority is closed once this node and a majority of the voters hold the stage.
	majority chan struct{}

	mu sync.Mutex
	// end is set by Finish. grown is closed at the next change of end or of the stage's bytes; nil: no
	// goroutine waits.
	end   *trailer
	grown chan struct{}
	tally Tally
	// broken is set once this node's disk does not return the stage as written.
	broken error
	// users counts the pushes, and the caller until it closes the Upload. The last of them calls leave.
	users  int
	closed bool
}

// Upload creates a stage in this node's log and begins to push it to every peer. A lost peer is tried again
// until ctx ends or the Upload is closed. The caller must close it, even after an error and when ctx has ended.
func (b *Bulk) Upload(ctx context.Context, id entry.StageID) (*Upload, error) {
	ctx, leave, ok := b.join(ctx)
	if !ok {
		return nil, fmt.Errorf("upload stage %v: %w", id, ErrStopped)
	}
	w, err := b.createStage(id)
	if err != nil {
		leave()
		return nil, fmt.Errorf("create stage %v: %w", id, err)
	}
	u := &Upload{
		b: b, id: id, w: w, leave: leave, majority: make(chan struct{}),
		tally: NewTally(b.cfg.Self), users: 1,
	}
	u.attempts, u.cancelAttempts = context.WithCancel(ctx)
	u.waits, u.cancelWaits = context.WithCancelCause(u.attempts)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uploads[u] = struct{}{}
	u.setMembers(b.voters, b.outgoing, b.peers)
	return u, nil
}

// setMembers counts by these voters from now on, and begins to push the stage to the peers that the tally
// names.
func (u *Upload) setMembers(voters, outgoing, peers []cluster.NodeID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	var push []cluster.NodeID
	u.changed(func() { push = u.tally.SetMembers(voters, outgoing, peers) })
	for _, peer := range push {
		u.users++
		u.b.cfg.Tasks.Go(func() {
			defer u.release()
			u.push(peer)
		})
	}
}

// Write appends to the stage. It waits for this node's disk and for no peer. It returns ErrUnreadable once the
// disk has not returned what it took.
func (u *Upload) Write(p []byte) (int, error) {
	u.mu.Lock()
	broken := u.broken
	u.mu.Unlock()
	if broken != nil {
		return 0, broken
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	n, err := u.w.Write(p)
	u.bytes.Add(uint64(n))
	u.grow(nil)
	if err != nil {
		err = fmt.Errorf("write stage %v: %w", u.id, err)
	}
	return n, err
}

// Finish sets the stage's length and CRC32C, and returns when this node holds it. It is called once.
func (u *Upload) Finish(bytes uint64, crc uint32) error {
	// The peers' last fsync runs at the same time as this node's own. They verify the same length and CRC. If
	// this node then fails to finish the stage, no entry ever names it.
	u.grow(&trailer{bytes: bytes, crc: crc})
	u.writing.Lock()
	defer u.writing.Unlock()
	if err := u.w.Finish(bytes, crc); err != nil {
		return fmt.Errorf("finish stage %v: %w", u.id, err)
	}
	u.held(u.b.cfg.Self)
	return nil
}

// grow tells the pushes that there are more bytes, or what the end is.
func (u *Upload) grow(end *trailer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if end != nil {
		u.end = end
	}
	if u.grown != nil {
		close(u.grown)
		u.grown = nil
	}
}

// next returns the end, if it is known, and a channel that is closed at the next change.
func (u *Upload) next() (end *trailer, grown <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.grown == nil {
		u.grown = make(chan struct{})
	}
	return u.end, u.grown
}

// WaitMajority returns nil once this node and a majority of the present voters hold the stage, fsynced. It
// returns ErrUnreadable if this node's disk does not return the stage as written. It returns another error if
// the context of Upload or Run ends first, or Close is called first.
func (u *Upload) WaitMajority() error {
	if err := u.b.until(u.waits, u.majority); err != nil && !u.Reached() {
		return fmt.Errorf("wait for a majority to hold stage %v: %w", u.id, err)
	}
	return nil
}

// Reached tells whether WaitMajority would return nil at once.
func (u *Upload) Reached() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tally.Reached()
}

// Close aborts the stage unless it was finished, and stops its pushes. If a majority holds the stage, pushes
// that are under way go on while Upload's context lives: else a slow peer would have to begin again. The next
// stage for such a peer waits for that.
func (u *Upload) Close() {
	u.mu.Lock()
	again, reached := u.closed, u.tally.Reached()
	u.closed = true
	u.mu.Unlock()
	if again {
		return
	}
	u.b.mu.Lock()
	delete(u.b.uploads, u)
	u.b.mu.Unlock()
	u.cancelWaits(nil)
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

// release must be called without u.mu: leave locks the Bulk, and a Bulk is locked before its uploads.
func (u *Upload) release() {
	u.mu.Lock()
	u.users--
	last := u.users == 0
	u.mu.Unlock()
	if last {
		u.leave()
	}
}

// held notes that a node holds the stage.
func (u *Upload) held(id cluster.NodeID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed(func() { u.tally.Held(id) })
}

// changed makes a change of the tally. u.mu is held.
func (u *Upload) changed(change func()) {
	before := u.tally.Reached()
	change()
	if !before && u.tally.Reached() {
		close(u.majority)
	}
}

// blocked says what keeps the stage from a majority.
func (u *Upload) blocked() (full, failing []cluster.NodeID, why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tally.blocked()
}

// breaks ends the Upload because this node's own disk does not return the stage as written. It does nothing if
// a majority holds the stage. More attempts would make every commit behind the stage wait for a disk that has
// lost it. What else the disk may have lost, the next start finds. So the tap ends, and with it the mysqld and
// its transaction, for which no client got OK. The same happens when the disk takes no more.
func (u *Upload) breaks(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tally.Reached() || u.closed || u.broken != nil {
		return
	}
	u.broken = fmt.Errorf("push stage %v: %w", u.id, err)
	u.cancelWaits(u.broken)
}

// push pushes the stage to one peer until the peer holds it.
func (u *Upload) push(peer cluster.NodeID) {
	for failures, full := 0, 0; ; failures++ {
		err := u.pushInTurn(peer)
		switch {
		case err == nil:
			u.b.counters.stagesPushed.Add(1)
			u.held(peer)
			return
		case u.waits.Err() != nil:
			return
		case errors.Is(err, ErrUnreadable):
			u.breaks(err)
			return
		}
		wait := backOff(failures, 0)
		if errors.Is(err, seglog.ErrFull) {
			full++
			wait = backOff(failures, full)
		}
		u.failed(peer, failures, wait, err)
		if clock.Sleep(u.waits, u.b.cfg.Tasks, wait) != nil {
			return
		}
	}
}

// pushInTurn is pushOnce once no other push to that peer is under way.
func (u *Upload) pushInTurn(peer cluster.NodeID) error {
	release, busy := claim(&u.b.mu, u.b.lanes, peer)
	for release == nil {
		if err := u.b.until(u.waits, busy); err != nil {
			return err
		}
		release, busy = claim(&u.b.mu, u.b.lanes, peer)
	}
	defer release()
	if u.waits.Err() != nil {
		return context.Cause(u.waits)
	}
	return u.pushOnce(peer)
}

// failed notes why a peer does not hold the stage.
func (u *Upload) failed(peer cluster.NodeID, failures int, wait time.Duration, err error) {
	u.b.counters.pushesFailed.Add(1)
	u.mu.Lock()
	u.tally.tried(peer, err)
	full, failing, _ := u.tally.blocked()
	u.mu.Unlock()
	if !errors.Is(err, seglog.ErrFull) {
		if len(failing) > 0 {
			u.b.warnSeldom(&u.b.majorityFails, "commits wait: a stage cannot be copied to a majority",
				"failing", failing, "stage", u.id.String(), "bytes", u.bytes.Load(), "err", err)
		}
		u.b.logFailure(failures, "cannot push stage to peer", "node", uint64(peer), "stage", u.id.String(), "err", err)
		return
	}
	u.b.counters.stagesRefused.Add(1)
	args := []any{"node", uint64(peer), "stage", u.id.String(), "bytes", u.bytes.Load(), "again_in", wait, "err", err}
	if len(full) > 0 {
		u.b.warnSeldom(&u.b.majorityFull, "commits wait: no majority has room for a stage", append(args, "full", full)...)
	} else {
		u.b.warnSeldom(&u.b.peerFull, "a peer's disk has no room for a stage", args...)
	}
}

// pushOnce returns nil if the peer holds the stage.
func (u *Upload) pushOnce(peer cluster.NodeID) error {
	r, err := u.b.cfg.Stages.OpenStage(u.id)
	if errors.Is(err, syscall.EIO) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if err != nil {
		return fmt.Errorf("open stage %v: %w", u.id, err)
	}
	defer func() { _ = r.Close() }()
	ctx, cancel := context.WithCancelCause(u.attempts)
	defer cancel(nil)
	s, hangUp, err := u.b.open(ctx, peer, framePut, encodeID(u.id))
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
	u.mu.Lock()
	u.tally.began(peer)
	u.mu.Unlock()
	// The peer may refuse in the middle of the copy. So its answer is read at the same time.
	var answer error
	answered := make(chan struct{})
	u.b.cfg.Tasks.Go(func() {
		defer close(answered)
		if _, answer = s.expect(frameDone, 0); answer != nil {
			cancel(answer) // this closes the connection: a write may wait for the peer
		}
	})
	err = u.send(ctx, s, r)
	if err == nil {
		err = u.await(answered)
	}
	hangUp()
	_ = u.b.until(context.Background(), answered)
	if err == nil || errors.As(answer, new(*refusal)) && !errors.Is(err, ErrUnreadable) {
		return answer // err is only what the refusal did to the copy
	}
	return err
}

// await waits for the peer's answer to a complete copy.
func (u *Upload) await(answered <-chan struct{}) error {
	ctx, cancel := u.b.cfg.Tasks.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if u.b.until(ctx, answered) != nil {
		return fmt.Errorf("wait for the peer's answer: %w", os.ErrDeadlineExceeded)
	}
	return nil
}

// send sends the stage while it grows, up to its end.
func (u *Upload) send(ctx context.Context, s *stream, r StageReader) error {
	now := u.b.cfg.Tasks.Now
	var sum trailer
	for ping := now() + pingInterval; ; {
		// next is called before Bytes, so that no growth is missed.
		end, grown := u.next()
		n, complete := r.Bytes()
		for sum.bytes < uint64(n) {
			if err := s.sendPart(r, &sum, uint64(n)); err != nil {
				return err
			}
		}
		if end != nil && sum.bytes == end.bytes {
			if sum != *end {
				return fmt.Errorf("%w: it reads %d bytes with other content", ErrUnreadable, sum.bytes)
			}
			return s.sendEnd(sum)
		}
		if _, err := r.ReadAt(s.chunk()[:1], n); err != nil && !complete && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read stage at its end: %w", err)
		}
		if now() >= ping {
			ping = now() + pingInterval
			if err := s.send(framePing, nil); err != nil {
				return err
			}
		}
		if err := u.b.cfg.Tasks.Wait(ctx, max(ping-now(), 1), grown); err != nil {
			return err
		}
	}
}
