package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/events"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// about is the key, among the board's troubles, of what keeps events from running as they should.
	about = "events"
	// eventsLook is how often the events are looked at when nothing wakes.
	eventsLook = time.Second
	// eventsTimeout bounds a look, and what follows from it.
	eventsTimeout = 5 * time.Second
	// eventsSetTimeout bounds the part of that in which events get their status: an event whose lock is held costs 2 s.
	eventsSetTimeout = 3 * time.Second
	// eventsAgain is how often the Service tries again to set events that could not be set.
	eventsAgain = 30 * time.Second
	// eventNamesMax is how many names the status has.
	eventNamesMax = 3
)

// Config is what a Service needs.
type Config struct {
	Board *board.Board
	// Server returns the mysqld that runs, for the same mysqld always the same value; nil = none runs. Serves tells
	// whether this node is the primary, in Term, and clients reach its mysqld.
	Server func() Server
	Serves func() bool
	Term   func() uint64
	Logger *slog.Logger
}

// Server is a mysqld.
type Server interface {
	LookAtEvents(ctx context.Context) (mysqld.EventsLook, error)
	SetScheduler(ctx context.Context, on bool) error
	SetEvents(ctx context.Context, events []mysqld.Event) (not map[mysqld.EventName]error, err error)
	RecordEvents(ctx context.Context, rows []mysqld.EventRow, forget []mysqld.EventName) error
}

// Of is the Server of a process; nil if there is no process.
func Of(p *mysqld.Process) Server {
	if p == nil {
		return nil
	}
	return process{p}
}

type process struct{ *mysqld.Process }

func (p process) LookAtEvents(ctx context.Context) (mysqld.EventsLook, error) {
	return p.Admin().LookAtEvents(ctx)
}
func (p process) SetScheduler(ctx context.Context, on bool) error {
	return p.Admin().SetScheduler(ctx, on)
}

// Service has the event scheduler run on the primary, and only there. Make one with New.
type Service struct {
	Config

	// started is the mysqld whose scheduler was started, in an epoch of term; nil = none.
	started Server
	term    uint64
	// not are the events that could not be set then, and why; again is when that is tried once more.
	not   map[mysqld.EventName]error
	again time.Time
}

// New returns the Service of a node. It starts nothing.
func New(c Config) *Service { return &Service{Config: c} }

// Run looks at the events again and again, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	for c := (clock.Machine{}); ; {
		changed := s.Board.Changes()
		s.look(ctx)
		if c.Wait(ctx, eventsLook, changed) != nil {
			return nil
		}
	}
}

// look makes the events as they should be, or says in the status what is in the way.
func (s *Service) look(ctx context.Context) {
	text, err := "", s.keep(ctx)
	switch {
	case err == nil && len(s.not) > 0:
		first := slices.MinFunc(slices.Collect(maps.Values(s.not)), func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		text = fmt.Sprintf("events that could not be set do not run (%d): %v", len(s.not), first)
	case err == nil || ctx.Err() != nil:
	case !s.Serves():
		text = fmt.Sprintf("events may run here still: %v", err)
	case s.started == nil:
		text = fmt.Sprintf("no event runs: %v", err)
		s.idle([]string{"all"}) // how many is not known
	default:
		text = fmt.Sprintf("events are not looked after, so they may not run after a failover: %v", err)
	}
	if s.Board.SetTrouble(about, text) && text != "" {
		s.Logger.Warn(text)
	}
}

func (s *Service) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	state := s.Board.State()
	p, off := s.Server(), state.EventsOff || state.Follow != nil // the source runs the events then
	serving := p != nil && s.Serves()
	if s.started != nil && (!serving || off || s.started != p || s.term != s.Term()) {
		if s.started == p { // else that mysqld has ended
			if err := p.SetScheduler(ctx, false); err != nil {
				return err
			}
		}
		s.started = nil
	}
	if s.started == nil {
		s.not = nil
	}
	if !serving || state.Follow != nil {
		s.idle(nil)
		return nil
	}
	look, err := p.LookAtEvents(ctx)
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
		s.idle(idle)
		return nil
	}
	return s.runs(ctx, p, look)
}

// runs does what follows from a look at a primary's events.
func (s *Service) runs(ctx context.Context, p Server, look mysqld.EventsLook) error {
	term := s.Term()
	plan := events.Decide(look, s.started != nil, func(n mysqld.EventName) bool { return s.not[n] != nil })
	if not, err := p.SetEvents(ctx, plan.Hold); err != nil || len(not) > 0 {
		return errors.Join(append(slices.Collect(maps.Values(not)), err)...)
	}
	if err := s.set(ctx, p, plan.Set); err != nil {
		return err
	}
	if plan.Start {
		if err := p.SetScheduler(ctx, true); err != nil {
			return err
		}
		s.started, s.term = p, term
		if len(look.Events) > 0 {
			s.Logger.Info("the event scheduler runs", "events", len(look.Events), "set", len(plan.Set))
		}
		for _, d := range plan.Doubts {
			s.Logger.Warn("an event does not run", "event", d.Event.String(), "reason", d.Why)
		}
	}
	var idle []string
	for _, d := range plan.Doubts {
		idle = append(idle, d.Event.String())
	}
	for _, e := range plan.Set {
		if s.not[e.EventName] != nil && e.Status == mysqld.EventEnabled {
			idle = append(idle, e.EventName.String())
		}
	}
	s.idle(idle)
	return p.RecordEvents(ctx, plan.Record, plan.Forget)
}

// set gives events their status. An event that cannot be set does not hold up the others, and is tried again after
// eventsAgain. Events for which there was no time are tried again at once, and first.
func (s *Service) set(ctx context.Context, p Server, all []mysqld.Event) error {
	if s.started != nil && time.Now().Before(s.again) { // only events that could not be set are left
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, eventsSetTimeout)
	defer cancel()
	noTime := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
	failed := func(e mysqld.Event) bool { return s.not[e.EventName] != nil && !noTime(s.not[e.EventName]) }
	all = slices.Concat(slices.DeleteFunc(slices.Clone(all), failed), slices.DeleteFunc(slices.Clone(all), func(e mysqld.Event) bool { return !failed(e) }))
	not, err := p.SetEvents(ctx, all)
	if err != nil {
		return err
	}
	s.not, s.again = not, time.Now().Add(eventsAgain)
	if slices.ContainsFunc(slices.Collect(maps.Values(not)), noTime) {
		s.again = time.Time{}
	}
	return nil
}

// idle notes the events of a primary that do not run though they are not disabled.
func (s *Service) idle(names []string) {
	text := strings.Join(names[:min(len(names), eventNamesMax)], ", ")
	if own := s.Board.Own(); own.Events != int64(len(names)) || own.EventNames != text {
		s.Board.Update(func(n *status.Node) { n.Events, n.EventNames = int64(len(names)), text })
	}
}
