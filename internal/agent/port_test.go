package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/netfence"
)

func TestPortState(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0)
	lease := netfence.Window{Boot: time.Hour + 900*time.Millisecond, Wall: wall.Add(900 * time.Millisecond)}
	frozen := netfence.Window{Boot: time.Hour + time.Second, Wall: wall.Add(time.Second)}
	for name, c := range map[string]struct {
		in   portInput
		want netfence.State
	}{
		"nothing is so": {portInput{}, netfence.State{}},
		"the primary":   {portInput{serving: true, answering: true}, netfence.State{Requests: lease, Answers: lease, Redirected: lease, Redirect: lease}},
		"its writes are being closed: new clients are held": {portInput{serving: true, answering: true, moving: true},
			netfence.State{Requests: lease, Answers: lease, Redirected: lease}},
		"a primary without a lease":                                    {portInput{answering: true}, netfence.State{Answers: frozen, Redirected: frozen}},
		"it is promoted: the lease counts before its mysqld is opened": {portInput{promoting: true}, netfence.State{Requests: lease, Answers: lease}},
		"a replica that hears a leader":                                {portInput{reads: true}, netfence.State{Requests: frozen, Answers: frozen}},
		"settled, and not yet a replica":                               {portInput{answering: true, moving: true}, netfence.State{Answers: frozen, Redirected: frozen}},
		"what is still to be answered wins":                            {portInput{answering: true, reads: true}, netfence.State{Answers: frozen, Redirected: frozen}},
	} {
		c.in.lease, c.in.frozen = lease, frozen
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
		"wanted until a time that is over": {netfence.Window{}, window(-1*ms, 0), true},
		"the same":                         {window(900*ms, 0), window(900*ms, 0), true},
		"renewed, three quarters are left": {window(675*ms, 0), window(900*ms, 0), true},
		"renewed, less is left":            {window(674*ms, 0), window(900*ms, 0), false},
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
	took []netfence.State
	held chan struct{}
	err  error
}

func (f *fakeFence) Set(s netfence.State) error {
	if f.held != nil {
		<-f.held
	}
	if f.err == nil {
		f.took = append(f.took, s)
	}
	return f.err
}

func (f *fakeFence) Close() error { return nil }

// TestAwaitPort: whoever gives a lease up goes on at once when the kernel has closed the
// windows, and not before they are over by themselves when it does not answer, or fails.
func TestAwaitPort(t *testing.T) {
	const longest = time.Second
	for name, c := range map[string]struct {
		takes time.Duration // the kernel's time
		err   error
		want  time.Duration
		fails bool
	}{
		"at once":         {0, nil, 0, false},
		"slow":            {300 * time.Millisecond, nil, 300 * time.Millisecond, false},
		"fails":           {0, errors.ErrUnsupported, longest, true},
		"fails late":      {300 * time.Millisecond, errors.ErrUnsupported, longest, true},
		"does not answer": {time.Minute, nil, longest, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFence{held: make(chan struct{}), err: c.err}
				p := &port{fence: f, wants: func() netfence.State { return netfence.State{} }}
				p.set = netfence.State{Requests: netfence.Window{Boot: 1 << 62, Wall: time.Now().Add(time.Hour)}}
				time.AfterFunc(c.takes, func() { close(f.held) })
				began := time.Now()
				err := p.await(longest, func(run func()) { go run() })
				if took := time.Since(began); took != c.want || (err != nil) != c.fails {
					t.Errorf("it took %v and says %v; want %v, an error: %t", took, err, c.want, c.fails)
				}
				<-f.held // the kernel answers once
			})
		})
	}
	if err := new(port).await(longest, nil); err != nil {
		t.Errorf("nothing is fenced: %v", err)
	}
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
