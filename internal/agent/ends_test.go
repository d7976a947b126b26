package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestStopIsNoFailure: a stop ends a node's join, or the healing of its log, without an error. The
// context's end may have a cause, as that of a signal has, and what waits by a clock returns it.
func TestStopIsNoFailure(t *testing.T) {
	stopped, stop := context.WithCancelCause(t.Context())
	stop(errors.New("terminated signal received"))
	broken := errors.New("broken")
	for _, c := range []struct {
		what      string
		ctx       context.Context
		err, want error
	}{
		{"the cause", stopped, fmt.Errorf("heal the log: %w", context.Cause(stopped)), nil},
		{"the context's error", stopped, fmt.Errorf("heal the log: %w", stopped.Err()), nil},
		{"a failure", stopped, broken, broken},
		{"nobody has stopped it", t.Context(), context.Canceled, context.Canceled},
	} {
		if got := unlessStopped(c.ctx, c.err); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
