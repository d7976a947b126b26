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

// stateWaiters are the callers that wait for a change, by the id of the change.
type stateWaiters struct {
	mu      sync.Mutex
	waiting map[string]*stateWaiter
}

// stateWaiter is one such caller. done is closed once outcome is set, or when there will be none.
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

// remove ends a caller's wait, and returns the outcome, if there is one.
func (w *stateWaiters) remove(id string) *StateOutcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[id]
	delete(w.waiting, id)
	return c.outcome
}

// answer gives the outcome of a change to the caller that waits for it.
func (w *stateWaiters) answer(o StateOutcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiting[o.Change.ID]; c != nil && c.outcome == nil {
		c.outcome = &o
		close(c.done)
	}
}

// stop tells all callers that there will be no answer.
func (w *stateWaiters) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.waiting {
		if c.outcome == nil {
			close(c.done)
		}
	}
}

// ProposeState asks for a change of the cluster state and waits until it is committed. It fails with
// ErrNotLeader, ErrNotReady or the error of State.With if nothing was proposed; with ErrStale or ErrUnfit if
// the change was committed and had no effect; with ErrUncertain if ctx ended before the outcome was known.
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

// CheckState tells whether this node, as the leader, would accept a change now: nil, or the error with which
// ProposeState would fail. It proposes nothing.
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
