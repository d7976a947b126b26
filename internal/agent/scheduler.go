package agent

import (
	"context"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/events"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// eventsLook is how often the events are looked at when nothing wakes.
	eventsLook = time.Second
	// eventsTimeout bounds a look, and what follows from it.
	eventsTimeout = 5 * time.Second
	// eventNamesMax is how many names the status has.
	eventNamesMax = 3
)

// scheduler is mysqld's event scheduler as runEvents has it; its goroutine's alone.
type scheduler struct {
	// started: that of this mysqld was started, in an epoch of this term.
	started *mysqld.Process
	term    uint64
	// said is what was logged last.
	said string
}

// runEvents has the event scheduler run on the primary, and only there.
func (a *Agent) runEvents(ctx context.Context) error {
	c := clock.Machine{}
	for s := (scheduler{}); ; {
		changed := a.board.Changes()
		if err := a.keepEvents(ctx, &s); s.news(err) {
			a.logger.Warn("the scheduler's events are not looked after", "error", err)
		}
		if c.Wait(ctx, eventsLook, changed) != nil {
			return nil
		}
	}
}

// news tells whether an error is another one than the last.
func (s *scheduler) news(err error) bool {
	said := s.said
	if s.said = ""; err != nil {
		s.said = err.Error()
	}
	return s.said != "" && s.said != said
}

func (a *Agent) keepEvents(ctx context.Context, s *scheduler) error {
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	state := a.board.State()
	p, off := a.currentProcess(), state.EventsOff || state.Follow != nil // the source's run there
	serving := p != nil && a.serves()
	if s.started != nil && (!serving || off || s.started != p || s.term != a.Raft.Role().Term) {
		stopped := s.started
		s.started = nil
		if stopped == p { // else it has ended
			if err := p.Admin().SetScheduler(ctx, false); err != nil {
				return err
			}
		}
	}
	if !serving || state.Follow != nil {
		a.eventsIdle(nil)
		return nil
	}
	look, err := p.Admin().LookAtEvents(ctx)
	if err != nil {
		return err
	}
	if off {
		var idle []string
		for _, e := range look.Events {
			if e.Status != mysqld.EventDisabled {
				idle = append(idle, e.EventName.String())
			}
		}
		a.eventsIdle(idle)
		return nil
	}
	return a.runsEvents(ctx, s, p, look)
}

// runsEvents does what follows from a look at a primary's events.
func (a *Agent) runsEvents(ctx context.Context, s *scheduler, p *mysqld.Process, look mysqld.EventsLook) error {
	term := a.Raft.Role().Term
	plan := events.Decide(look, s.started != nil)
	if err := p.SetEvents(ctx, plan.Set); err != nil {
		return err
	}
	if plan.Start {
		if err := p.Admin().SetScheduler(ctx, true); err != nil {
			return err
		}
		s.started, s.term = p, term
		if len(look.Events) > 0 {
			a.logger.Info("the event scheduler runs", "events", len(look.Events), "set", len(plan.Set))
		}
		for _, d := range plan.Doubts {
			a.logger.Warn("an event does not run", "event", d.Event.String(), "reason", d.Why)
		}
	}
	var idle []string
	for _, d := range plan.Doubts {
		idle = append(idle, d.Event.String())
	}
	a.eventsIdle(idle)
	return p.RecordEvents(ctx, plan.Record, plan.Forget)
}

// eventsIdle notes the events of a primary that do not run though they are not disabled.
func (a *Agent) eventsIdle(names []string) {
	text := strings.Join(names[:min(len(names), eventNamesMax)], ", ")
	if own := a.board.Own(); own.Events != int64(len(names)) || own.EventNames != text {
		a.board.Update(func(s *status.Node) { s.Events, s.EventNames = int64(len(names)), text })
	}
}
