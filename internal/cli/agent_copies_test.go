package cli

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestCopyOfAFrozenAgent: a command that takes a copy ends if the agent hangs: before it is asked, before it answers,
// and behind a part of the copy. An agent that sends nothing and shows a sign of life may take any time.
func TestCopyOfAFrozenAgent(t *testing.T) {
	t.Parallel()
	var looks, asked atomic.Int64
	begins := true
	a := agentCopies{lookEvery: time.Millisecond}
	a.socket = onSocket(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if begins {
			_, _ = io.WriteString(w, "a part")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	frozenFrom := func(look int64) {
		looks.Store(0)
		a.hangs = func(context.Context, string) error {
			if looks.Add(1) >= look {
				return errHangs
			}
			return nil
		}
	}
	frozenFrom(1)
	if _, err := a.Log(t.Context(), 1); !errors.Is(err, errHangs) || asked.Load() > 0 {
		t.Errorf("frozen from the beginning: %v, asked %d times", err, asked.Load())
	}
	frozenFrom(20)
	copied, err := a.Data(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(copied)
	if string(got) != "a part" || !errors.Is(err, errCopyHangs) || looks.Load() < 20 {
		t.Errorf("frozen behind a part: %q, %v, after %d looks", got, err, looks.Load())
	}
	if err := copied.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	begins = false
	frozenFrom(3)
	if _, err := a.Data(t.Context()); !errors.Is(err, errCopyHangs) {
		t.Errorf("frozen before the answer: %v", err)
	}
}

// TestCopyThatIsClosed: the end of a copy ends the look at its agent, and is no hang.
func TestCopyThatIsClosed(t *testing.T) {
	t.Parallel()
	alive := func(context.Context, string) error { return nil }
	a := agentCopies{lookEvery: time.Hour, hangs: alive, socket: onSocket(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})}
	ctx, stop := context.WithCancel(t.Context())
	copied, err := a.Data(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := copied.Read(make([]byte, 1)); err == nil || errors.Is(err, errCopyHangs) || strings.Contains(err.Error(), "hangs") {
		t.Errorf("called off: %v", err)
	}
	_ = copied.Close() // it returns: the look has ended
}

// TestCopyWaitsForItsStore: the agent waits with the data for longer than command_idle; for ever if that is "0s". With the log it
// waits for a day: a full backup does not read it while it stores a piece, and it repeats that for 10 minutes. Before, the agent cut
// the log off after command_idle and a minute.
func TestCopyWaitsForItsStore(t *testing.T) {
	t.Parallel()
	never := time.Duration(math.MaxInt64).String()
	for idle, want := range map[time.Duration]string{30 * time.Minute: "31m0s", time.Minute: "2m0s", 0: never} {
		asked := make(chan string, 1)
		p := backupPlace{control: controlOptions{addr: onSocket(t, func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Query().Get("stall") })}}
		a, err := p.agent(idle)
		if err != nil {
			t.Fatal(err)
		}
		a.hangs = func(context.Context, string) error { return nil }
		if r, err := a.Data(t.Context()); err == nil {
			_ = r.Close()
		}
		if got := <-asked; got != want {
			t.Errorf("command_idle %s: the data: %q, want %q", idle, got, want)
		}
		if r, err := a.Log(t.Context(), 1); err == nil {
			_ = r.Close()
		}
		if got := <-asked; got != "24h0m0s" {
			t.Errorf("command_idle %s: the log: %q, want a day", idle, got)
		}
	}
}
