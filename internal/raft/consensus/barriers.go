package consensus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/sys/clock"
)

// barriersMax bounds the callers that wait for a read barrier.
const barriersMax = 64

// Barriers are the callers that wait for a read barrier. The fields are required and do not
// change.
type Barriers struct {
	Committed *Committed
	Clock     clock.Clock
	// Retry is the time after which an unanswered barrier is begun again. Without a leader a barrier is
	// dropped.
	Retry time.Duration
	// Start makes a turn call Group.StartBarrier(id), or Group.AskLeader(id). The answer comes back by Answer.
	Start func(ctx context.Context, id uint64, kind barrierKind)
	// First is the number of the first barrier. It must be random: an answer to a former life of this process
	// may still be on its way, and must not answer a barrier of this life.
	First uint64

	mu      sync.Mutex
	begun   uint64
	waiting map[uint64]*barrier
	stopped bool
}

type barrier struct {
	index    uint64
	answered bool
	done     chan struct{} // closed once the barrier is answered, or when there will be no answer
}

// Ask waits until a leader confirms that a majority still followed it when Ask was called or later. index is
// what was committed then. Ask fails only with ctx or when the node stops.
func (b *Barriers) Ask(ctx context.Context, kind barrierKind) (index uint64, err error) {
	id, w, err := b.add()
	if err != nil {
		return 0, err
	}
	defer b.remove(id)
	retry := b.Retry
	if kind == contextAsk {
		retry *= 2 // the next round may be a heartbeat interval away
	}
	for {
		b.Start(ctx, id, kind)
		waited := b.Clock.Wait(ctx, retry, w.done)
		index, done, err := b.look(w)
		switch {
		case done || err != nil:
			return index, err
		case waited != nil:
			return 0, fmt.Errorf("no majority of the nodes answers: %w", waited)
		}
	}
}

// Wait returns once the commit check of this node has passed everything that was committed anywhere when Wait
// was called. It fails as Ask does.
func (b *Barriers) Wait(ctx context.Context) error {
	index, err := b.Ask(ctx, contextBarrier)
	if err != nil {
		return err
	}
	return b.await(ctx, index)
}

// await waits until the commit check has passed index.
func (b *Barriers) await(ctx context.Context, index uint64) error {
	for {
		mark, changed := b.Committed.Changed()
		if mark.Index >= index {
			return nil
		}
		if _, _, err := b.look(&barrier{}); err != nil {
			return err
		}
		if err := b.Clock.Wait(ctx, b.Retry, changed); err != nil {
			return fmt.Errorf("wait for index %d to be committed here: %w", index, err)
		}
	}
}

// Answer takes the answer to a barrier.
func (b *Barriers) Answer(a Barrier) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiting[a.ID]; w != nil && !w.answered && !b.stopped {
		w.index, w.answered = a.Index, true
		close(w.done)
	}
}

// Stop makes all waiting callers fail with ErrStopped, within Retry.
func (b *Barriers) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.waiting {
		if !w.answered && !b.stopped {
			close(w.done)
		}
	}
	b.stopped = true
}

func (b *Barriers) add() (uint64, *barrier, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return 0, nil, ErrStopped
	}
	if len(b.waiting) >= barriersMax {
		return 0, nil, fmt.Errorf("consensus: %d read barriers wait already", barriersMax)
	}
	if b.waiting == nil {
		b.waiting = map[uint64]*barrier{}
	}
	id, w := b.First+b.begun, &barrier{done: make(chan struct{})}
	b.begun++
	b.waiting[id] = w
	return id, w, nil
}

func (b *Barriers) remove(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, id)
}

// look returns a barrier's answer, if there is one, or ErrStopped if there will be none.
func (b *Barriers) look(w *barrier) (index uint64, answered bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped && !w.answered {
		return 0, false, ErrStopped
	}
	return w.index, w.answered, nil
}
