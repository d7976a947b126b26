package following

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// undoing is a primary whose cluster follows a server; it commits the changes itself.
type undoing struct {
	sitedNode
	mu    sync.Mutex
	state cluster.State
	// atBarrier is called at the next barrier.
	atBarrier func()
}

// newUndoing notes a cutover from a server, if closing is not nil.
func newUndoing(t *testing.T, f cluster.Follow, closing *cluster.Closing) (*undoing, *Service) {
	t.Helper()
	u := &undoing{sitedNode: sitedNode{process: new(mysqld.Process)}, state: cluster.State{Durability: cluster.DurabilityMajority}}
	s := NewService(u, u, slog.New(slog.DiscardHandler))
	u.change(t, cluster.FollowChange{Start: &f})
	if closing != nil {
		u.change(t, cluster.FollowChange{Close: closing})
	}
	return u, s
}

func (u *undoing) Committed() (*cluster.Follow, uint64) {
	s := u.State()
	return s.Follow, s.Version
}

func (u *undoing) State() cluster.State {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

func (u *undoing) ReplicaName() (uint32, string) { return 7, "77777777-0000-0000-0000-000000000001" }
func (u *undoing) ByItself() string              { return "quorate on a" }

func (u *undoing) Barrier(context.Context) error {
	u.mu.Lock()
	do := u.atBarrier
	u.atBarrier = nil
	u.mu.Unlock()
	if do != nil {
		do()
	}
	return nil
}

func (u *undoing) Serve(context.Context, control.Request) control.Answer { return control.Answer{} }

func (u *undoing) ChangeState(_ context.Context, by string, c cluster.Change) (operate.Done, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.Judged != 0 && c.Judged != u.state.Version {
		return operate.Done{}, control.Errorf(control.CodeStale, "another change came first")
	}
	c.ID, c.By, c.At = "id", by, time.Now()
	next, err := u.state.With(c)
	if err != nil {
		return operate.Done{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	u.state = next
	return operate.Done{Result: cluster.ChangeResult{Changed: true, Version: next.Version, Done: c.Done(next)}}, nil
}

func (u *undoing) change(t *testing.T, c cluster.FollowChange) {
	t.Helper()
	if _, err := u.ChangeState(t.Context(), "ann", cluster.Change{Follow: &c}); err != nil {
		t.Fatal(err)
	}
}

// shut begins a cutover, up to where the source is closed.
func (u *undoing) shut(t *testing.T, s *Service, f cluster.Follow) *cutover {
	t.Helper()
	source, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	c := &cutover{Service: s, follow: f, source: source, version: u.State().Version}
	if err := c.note(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	hold, err := c.holds(t.Context(), source, c.version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hold.Close)
	if err := hold.Shut(t.Context(), *c.closing); err != nil {
		t.Fatal(err)
	}
	return c
}

// undoes runs RunUndo until nothing is noted of a cutover any more.
func (u *undoing) undoes(t *testing.T, s *Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.RunUndo(ctx) }()
	for u.State().Closing != nil && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	if ctx.Err() != nil {
		t.Errorf("it is not undone: %+v", s.get().OpenError)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestUndo(t *testing.T) {
	server := newServer(t, "source")
	server.do(t, followAccount()...)
	f := followOf(t, server)
	t.Run("Interrupted", func(t *testing.T) { undoInterrupted(t, server, f) })
	t.Run("LateTakesNoLock", func(t *testing.T) { lateTakesNoLock(t, f) })
	t.Run("Answers", func(t *testing.T) { calledOffAnswers(t, server, f) })
	t.Run("Left", func(t *testing.T) { leftIsLeft(t, server, f) })
	t.Run("Stop", func(t *testing.T) { stopOpens(t, server, f) })
}

// undoInterrupted: the primary opens the source of a cutover that was interrupted, whatever the cutover still does
// there, and restores what was persisted. The cutover cannot take over any more.
func undoInterrupted(t *testing.T, server *server, f cluster.Follow) {
	for name, at := range map[string]string{
		"before it is closed": "", "while it is closed": "LOCK TABLES d.t WRITE", "when it is closed": "",
	} {
		t.Run(name, func(t *testing.T) {
			server.do(t, "CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
			defer server.do(t, "DROP DATABASE d")
			u, s := newUndoing(t, f, nil)
			earlier, err := Open(f)
			if err != nil {
				t.Fatal(err)
			}
			defer earlier.Close()
			c := cutover{Service: s, follow: f, source: earlier, version: u.State().Version}
			if err := c.note(t.Context(), "ann"); err != nil {
				t.Fatal(err)
			}
			hold, err := c.holds(t.Context(), earlier, c.version)
			if err != nil {
				t.Fatal(err)
			}
			defer hold.Close()
			conn, err := server.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			shut := make(chan error, 1)
			switch {
			case at != "":
				if _, err := conn.ExecContext(t.Context(), at); err != nil {
					t.Fatal(err)
				}
				go func() { shut <- hold.Shut(t.Context(), *c.closing) }()
				for server.query(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SET GLOBAL super_read_only%'") == "0" {
					time.Sleep(10 * time.Millisecond)
				}
			case name == "when it is closed":
				shut <- errors.New("it is gone now")
				if err := errors.Join(hold.Shut(t.Context(), *c.closing), hold.KeepShut(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			u.undoes(t, s)
			if at == "" && name != "when it is closed" {
				shut <- hold.Shut(t.Context(), *c.closing)
			}
			if err := <-shut; err == nil {
				t.Error("the earlier attempt has closed the source")
			}
			g, err := gateOf(t.Context(), server.db, "")
			if g.superReadOnly || g.readOnly || g.persisted != "" || err != nil {
				t.Errorf("the source is %+v, %v", g, err)
			}
			if _, err := u.ChangeState(t.Context(), "ann", cluster.Change{Judged: c.version, Follow: &cluster.FollowChange{Cutover: true}}); err == nil {
				t.Error("the earlier attempt has taken over")
			}
		})
	}
}

// lateTakesNoLock: a node that acts on an older cluster state ends no session at the source.
func lateTakesNoLock(t *testing.T, f cluster.Follow) {
	u, s := newUndoing(t, f, &cluster.Closing{ServerUUID: f.ServerUUID})
	source, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	hold, err := s.holds(t.Context(), source, u.State().Version)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	u.atBarrier = func() { u.change(t, cluster.FollowChange{CallOff: true}) }
	if h, err := s.holds(t.Context(), source, u.State().Version); !errors.Is(err, errOvertaken) {
		t.Errorf("%v, %v", h, err)
	}
	if _, err := gateOf(t.Context(), hold.conn, ""); err != nil {
		t.Errorf("the session of who holds it: %v", err)
	}
}

// calledOffAnswers: the answer says in which state the source is.
func calledOffAnswers(t *testing.T, server *server, f cluster.Follow) {
	why := errors.New("it took too long")
	for name, c := range map[string]struct {
		since string
		do    cluster.FollowChange
		want  string
		code  control.Code
	}{
		"opened":         {want: "the source is as before", code: control.CodeFailed},
		"others":         {since: "SET GLOBAL super_read_only = ON", want: "the source is left closed: root has set super_read_only or read_only since", code: control.CodeFailed},
		"another way":    {do: cluster.FollowChange{Start: &cluster.Follow{Source: f.Source, User: "fol", PasswordFile: f.PasswordFile, Plain: true, ServerUUID: f.ServerUUID}}, want: "the source is as before", code: control.CodeFailed},
		"another server": {do: cluster.FollowChange{Start: &cluster.Follow{Source: f.Source, User: "fol", PasswordFile: f.PasswordFile, ServerUUID: "another"}}, want: "MAY STAY CLOSED", code: control.CodeUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			server.do(t, "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
			u, s := newUndoing(t, f, nil)
			cut := u.shut(t, s, f)
			if c.since != "" {
				server.do(t, c.since)
			}
			if c.do.Start != nil {
				u.change(t, c.do)
			}
			err := cut.calledOff(t.Context(), "ann", why)
			e, ok := errors.AsType[*control.Error](err)
			if !ok || e.Code != c.code || !strings.Contains(e.Error(), c.want) || (u.State().Closing != nil) != (name == "others") {
				t.Errorf("%v, want %s; %+v", err, c.want, u.State().Closing)
			}
			if name == "others" { // it is over once they open it
				server.do(t, "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
				u.undoes(t, s)
			}
		})
	}
}

// leftIsLeft: once a source was left closed, only an operator opens it. A cutover with --source-closed is noted so
// that an undo leaves the source closed, too, and is called off like any other.
func leftIsLeft(t *testing.T, server *server, f cluster.Follow) {
	server.do(t, "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
	u, s := newUndoing(t, f, nil)
	source := u.shut(t, s, f).source
	u.change(t, cluster.FollowChange{CallOff: true})
	u.change(t, cluster.FollowChange{Left: "it applies transactions of another server"})
	refused := func(what, want string) {
		t.Helper()
		err := s.undo(t.Context(), "b")
		if _, left := errors.AsType[*leftError](err); !left || !strings.Contains(err.Error(), want) || server.readOnly(t) != "11" || !u.State().Closing.CalledOff {
			t.Errorf("%s: %v, %s, %+v", what, err, server.readOnly(t), u.State().Closing)
		}
	}
	refused("left", "it applies transactions of another")
	goOn := func() *cutover {
		return &cutover{Service: s, follow: f, source: source, process: new(mysqld.Process), version: u.State().Version, earlier: u.State().Closing, args: cluster.CutoverRequest{SourceClosed: true}}
	}
	next := goOn()
	ended, cancel := context.WithCancel(t.Context())
	u.atBarrier = func() {
		if c := u.State().Closing; c.CalledOff || c.Left == "" {
			t.Errorf("while it goes on: %+v", c)
		}
		cancel()
	}
	if _, err := next.goOnClosed(t.Context(), ended, "ann"); err == nil {
		t.Error("it has taken over")
	}
	refused("after an attempt", "it applies transactions of another")
	if _, err := u.ChangeState(t.Context(), "ann", cluster.Change{Judged: next.version, Follow: &cluster.FollowChange{Cutover: true}}); err == nil {
		t.Error("an attempt that was called off has taken over")
	}
	server.do(t, "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
	if _, err := goOn().goOnClosed(t.Context(), t.Context(), "ann"); err == nil || !strings.Contains(err.Error(), "the source is open") {
		t.Errorf("from an open source: %v", err)
	}
	u.undoes(t, s)
}

// stopOpens: an operator who ends the following has the source of an interrupted cutover opened first, or is told
// that it may be closed.
func stopOpens(t *testing.T, server *server, f cluster.Follow) {
	for _, want := range []string{"00", "11"} { // the source answers, and does not
		t.Run(want, func(t *testing.T) {
			server.do(t, "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF") // an earlier test has left it closed
			closes, err := Open(f)
			if err != nil {
				t.Fatal(err)
			}
			defer closes.Close()
			g, err := gateOf(t.Context(), closes.db, "")
			if err != nil {
				t.Fatal(err)
			}
			closing, err := g.closing(nil)
			if err != nil {
				t.Fatal(err)
			}
			u, s := newUndoing(t, f, closing)
			hold, err := closes.Hold(t.Context(), "another")
			if err == nil {
				err = hold.Shut(t.Context(), cluster.Closing{ServerUUID: f.ServerUUID})
			}
			if err != nil {
				t.Fatal(err)
			}
			hold.Close()
			if want == "11" {
				server.do(t, "SET GLOBAL super_read_only = OFF", "ALTER USER fol@'127.0.0.1' ACCOUNT LOCK", "SET GLOBAL super_read_only = ON")
			}
			d, err := s.end(t.Context(), control.Request{Name: "follow.stop", Args: []byte("{}"), By: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			said := d.Result.(cluster.ChangeResult).Done
			if got := server.readOnly(t); got != want || strings.Contains(said, "may be closed") != (want == "11") || u.State().Follow != nil {
				t.Errorf("%s, %s: %+v", got, said, u.State())
			}
		})
	}
	_, s := newUndoing(t, f, nil)
	s.cutting.Lock()
	time.AfterFunc(10*time.Millisecond, s.cutting.Unlock)
	if !s.cutsAlone(t.Context()) {
		t.Error("a request does not wait for a look at the source")
	}
	if _, err := s.end(t.Context(), control.Request{Name: "follow.stop", Args: []byte("{}")}); !errors.Is(err, errCutting) {
		t.Errorf("beside a cutover: %v", err)
	}
}
