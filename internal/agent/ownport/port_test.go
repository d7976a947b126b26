package ownport

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/front/netfence"
)

func TestStateOf(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0)
	lease := netfence.Window{Boot: time.Hour + 900*time.Millisecond, Wall: wall.Add(900 * time.Millisecond)}
	frozen := netfence.Window{Boot: time.Hour + time.Second, Wall: wall.Add(time.Second)}
	heard := netfence.Window{Boot: time.Hour + 800*time.Millisecond, Wall: wall.Add(800 * time.Millisecond)}
	for name, c := range map[string]struct {
		in   Input
		want netfence.State
	}{
		"nothing is so": {Input{}, netfence.State{}},
		"the primary":   {Input{Serving: true, Answering: true}, netfence.State{Requests: lease, Answers: lease, Redirected: lease, Redirect: lease}},
		"its writes are being closed: new clients are held": {Input{Serving: true, Answering: true, Moving: true},
			netfence.State{Requests: lease, Answers: lease, Redirected: lease}},
		"a primary without a lease":                                    {Input{Answering: true}, netfence.State{Answers: frozen}},
		"it is promoted: the lease counts before its mysqld is opened": {Input{Promoting: true}, netfence.State{Requests: lease, Answers: lease}},
		"a replica, since it asked its leader":                         {Input{Reads: true}, netfence.State{Requests: heard, Answers: heard}},
		"settled, and not yet a replica":                               {Input{Answering: true, Moving: true}, netfence.State{Answers: frozen}},
		"what is still to be answered wins":                            {Input{Answering: true, Reads: true}, netfence.State{Answers: frozen}},
	} {
		c.in.Lease, c.in.Frozen, c.in.Heard = lease, frozen, heard
		if diff := cmp.Diff(c.want, StateOf(c.in)); diff != "" {
			t.Errorf("%s: want -, got +\n%s", name, diff)
		}
	}
}

func TestWindowLasts(t *testing.T) {
	const now = time.Hour
	wall := time.Unix(1_800_000_000, 0)
	// window returns a window that is open for left by the boot clock. By the wall clock it ends later, by set.
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

// fakeFence takes states, but waits until held is closed, and fails with err.
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

// TestTold: a call that is cancelled does not wait for the kernel.
func TestTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFence{held: make(chan struct{})}
		var p Port
		p.Take(f, nil, func() netfence.State { return netfence.State{} })
		p.set.Requests = netfence.Window{Boot: 1 << 62, Wall: time.Now().Add(time.Hour)} // the port may be open
		var work sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Told(ctx, work.Go); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(f.held)
		work.Wait()
	})
	if err := new(Port).Told(t.Context(), nil); err != nil {
		t.Errorf("nothing is fenced: %v", err)
	}
}

// TestRefresh: a state that the kernel has is not set again, unless a call has failed.
func TestRefresh(t *testing.T) {
	f := &fakeFence{}
	wants := netfence.State{Requests: netfence.Window{Boot: 1 << 62, Wall: time.Now().Add(time.Hour)}}
	var p Port
	p.Take(f, nil, func() netfence.State { return wants })
	refresh := func(want int) {
		t.Helper()
		if err := p.Refresh(); err != nil || len(f.took) != want {
			t.Errorf("%d calls, %v; want %d", len(f.took), err, want)
		}
	}
	refresh(1)
	refresh(1)
	f.err = errors.ErrUnsupported
	wants = netfence.State{}
	if err := p.Refresh(); !errors.Is(err, f.err) {
		t.Errorf("the error is %v", err)
	}
	f.err = nil
	wants = p.set // as before the failure, but the kernel may not have this state
	refresh(2)
	refresh(2)
	wants = netfence.State{Requests: netfence.Window{Boot: 1, Wall: time.Now().Add(time.Hour)}} // this window is over
	refresh(3)
	refresh(3)
}
