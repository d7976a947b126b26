package agent

import (
	"cmp"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/core"
)

// chronicleRepeat is how soon the same thing of the same node is not told again: a
// mysqld that crashes in a loop, or a disk on which it cannot start.
const chronicleRepeat = time.Minute

// chronicle makes events of core's life: what is worth a line for whoever asks
// tomorrow what happened tonight. It decides only; core's goroutine owns it.
type chronicle struct {
	// served is the term in which this node is the primary; 0 = it is not.
	served uint64
	// led is the term in which it leads and has not served so far; 0 = none.
	led uint64
	// ledAt is when it was elected in that term.
	ledAt time.Time
	// asked says what an operator asked a primary for, "" = nothing: its end is then planned.
	asked string
	// chosen is the newest term that an operator gave to this node.
	chosen uint64
	// fencedBy is why an operator wants no mysqld here; "" = he does.
	fencedBy string
	// told is the newest event of its kind, and when.
	told map[cluster.EventKind]toldEvent
}

type toldEvent struct {
	why string
	at  time.Time
}

func newChronicle() *chronicle { return &chronicle{told: map[cluster.EventKind]toldEvent{}} }

// stepped is one step of core: its input, its phases before and after, why it is
// where it is, and what it does now.
type stepped struct {
	now           time.Time
	in            core.Input
	before, after core.Phase
	reason        string
	effects       []core.Effect
}

// note returns the events of one step of core, in order.
func (c *chronicle) note(s stepped) (events []cluster.Event) {
	tell := func(e cluster.Event) {
		t := c.told[e.Kind]
		primary := e.Kind == cluster.EventPrimary || e.Kind == cluster.EventLeft
		if !primary && t.why == e.Why && !t.at.IsZero() && s.now.Sub(t.at) < chronicleRepeat {
			return
		}
		c.told[e.Kind] = toldEvent{e.Why, s.now}
		events = append(events, e)
	}
	c.noteInput(s, tell)
	for _, e := range s.effects {
		c.noteEffect(s, e, tell)
	}
	switch s.after {
	case core.PhasePrimary, core.PhaseClosing: // of a plan that is called off nothing is told
	default:
		c.noteLeft(s.reason, tell)
	}
	if s.after == core.PhaseFenced && s.before != core.PhaseFenced {
		tell(cluster.Event{Kind: cluster.EventFenced, Why: s.reason})
	}
	return events
}

func (c *chronicle) noteInput(s stepped, tell func(cluster.Event)) {
	switch in := s.in.(type) {
	case core.Move:
		c.asked = in.Reason
	case core.Restart:
		if !in.DryRun {
			c.asked = in.Reason
		}
	case core.Stop:
		c.asked = "its agent was stopped in order"
	case core.Chosen:
		c.chosen = in.Term
	case core.Fenced:
		if c.fencedBy != "" && in.Reason == "" {
			delete(c.told, cluster.EventFenced)
			tell(cluster.Event{Kind: cluster.EventUnfenced})
		}
		c.fencedBy = in.Reason
	case core.RaftChanged:
		if c.led != 0 && (!in.Leading || in.Term != c.led) {
			tell(cluster.Event{Kind: cluster.EventLed, At: c.ledAt, Term: c.led, Why: cmp.Or(s.reason, "it did not open for writes")})
			c.led = 0
		}
		if in.Leading && in.Term != c.served {
			if c.led == 0 {
				c.ledAt = s.now
			}
			c.led = in.Term
		}
	case core.MysqldExited:
		switch {
		case s.after == s.before:
		case c.served != 0:
			c.asked = ""
			c.noteLeft(in.Reason, tell)
		default:
			tell(cluster.Event{Kind: cluster.EventMysqld, Why: in.Reason})
		}
	}
}

func (c *chronicle) noteEffect(s stepped, e core.Effect, tell func(cluster.Event)) {
	switch e.Kind {
	case core.Serve:
		if c.served == e.Term { // a plan was called off
			return
		}
		tell(cluster.Event{Kind: cluster.EventPrimary, Term: e.Term, Planned: c.chosen == e.Term})
		c.served, c.led, c.asked = e.Term, 0, ""
	case core.PlanEnded:
		if e.Reason != "" {
			c.asked = "" // it came to nothing
		}
	case core.KillMysqld:
		switch {
		case c.served != 0:
			c.asked = ""
			c.noteLeft(e.Reason, tell)
		case s.after == core.PhaseErrant:
			tell(cluster.Event{Kind: cluster.EventErrant, Why: e.Reason})
		case e.Reason != c.fencedBy:
			tell(cluster.Event{Kind: cluster.EventMysqld, Why: "mysqld was killed: " + e.Reason})
		}
	}
}

// noteLeft tells that this node is the primary no more, if it was.
func (c *chronicle) noteLeft(why string, tell func(cluster.Event)) {
	if c.served == 0 {
		return
	}
	tell(cluster.Event{Kind: cluster.EventLeft, Term: c.served, Why: cmp.Or(c.asked, why), Planned: c.asked != "",
		Deposed: c.asked == "" && strings.HasPrefix(why, "lost leadership of term")})
	c.served, c.asked = 0, ""
}
