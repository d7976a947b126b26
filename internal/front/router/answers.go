package router

import (
	"context"
	"time"
)

// answersPoll is how often AwaitAnswers checks.
const answersPoll = 2 * time.Millisecond

// AwaitAnswers returns once every request that was passed to the local mysqld is answered, or
// its session has ended. If ctx ends first, it returns ctx's error.
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
