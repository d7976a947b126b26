package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/netfence"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/consensus"
)

func TestPortState(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0)
	lease := netfence.Window{Boot: time.Hour + 900*time.Millisecond, Wall: wall.Add(900 * time.Millisecond)}
	frozen := netfence.Window{Boot: time.Hour + time.Second, Wall: wall.Add(time.Second)}
	heard := netfence.Window{Boot: time.Hour + 800*time.Millisecond, Wall: wall.Add(800 * time.Millisecond)}
	for name, c := range map[string]struct {
		in   portInput
		want netfence.State
	}{
		"nothing is so": {portInput{}, netfence.State{}},
		"the primary":   {portInput{serving: true, answering: true}, netfence.State{Requests: lease, Answers: lease, Redirected: lease, Redirect: lease}},
		"its writes are being closed: new clients are held": {portInput{serving: true, answering: true, moving: true},
			netfence.State{Requests: lease, Answers: lease, Redirected: lease}},
		"a primary without a lease":                                    {portInput{answering: true}, netfence.State{Answers: frozen}},
		"it is promoted: the lease counts before its mysqld is opened": {portInput{promoting: true}, netfence.State{Requests: lease, Answers: lease}},
		"a replica, since it asked its leader":                         {portInput{reads: true}, netfence.State{Requests: heard, Answers: heard}},
		"settled, and not yet a replica":                               {portInput{answering: true, moving: true}, netfence.State{Answers: frozen}},
		"what is still to be answered wins":                            {portInput{answering: true, reads: true}, netfence.State{Answers: frozen}},
	} {
		c.in.lease, c.in.frozen, c.in.heard = lease, frozen, heard
		if diff := cmp.Diff(c.want, portState(c.in)); diff != "" {
			t.Errorf("%s: want -, got +\n%s", name, diff)
		}
	}
}

func TestWindowLasts(t *testing.T) {
	const now = time.Hour
	wall := time.Unix(1_800_000_000, 0)
	// window has so much left by the boot clock, and ends so much later on the wall clock
	// than that says.
	window := func(left, set time.Duration) netfence.Window {
		return netfence.Window{Boot: now + left, Wall: wall.Add(left + set)}
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		has, wants netfence.Window
		want       bool
	}{
		"closed":                           {netfence.Window{}, netfence.Window{}, true},
		"to be opened":                     {netfence.Window{}, window(900*ms, 0), false},
		"to be closed":                     {window(900*ms, 0), netfence.Window{}, false},
		"to be closed, and over by itself": {window(-1*ms, 0), netfence.Window{}, false},
		"the same":                         {window(900*ms, 0), window(900*ms, 0), true},
		"renewed, half is left":            {window(450*ms, 0), window(900*ms, 0), true},
		"renewed, less is left":            {window(449*ms, 0), window(900*ms, 0), false},
		"shorter than what the kernel has": {window(900*ms, 0), window(899*ms, 0), false},
		"the wall clock was set forward":   {window(800*ms, 0), window(900*ms, time.Hour), false},
		"the wall clock was set back":      {window(800*ms, 0), window(900*ms, -time.Hour), false},
		"the wall clock is slewed":         {window(800*ms, 0), window(900*ms, ms), true},
	} {
		if got := windowLasts(c.has, c.wants, now); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// fakeFence takes states, but for as long as held is not closed, and fails with err.
type fakeFence struct {
	took     []netfence.State
	held     chan struct{}
	err      error
	calledAt time.Time // first
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

// fencedAgent is an agent whose node has no loop: whatever is asked of it takes as long as
// it may.
func fencedAgent(t *testing.T, f fence) *Agent {
	t.Helper()
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log", Identity: [16]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	cfg := testConfig(t, "/data")
	a := &Agent{cfg: cfg, self: cfg.Self(), ctx: t.Context(), logger: slog.New(slog.DiscardHandler)}
	a.buildReads()
	openBoard(a)
	a.Raft, err = consensus.New(consensus.Config{
		Self: 1, Members: cfg.ClusterMembers(), Log: log, Logger: a.logger,
		Heartbeat: cfg.Raft.Heartbeat, ElectionTimeout: cfg.Raft.ElectionTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	a.port.fence, a.port.wants = f, a.portWants
	// It may be open.
	a.port.set.Requests = netfence.Window{Boot: 1 << 62, Wall: time.Now().Add(time.Hour)}
	return a
}

// TestAwaitPort: whoever gives a lease up, or opens mysqld, tells the kernel before. It goes
// on at once when the kernel has closed the windows, and not before they are over by
// themselves when it does not answer, or fails.
func TestAwaitPort(t *testing.T) {
	const longest = time.Second // the election timeout
	for who, run := range map[string]struct {
		f     func(a *Agent)
		later time.Duration // what it takes afterwards
	}{
		"await":       {(*Agent).awaitPort, 0},
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
	if err := new(port).told(t.Context(), nil); err != nil {
		t.Errorf("nothing is fenced: %v", err)
	}
}

// TestPortTold: whoever is cancelled does not wait for the kernel.
func TestPortTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFence{held: make(chan struct{})}
		a := fencedAgent(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.port.told(ctx, a.work.Go); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(f.held)
		a.work.Wait()
	})
}

// TestRefreshPort: what the kernel has is not set again, unless a call has failed.
func TestRefreshPort(t *testing.T) {
	f := &fakeFence{}
	wants := netfence.State{Requests: netfence.Window{Boot: 1 << 62, Wall: time.Now().Add(time.Hour)}}
	p := &port{fence: f, wants: func() netfence.State { return wants }}
	refresh := func(want int) {
		t.Helper()
		if err := p.refresh(); err != nil || len(f.took) != want {
			t.Errorf("%d calls, %v; want %d", len(f.took), err, want)
		}
	}
	refresh(1)
	refresh(1)
	f.err = errors.ErrUnsupported
	wants = netfence.State{}
	if err := p.refresh(); !errors.Is(err, f.err) {
		t.Errorf("the error is %v", err)
	}
	f.err = nil
	wants = p.set // as before the failure, but the kernel may not have it
	refresh(2)
	refresh(2)
	wants = netfence.State{Requests: netfence.Window{Boot: 1, Wall: time.Now().Add(time.Hour)}} // that is over
	refresh(3)
	refresh(3)
}

// TestMysqldBind: mysqld is on an address that clients reach if that is fenced, or if the
// operator takes stale reads there. The agent reaches it on loopback.
func TestMysqldBind(t *testing.T) {
	for name, c := range map[string]struct {
		bind     string
		fence    fence
		unfenced bool
		want     string
	}{
		"loopback":    {"127.0.0.2", nil, false, "127.0.0.2"},
		"not allowed": {"10.0.0.1", nil, false, "127.0.0.1"},
		"fenced":      {"10.0.0.1", &fakeFence{}, false, "127.0.0.1,10.0.0.1"},
		"unfenced":    {"10.0.0.1", nil, true, "127.0.0.1,10.0.0.1"},
	} {
		a := &Agent{cfg: config.Config{MySQL: config.MySQL{Bind: c.bind}}}
		a.port.fence, a.port.unfenced = c.fence, c.unfenced
		if got := a.mysqldBind(); got != c.want {
			t.Errorf("%s: mysqld listens on %s, want %s", name, got, c.want)
		}
	}
}

func TestFencedAddress(t *testing.T) {
	for bind, want := range map[string]string{
		"127.0.0.1": "", "127.1.2.3": "", "::1": "", "10.0.0.1": "10.0.0.1:3306", "fd00::1": "[fd00::1]:3306",
	} {
		got := ""
		if a, fenced := fencedAddress(bind, 3306); fenced {
			got = a.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", bind, got, want)
		}
	}
}
