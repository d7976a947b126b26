package ownport

import (
	"time"

	"github.com/quorate/quorate/internal/front/netfence"
)

// Input is everything that decides which clients pass mysqld's own port.
type Input struct {
	// Serving: this node is the primary, and Lease says for how long it may serve.
	Serving bool
	Lease   netfence.Window
	// Moving: an operator's plan holds new clients.
	Moving bool
	// Answering: requests that came under the lease may still be answered.
	Answering bool
	// Promoting: it leads, and its mysqld is about to be opened.
	Promoting bool
	// Reads: this node is a replica that has a leader. Heard is for how long it may be read,
	// counted from when it asked that leader.
	Reads bool
	Heard netfence.Window
	// Frozen is the window if no other limit is known: for as long as a frozen agent may go
	// unnoticed.
	Frozen netfence.Window
}

// StateOf says which packets pass. A primary without a lease passes answers and no requests:
// so all answers are to requests that came under the lease. A replica must not serve clients
// that have connected to the router's port.
func StateOf(in Input) netfence.State {
	switch {
	case in.Promoting:
		return netfence.State{Requests: in.Lease, Answers: in.Lease}
	case in.Serving && in.Moving:
		return netfence.State{Requests: in.Lease, Answers: in.Lease, Redirected: in.Lease}
	case in.Serving:
		return netfence.State{Requests: in.Lease, Answers: in.Lease, Redirected: in.Lease, Redirect: in.Lease}
	case in.Answering:
		return netfence.State{Answers: in.Frozen}
	case in.Reads:
		return netfence.State{Requests: in.Heard, Answers: in.Heard}
	}
	return netfence.State{}
}

// withoutEnded is s with the zero window in place of each window that is over: a window that
// is over lets nothing pass.
func withoutEnded(s netfence.State, now time.Duration) netfence.State {
	for _, w := range []*netfence.Window{&s.Requests, &s.Answers, &s.Redirected, &s.Redirect} {
		if w.Boot <= now {
			*w = netfence.Window{}
		}
	}
	return s
}

// lasts tells whether the kernel's state will do for now: the right packets pass, not for
// longer than they should, and half of the time is left. wants has no window that is over.
func lasts(has, wants netfence.State, now time.Duration) bool {
	return windowLasts(has.Requests, wants.Requests, now) &&
		windowLasts(has.Answers, wants.Answers, now) &&
		windowLasts(has.Redirected, wants.Redirected, now) &&
		windowLasts(has.Redirect, wants.Redirect, now)
}

// stepMax is how far the two clocks may part before a window is set again. A smaller difference
// may come from the scheduler, between reading the one clock and the other.
const stepMax = 50 * time.Millisecond

func windowLasts(has, wants netfence.Window, now time.Duration) bool {
	if wants.Boot == 0 || has.Boot == 0 {
		return wants.Boot == has.Boot
	}
	later, laterWall := wants.Boot-has.Boot, wants.Wall.Sub(has.Wall)
	return later >= 0 && laterWall >= 0 && (later-laterWall).Abs() < stepMax &&
		has.Boot-now >= (wants.Boot-now)/2
}
