package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// TestStopIsNoFailure: a stop ends a node's join, or the healing of its log, without an error. The context's end may
// have a cause, such as a signal, and a wait by a clock returns that cause.
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

// TestEndOfAPart: the error that ends a part of the node is returned, and an error while it ends is logged. No error
// is both returned and logged, and none is lost.
func TestEndOfAPart(t *testing.T) {
	departure, broken := errors.New("this node is rebuilt"), errors.New("broken")
	for _, c := range []struct {
		what          string
		ends, ran     error
		returned      error
		loggedNothing bool
	}{
		{"a part fails", nil, broken, broken, true},
		{"the node departs", departure, departure, departure, true},
		{"a part fails while the node departs", departure, broken, departure, false},
		{"the context's error is no failure", departure, context.Canceled, departure, true},
		{"it is done", context.Canceled, nil, context.Canceled, true},
	} {
		logged := &bytes.Buffer{}
		a := &Agent{logger: slog.New(slog.NewTextHandler(logged, nil))}
		ctx, end := context.WithCancelCause(t.Context())
		if c.ends != nil {
			end(c.ends)
		}
		eg, ctx := errgroup.WithContext(ctx)
		eg.Go(func() error { return c.ran })
		if err := a.endOf(ctx, eg.Wait()); !errors.Is(err, c.returned) {
			t.Errorf("%s: returned %v, want %v", c.what, err, c.returned)
		}
		if (logged.Len() == 0) != c.loggedNothing || !c.loggedNothing && !strings.Contains(logged.String(), c.ran.Error()) {
			t.Errorf("%s: logged %q", c.what, logged)
		}
		end(nil)
	}
}
