package history

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/role"
)

// repeatAfter is for how long an event must not have happened to be told again. So a mysqld that crashes in a loop, or
// is on a disk on which it cannot start, is told once.
const repeatAfter = time.Minute

// Chronicle makes events from the steps of the role machine: what is worth a line for a person who
// asks tomorrow what happened tonight. It decides only. The zero value is ready.
type Chronicle struct {
	// served is the term in which this node is the primary; 0 = it is not.
	served uint64
	// led is the term in which it leads and has not served yet; 0 = none.
	led uint64
	// ledAt is when it was elected in that term.
	ledAt time.Time
	// asked says what an operator asked a primary for, "" = nothing: its end is then planned.
	asked string
	// deposed: the primary has lost leadership.
	deposed bool
	// chosen is the newest term that an operator gave to this node.
	chosen uint64
	// fencedBy is why an operator wants no mysqld here; "" = he does.
	fencedBy string
	// told is the newest event of its kind, and when it happened last.
	told map[cluster.EventKind]toldEvent
	// past is what was known of the old primary when this node was elected.
	past past
	// caughtUp is what the newest promotion applied before it opened.
	caughtUp atomic.Pointer[catchUp]
}

// past is what a node knows of the primary before it.
type past struct {
	primary board.LastPrimary
	// commit is when the newest transaction was committed; zero = it is not known.
	commit time.Time
}

// catchUp is how much a promotion applied, and how long that took.
type catchUp struct {
	transactions int64
	took         time.Duration
}

type toldEvent struct {
	why string
	at  time.Time
}

// Step is one step of the role machine: its input, its phases before and after, why it is where it
// is, and what it does now.
type Step struct {
	Now           time.Time
	In            role.Input
	Before, After role.Phase
	Reason        string
	Effects       []role.Effect
}

// CaughtUp notes what a promotion has applied, which the primary's event tells.
func (c *Chronicle) CaughtUp(transactions int64, took time.Duration) {
	c.caughtUp.Store(&catchUp{transactions, took})
}

// Elected tells whether a step elects this node. LookBack then says what was before.
func (c *Chronicle) Elected(s Step) bool {
	in, ok := s.In.(role.RaftChanged)
	return ok && in.Leading && in.Term != c.led && in.Term != c.served
}

// LookBack notes what is known of the old primary when this node is elected: the newest
// sign of it, when this node saw the newest commit, and the log's newest time.
func (c *Chronicle) LookBack(primary board.LastPrimary, seen, logged time.Time) {
	c.past = past{primary, newestCommit(primary.At, seen, logged)}
}

// Note returns the events of one step of the role machine, in order.
func (c *Chronicle) Note(s Step) (events []cluster.Event) {
	if c.told == nil {
		c.told = map[cluster.EventKind]toldEvent{}
	}
	tell := func(e cluster.Event) {
		t := c.told[e.Kind]
		always := e.Kind == cluster.EventPrimary || e.Kind == cluster.EventLeft || e.Kind == cluster.EventUnfenced
		c.told[e.Kind] = toldEvent{e.Why, s.Now}
		if always || t.why != e.Why || t.at.IsZero() || s.Now.Sub(t.at) >= repeatAfter {
			events = append(events, e)
		}
	}
	c.noteInput(s, tell)
	for _, e := range s.Effects {
		c.noteEffect(s, e, tell)
	}
	switch s.After {
	case role.PhasePrimary, role.PhaseClosing: // a plan that is called off makes no event
	default:
		c.noteLeft(s.Reason, tell)
	}
	if s.After == role.PhaseFenced && s.Before != role.PhaseFenced {
		tell(cluster.Event{Kind: cluster.EventFenced, Why: s.Reason})
	}
	return events
}

func (c *Chronicle) noteInput(s Step, tell func(cluster.Event)) {
	switch in := s.In.(type) {
	case role.Move:
		c.asked = in.Reason
	case role.Restart:
		if !in.DryRun {
			c.asked = in.Reason
		}
	case role.Stop:
		c.asked = "its agent was stopped in order"
	case role.Chosen:
		c.chosen = in.Term
	case role.Fenced:
		if c.fencedBy != "" && in.Reason == "" {
			delete(c.told, cluster.EventFenced)
			tell(cluster.Event{Kind: cluster.EventUnfenced})
		}
		c.fencedBy = in.Reason
	case role.RaftChanged:
		c.deposed = c.served != 0 && (!in.Leading || in.Term != c.served)
		if c.led != 0 && (!in.Leading || in.Term != c.led) {
			tell(cluster.Event{Kind: cluster.EventLed, At: c.ledAt, Term: c.led, Why: cmp.Or(s.Reason, "it did not open for writes")})
			c.led = 0
		}
		if in.Leading && in.Term != c.served {
			if c.led == 0 {
				c.ledAt = s.Now
			}
			c.led = in.Term
		}
	case role.MysqldExited:
		switch {
		case s.After == s.Before:
		case c.served != 0:
			c.asked = ""
			c.noteLeft(in.Reason, tell)
		default:
			tell(cluster.Event{Kind: cluster.EventMysqld, Why: in.Reason})
		}
	}
}

func (c *Chronicle) noteEffect(s Step, e role.Effect, tell func(cluster.Event)) {
	switch e.Kind {
	case role.Serve:
		if c.served == e.Term { // a plan was called off
			return
		}
		tell(c.opened(s.Now, cluster.Event{Kind: cluster.EventPrimary, Term: e.Term, Planned: c.chosen == e.Term}))
		c.served, c.led, c.asked = e.Term, 0, ""
	case role.PlanEnded:
		if e.Reason != "" {
			c.asked = "" // the plan came to nothing
		}
	case role.KillMysqld:
		switch {
		case c.served != 0:
			c.asked = ""
			c.noteLeft(e.Reason, tell)
		case s.After == role.PhaseErrant:
			tell(cluster.Event{Kind: cluster.EventErrant, Why: e.Reason})
		case e.Reason != c.fencedBy:
			tell(cluster.Event{Kind: cluster.EventMysqld, Why: "mysqld was killed: " + e.Reason})
		}
	}
}

// noteLeft tells that this node is no longer the primary, if it was.
func (c *Chronicle) noteLeft(why string, tell func(cluster.Event)) {
	if c.served == 0 {
		return
	}
	tell(cluster.Event{Kind: cluster.EventLeft, Term: c.served, Why: cmp.Or(c.asked, why), Planned: c.asked != "",
		Deposed: c.asked == "" && c.deposed})
	c.served, c.asked, c.deposed = 0, "", false
}

// opened adds to the event of a new primary what came before: the old primary, the outage, what was applied.
func (c *Chronicle) opened(now time.Time, e cluster.Event) cluster.Event {
	e.From, e.Why = c.past.primary.Name, c.past.primary.Fate
	e.NoPrimaryMs, e.LastWriteMs = c.past.outage(now)
	if done := c.caughtUp.Swap(nil); done != nil {
		e.AppliedTransactions, e.AppliedMs = done.transactions, done.took.Milliseconds()
	}
	return e
}

// newestCommit says when the newest transaction was committed; zero = it is not known.
// The time at which this node saw a commit is exact, unless it saw it long after: at
// its start, or after it was away. Then the log's own time counts, to a second.
func newestCommit(sign, seen, logged time.Time) time.Time {
	switch {
	case !logged.IsZero() && sign.IsZero():
		return logged
	case !logged.IsZero() && (seen.IsZero() || seen.Sub(logged) > 2*time.Second || seen.Sub(sign) >= 2*board.GossipInterval):
		if logged.After(sign) { // the hosts' clocks differ
			return sign
		}
		return logged
	case seen.Sub(sign) >= 2*board.GossipInterval: // without a primary nothing is committed
		return time.Time{}
	}
	return seen
}

// outage returns the time without a primary and the time since the last write, both in
// ms and until now; 0 = it is not known. A commit is a sign of a primary, too.
func (p past) outage(now time.Time) (noPrimaryMs, lastWriteMs int64) {
	since := func(at time.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return max(1, now.Sub(at).Milliseconds())
	}
	sign := p.primary.At
	if !sign.IsZero() && p.commit.After(sign) {
		sign = p.commit
	}
	return since(sign), since(p.commit)
}
