package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// server is a mysqld with one event. It records what it is told.
type server struct {
	event mysqld.EventStatus
	// refuses is the error of setting the event "nightly". two: behind nightly there is another event, "hourly".
	refuses error
	two     bool
	hourly  mysqld.EventStatus
	// recorded is the status that nightly is to have, if that is not enabled.
	recorded mysqld.EventStatus
	err      error
	runs     bool
	told     []string
}

var name = mysqld.EventName{Schema: "shop", Name: "nightly"}

func (s *server) LookAtEvents(context.Context) (mysqld.EventsLook, error) {
	row := mysqld.EventRow{EventName: name, Status: mysqld.EventEnabled, Altered: 1}
	shown := row
	row.Status, shown.Status = cmp.Or(s.recorded, row.Status), s.event
	l := mysqld.EventsLook{Now: 1000, Events: []mysqld.Event{{EventRow: shown}}, Rows: []mysqld.EventRow{row}}
	if s.two {
		row.Name, row.Status, shown.Name, shown.Status = "hourly", mysqld.EventEnabled, "hourly", s.hourly
		l.Events, l.Rows = append(l.Events, mysqld.Event{EventRow: shown}), append(l.Rows, row)
	}
	return l, s.err
}

func (s *server) SetScheduler(_ context.Context, on bool) error {
	s.runs = on
	s.told = append(s.told, fmt.Sprintf("scheduler %t", on))
	return s.err
}

func (s *server) SetEvents(_ context.Context, events []mysqld.Event) (map[mysqld.EventName]error, error) {
	not := map[mysqld.EventName]error{}
	for _, e := range events {
		s.told = append(s.told, fmt.Sprintf("%s %s", e.Name, e.Status))
		switch {
		case e.EventName != name:
			s.hourly = e.Status
		case s.refuses != nil:
			not[name] = s.refuses
		default:
			s.event = e.Status
		}
	}
	return not, s.err
}

func (s *server) RecordEvents(context.Context, []mysqld.EventRow, []mysqld.EventName) error {
	return s.err
}

// node is a Service, and what the Service sees.
type node struct {
	*Service
	server *server
	serves bool
	term   uint64
}

func newNode() *node {
	n := &node{server: &server{event: mysqld.EventElsewhere}, term: 1}
	n.Service = New(Config{
		Board: board.New(board.Config{
			Self: status.Node{ID: 1, Name: "a"}, State: cluster.NewState([]cluster.Member{{ID: 1, Name: "a"}}),
			Known: &membership.Directories{}, Now: time.Now,
		}),
		Server: func() Server {
			if n.server == nil {
				return nil
			}
			return n.server
		},
		Serves: func() bool { return n.serves }, Term: func() uint64 { return n.term }, Logger: slog.New(slog.DiscardHandler),
	})
	return n
}

// saw looks once, and returns what mysqld was told.
func (n *node) saw(t *testing.T) string {
	t.Helper()
	n.server.told = nil
	if err := n.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	return strings.Join(n.server.told, ", ")
}

func (n *node) expect(t *testing.T, what, want string) {
	t.Helper()
	if got := n.saw(t); got != want {
		t.Errorf("%s: mysqld was told %q, want %q", what, got, want)
	}
}

// TestSchedulerFollowsThePrimary: the scheduler starts once in each epoch, after the events have their status. It
// stops with the epoch.
func TestSchedulerFollowsThePrimary(t *testing.T) {
	n := newNode()
	n.expect(t, "a replica", "")
	n.serves = true
	n.expect(t, "promoted", "nightly ENABLED, scheduler true")
	n.expect(t, "nothing is new", "")
	n.serves = false
	n.expect(t, "deposed", "scheduler false")
	n.expect(t, "still a replica", "")
	n.serves, n.term = true, 2
	n.expect(t, "promoted again", "scheduler true")
	n.term = 3
	n.expect(t, "an epoch ended and another began between two looks", "scheduler false, scheduler true")
}

// TestSchedulerOfAnotherMysqld: a mysqld that has started again is told, too. A mysqld that has ended is told
// nothing.
func TestSchedulerOfAnotherMysqld(t *testing.T) {
	n := newNode()
	n.serves = true
	n.saw(t)
	ended := n.server
	ended.told, n.server = nil, &server{event: mysqld.EventEnabled}
	n.expect(t, "mysqld has started again", "scheduler true")
	if len(ended.told) > 0 {
		t.Errorf("the ended one was told %v", ended.told)
	}
	n.server = nil
	if err := n.keep(t.Context()); err != nil || n.started != nil {
		t.Errorf("no mysqld: %v", err)
	}
}

// TestSchedulerIsOff: if the cluster has events off, or follows a source, no event runs. The status names the events
// that wait.
func TestSchedulerIsOff(t *testing.T) {
	for name, off := range map[string]func(*cluster.State){
		"events off": func(s *cluster.State) { s.EventsOff = true },
		"follows":    func(s *cluster.State) { s.Follow = &cluster.Follow{} },
	} {
		n := newNode()
		n.serves = true
		n.saw(t)
		state := n.Board.State()
		state.Version++
		off(&state)
		n.Board.SetState(state)
		n.expect(t, name, "scheduler false")
		n.expect(t, name, "")
		want := int64(1)
		if state.Follow != nil {
			want = 0 // the events of the source run there
		}
		if own := n.Board.Own(); own.Events != want {
			t.Errorf("%s: the status has %d events that wait, want %d", name, own.Events, want)
		}
	}
}

// TestSchedulerTriesAgain: what failed is tried again at the next look. Until it succeeds the status says so.
func TestSchedulerTriesAgain(t *testing.T) {
	n := newNode()
	fails := func(what, says string) {
		t.Helper()
		n.server.err = errors.New("there are more than 1000")
		n.Service.look(t.Context())
		if got := n.Board.Trouble(about); !strings.Contains(got, says) || !strings.Contains(got, "more than 1000") {
			t.Errorf("%s: the status says %q, want %q", what, got, says)
		}
		n.server.err = nil
	}
	n.serves = true
	fails("promoted", "no event runs")
	if own := n.Board.Own(); own.Events != 1 || own.EventNames != "all" { // for the alert
		t.Errorf("%d events do not run: %s", own.Events, own.EventNames)
	}
	n.Service.look(t.Context())
	if got, own := n.Board.Trouble(about), n.Board.Own(); got != "" || !n.server.runs || own.Events != 0 {
		t.Errorf("the scheduler runs: %t; the status says %q, and that %d do not run", n.server.runs, got, own.Events)
	}
	fails("the scheduler runs", "after a failover")
	n.serves = false
	fails("deposed", "may run here still")
	n.expect(t, "deposed, and it did not stop at once", "scheduler false")
}

// TestOneEventCannotBeSet: an event that cannot be set keeps no other event from running, is named, and is tried
// again. Once such an event kept all events from running after a promotion, and no status named it.
func TestOneEventCannotBeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.serves, n.server.two, n.server.hourly = true, true, mysqld.EventElsewhere
		looks := func(what, want, says string, idle int64) {
			t.Helper()
			n.server.told = nil
			n.Service.look(t.Context())
			if got := strings.Join(n.server.told, ", "); got != want {
				t.Errorf("%s: mysqld was told %q, want %q", what, got, want)
			}
			if own := n.Board.Own(); own.Events != idle || !strings.Contains(n.Board.Trouble(about), says) || (says == "") != (n.Board.Trouble(about) == "") {
				t.Errorf("%s: %d events do not run (%s), %q", what, own.Events, own.EventNames, n.Board.Trouble(about))
			}
		}
		n.server.refuses = errors.New("it is locked")
		looks("promoted", "nightly ENABLED, hourly ENABLED, scheduler true", "events that could not be set do not run (1): it is locked", 1)
		looks("a moment later", "", "it is locked", 1)
		time.Sleep(eventsAgain)
		looks("later", "nightly ENABLED", "it is locked", 1)
		time.Sleep(eventsAgain)
		n.server.refuses = nil
		looks("it can be set", "nightly ENABLED", "", 0)
		looks("and then", "", "", 0)

		n.serves = false
		looks("deposed", "scheduler false", "", 0)
		n.serves, n.term = true, 2
		n.server.event, n.server.hourly = mysqld.EventElsewhere, mysqld.EventElsewhere
		n.server.refuses = context.DeadlineExceeded // of 3 s
		looks("no time", "nightly ENABLED, hourly ENABLED, scheduler true", "do not run", 1)
		n.server.refuses = nil
		looks("at once", "nightly ENABLED", "", 0)
	})
}

// TestEventThatMustNotRun: if an event would run and must not, and this cannot be set, no event runs.
func TestEventThatMustNotRun(t *testing.T) {
	n := newNode()
	n.serves, n.server.two, n.server.hourly, n.server.refuses = true, true, mysqld.EventElsewhere, errors.New("it is locked")
	n.server.event, n.server.recorded = mysqld.EventEnabled, mysqld.EventDisabled
	n.Service.look(t.Context())
	if got := n.Board.Trouble(about); n.server.runs || !strings.Contains(got, "no event runs: it is locked") {
		t.Errorf("the scheduler runs: %t, %q", n.server.runs, got)
	}
	n.server.refuses = nil
	n.expect(t, "it can be set", "nightly DISABLED, hourly ENABLED, scheduler true")
}
