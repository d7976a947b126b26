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
	waiting map[string]*stateWaiter
}

// stateWaiter is one. done is closed once outcome is known, or nil for good.
type stateWaiter struct {
	outcome *StateOutcome
	done    chan struct{}
}

func (w *stateWaiters) add(id string) (*stateWaiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= stateWaitersMax || w.waiting[id] != nil {
		return nil, fmt.Errorf("%w: %d changes are under way", ErrNotReady, len(w.waiting))
	}
	if w.waiting == nil {
		w.waiting = map[string]*stateWaiter{}
	}
	c := &stateWaiter{done: make(chan struct{})}
	w.waiting[id] = c
	return c, nil
}

// remove ends a caller's wait, and returns what it has learnt.
func (w *stateWaiters) remove(id string) *StateOutcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[id]
	delete(w.waiting, id)
	return c.outcome
}

// answer tells who waits for a change.
func (w *stateWaiters) answer(o StateOutcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiting[o.Change.ID]; c != nil && c.outcome == nil {
		c.outcome = &o
		close(c.done)
	}
}

// stop tells all who wait that there will be no answer.
func (w *stateWaiters) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.waiting {
		if c.outcome == nil {
			close(c.done)
		}
	}
}

// ProposeState asks for a change of the cluster state and waits until it is
// committed. It fails with ErrNotLeader, ErrNotReady or what State.With says if
// nothing was proposed, with ErrStale or ErrUnfit if the change was committed and had
// no effect, and with ErrUncertain if ctx ended before it was known.
func (n *Runner) ProposeState(ctx context.Context, c cluster.Change) (StateOutcome, error) {
	w, err := n.states.add(c.ID)
	if err != nil {
		return StateOutcome{}, err
	}
	refused, err := ask(ctx, n, func(now time.Duration) error { return n.group.ProposeState(now, c) })
	if err == nil && refused == nil {
		_ = n.machine.Wait(ctx, 0, w.done)
	}
	switch outcome := n.states.remove(c.ID); {
	case outcome != nil:
		return *outcome, outcome.Ignored
	case errors.Is(err, ErrStopped):
		return StateOutcome{}, err
	case err != nil:
		return StateOutcome{}, fmt.Errorf("%w: %w", ErrUncertain, err)
	case refused != nil:
		return StateOutcome{}, refused
	}
	return StateOutcome{}, ErrUncertain
}

// CheckState tells whether this node, as the leader, would take a change now: nil,
// or what ProposeState would fail with. It proposes nothing.
func (n *Runner) CheckState(ctx context.Context, c cluster.Change) error {
	refused, err := ask(ctx, n, func(now time.Duration) error {
		_, err := n.group.CheckState(now, c)
		return err
	})
	switch {
	case errors.Is(err, ErrStopped):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return refused
}
