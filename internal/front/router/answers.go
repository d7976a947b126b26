package router

import (
	"context"
	"time"
)

// answersPoll is how often AwaitAnswers looks.
const answersPoll = 2 * time.Millisecond

// AwaitAnswers returns once every request that was passed to the local mysqld has
// been answered, or its session is gone; with ctx's error if that ends first.
func (r *Router) AwaitAnswers(ctx context.Context) error {
	ticker := time.NewTicker(answersPoll)
	defer ticker.Stop()
	for r.unanswered() > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (r *Router) unanswered() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.sessions {
		if s.Local && s.waits() {
			n++
		}
	}
	return n
}
