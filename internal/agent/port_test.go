package agent

import (
	"testing"
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
		"the primary":   {portInput{serving: true, answering: true}, netfence.State{Requests: lease, Answers: lease, Redirect: lease}},
		"its writes are being closed: new clients are held": {portInput{serving: true, answering: true, moving: true},
			netfence.State{Requests: lease, Answers: lease}},
		"a primary without a lease":                                    {portInput{answering: true}, netfence.State{Answers: frozen}},
		"it is promoted: the lease counts before its mysqld is opened": {portInput{promoting: true}, netfence.State{Requests: lease, Answers: lease}},
		"a replica that hears a leader":                                {portInput{reads: true}, netfence.State{Requests: frozen, Answers: frozen}},
		"settled, and not yet a replica":                               {portInput{answering: true, moving: true}, netfence.State{Answers: frozen}},
		"what is still to be answered wins":                            {portInput{answering: true, reads: true}, netfence.State{Answers: frozen}},
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
