package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// stateWaitersMax bounds the callers that wait for a change to be committed.
const stateWaitersMax = 64

// ErrUncertain: the change was not seen to be committed in time. It may still be.
var ErrUncertain = errors.New("no majority has committed the change in time: it may still take effect, and \"quorate audit\" shows it then")

// stateWaiters are the callers that wait, by their change's id.
type stateWaiters struct {
	mu      sync.Mutex
	waiting map[string]chan StateOutcome
}

func (w *stateWaiters) add(id string) (chan StateOutcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= stateWaitersMax || w.waiting[id] != nil {
		return nil, fmt.Errorf("%w: %d changes are under way", ErrNotReady, len(w.waiting))
	}
	if w.waiting == nil {
		w.waiting = map[string]chan StateOutcome{}
	}
	c := make(chan StateOutcome, 1)
	w.waiting[id] = c
	return c, nil
}

func (w *stateWaiters) remove(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, id)
}

func (w *stateWaiters) answer(o StateOutcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.waiting[o.Change.ID] <- o:
	default: // nobody waits for it here
	}
}

// ProposeState asks for a change of the cluster state and waits until it is
// committed. It fails with ErrNotLeader, ErrNotReady or what State.With says if
// nothing was proposed, with ErrStale if another change came first, and with
// ErrUncertain if ctx ended before it was known.
func (n *Node) ProposeState(ctx context.Context, c cluster.Change) (StateOutcome, error) {
	outcome, err := n.states.add(c.ID)
	if err != nil {
		return StateOutcome{}, err
	}
	defer n.states.remove(c.ID)
	proposed := make(chan error, 1)
	n.do(ctx, func(now time.Duration) { proposed <- n.group.ProposeState(now, c) })
	select {
	case err := <-proposed:
		if err != nil {
			return StateOutcome{}, err
		}
	case <-ctx.Done():
		return StateOutcome{}, fmt.Errorf("%w: %w", ErrUncertain, ctx.Err())
	case <-n.stopped:
		return StateOutcome{}, ErrStopped
	}
	select {
	case o := <-outcome:
		if !o.Applied {
			return o, ErrStale
		}
		return o, nil
	case <-ctx.Done():
		return StateOutcome{}, ErrUncertain
	case <-n.stopped:
		return StateOutcome{}, ErrUncertain
	}
}

// CheckState tells whether this node, as the leader, would take a change now: nil,
// or what ProposeState would fail with. It proposes nothing.
func (n *Node) CheckState(ctx context.Context, c cluster.Change) error {
	checked := make(chan error, 1)
	n.do(ctx, func(now time.Duration) {
		_, err := n.group.CheckState(now, c)
		checked <- err
	})
	select {
	case err := <-checked:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNotReady, ctx.Err())
	case <-n.stopped:
		return ErrStopped
	}
}
