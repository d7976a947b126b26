package agent

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/agent/ownport"
	"github.com/quorate/quorate/internal/front/netfence"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// fakeFence takes states, but waits until held is closed, and fails with err.
type fakeFence struct {
	took     []netfence.State
	held     chan struct{}
	err      error
	calledAt time.Time // of the first call
}

func (f *fakeFence) Set(s netfence.State) error {
	if f.calledAt.IsZero() {
		f.calledAt = time.Now()
	}
	if f.held != nil {
		<-f.held
	}
	if f.err == nil {
		f.took = append(f.took, s)
	}
	return f.err
}

func (f *fakeFence) Close() error { return nil }

// fencedAgent is an agent whose node has no loop: each request to the node takes as long as it may take.
func fencedAgent(t *testing.T, f ownport.Fence) *Agent {
	t.Helper()
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log", Identity: [16]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	cfg := testConfig(t, "/data")
	a := &Agent{cfg: cfg, self: cfg.Self(), ctx: t.Context(), logger: slog.New(slog.DiscardHandler)}
	openBoard(a)
	a.buildReads()
	a.Raft, err = consensus.New(consensus.Config{
		Self: 1, Members: cfg.ClusterMembers(), Log: log, Logger: a.logger,
		Heartbeat: cfg.Raft.Heartbeat, ElectionTimeout: cfg.Raft.ElectionTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	// The port may be open.
	a.port.Take(&fakeFence{}, nil, func() netfence.State {
		return netfence.State{Requests: netfence.Window{Boot: 1 << 62, Wall: time.Now().Add(time.Hour)}}
	})
	if err := a.port.Refresh(); err != nil {
		t.Fatal(err)
	}
	a.port.Take(f, nil, a.portWants)
	return a
}

// TestAwaitPort: the kernel is told before a lease is given up, and before mysqld is opened. The agent goes on at
// once when the kernel has closed the windows. If the kernel does not answer, or fails, the agent goes on when the
// windows are over by themselves.
func TestAwaitPort(t *testing.T) {
	const longest = time.Second // the election timeout
	for who, run := range map[string]struct {
		f     func(a *Agent)
		later time.Duration // how long the action takes afterwards
	}{
		"await":       {func(a *Agent) { clients{a}.AwaitPort() }, 0},
		"transfer":    {func(a *Agent) { a.Duties.Transfer(a.ctx, 1, 2) }, longest},
		"resign":      {func(a *Agent) { a.Duties.Resign(a.ctx, 1) }, longest},
		"open writes": {func(a *Agent) { _ = a.Duties.OpenWrites(a.ctx, 1) }, 0}, // there is no mysqld
	} {
		for name, c := range map[string]struct {
			takes time.Duration // the kernel's time
			err   error
			want  time.Duration
		}{
			"at once":         {0, nil, 0},
			"slow":            {300 * time.Millisecond, nil, 300 * time.Millisecond},
			"fails":           {0, errors.ErrUnsupported, longest},
			"fails late":      {300 * time.Millisecond, errors.ErrUnsupported, longest},
			"does not answer": {time.Minute, nil, longest},
		} {
			t.Run(who+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fakeFence{held: make(chan struct{}), err: c.err}
					a := fencedAgent(t, f)
					time.AfterFunc(c.takes, func() { close(f.held) })
					began := time.Now()
					run.f(a)
					if took := time.Since(began); took != c.want+run.later {
						t.Errorf("it took %v; want %v", took, c.want+run.later)
					}
					<-f.held // the kernel answers once
					a.work.Wait()
					if f.calledAt != began {
						t.Errorf("the kernel was told after %v", f.calledAt.Sub(began))
					}
				})
			})
		}
	}
}
