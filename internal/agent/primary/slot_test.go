package primary

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// tappedWorld is a mysqld at the other end of a pipe, and consensus. At first this node leads in term 3.
type tappedWorld struct {
	Local
	Raft
	Clients
	woken     int
	leads     bool
	role      consensus.RoleState
	committed consensus.Committed
	connects  error
	during    func()                      // is called while the tap connects
	propose   func(context.Context) error // nil: the tap's reader proposes
	sources   []net.Conn                  // mysqld's ends, one for each tap
	binlog    *binlogtest.Writer          // of the newest tap
	acks      []uint64                    // what the observer was told of
	proposed  int
}

// tapped returns a slot on which no epoch is open.
func tapped() (*Slot, *tappedWorld) {
	w := &tappedWorld{role: consensus.RoleState{Term: 3, Leading: true}, during: func() {}}
	shell, _ := operating(&noted{})
	return NewSlot(SlotConfig{
		Local: func() (Local, error) { return w, nil }, Own: func() entry.Epoch { return entry.Epoch{} },
		Raft: func() Raft { return w }, Clients: w, Pace: NewLagBound(0, clock.Machine{}), Inbox: shell.Inbox,
		Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler),
	}), w
}

func (w *tappedWorld) Incarnation() uint64 { return 7 }

func (w *tappedWorld) ConnectTap(ctx context.Context, _ Epoch, cfg mysqlwire.TapConfig) (*mysqlwire.Tap, TapObserver, error) {
	if w.connects != nil {
		return nil, nil, w.connects
	}
	ours, theirs := net.Pipe()
	w.sources, w.binlog = append(w.sources, theirs), binlogtest.New("q.000001")
	go w.send(w.binlog.Start())
	cfg.ServerID, cfg.ReplicaUUID = 77, judgedUUID
	tap, err := mysqlwire.StartTap(ctx, ours, cfg)
	w.during()
	return tap, w, err
}

func (w *tappedWorld) SemiSyncStatus(context.Context) (SemiSync, error) {
	return SemiSync{On: true, Clients: 1}, nil
}

func (w *tappedWorld) Received(mysqlwire.Batch)        {}
func (w *tappedWorld) Proposed(mysqlwire.Batch, error) {}
func (w *tappedWorld) Majority(uint64)                 {}
func (w *tappedWorld) Acknowledged(number uint64)      { w.acks = append(w.acks, number) }

func (w *tappedWorld) Settled(uint64) {}
func (w *tappedWorld) Wake()          { w.woken++ }
func (w *tappedWorld) Leads() bool    { return w.leads }

func (w *tappedWorld) Role() consensus.RoleState       { return w.role }
func (w *tappedWorld) Committed() *consensus.Committed { return &w.committed }
func (w *tappedWorld) Work()                           {}
func (w *tappedWorld) TryPropose([]byte) bool          { return w.propose == nil }
func (w *tappedWorld) Propose(ctx context.Context, _ []byte) error {
	w.proposed++
	return w.propose(ctx)
}

// send sends events to the newest tap, as a semi-synchronous source does.
func (w *tappedWorld) send(events [][]byte) {
	var out []byte
	for _, e := range events {
		n := len(e) + 3
		out = append(append(out, byte(n), byte(n>>8), byte(n>>16), 0, 0, 0xef, 0), e...)
	}
	_, _ = w.sources[len(w.sources)-1].Write(out)
}

// closed tells whether the tap of a source is closed. If it is not, the tap has sent something.
func closed(source net.Conn) (closed, acked bool) {
	_ = source.SetReadDeadline(time.Now().Add(time.Second))
	n, err := source.Read(make([]byte, 100))
	return errors.Is(err, io.EOF), n > 0
}

// open opens the tap of a term, and fails the test if that is not possible.
func (w *tappedWorld) open(t *testing.T, s *Slot, term uint64) *mysqlwire.Tap {
	t.Helper()
	w.role.Term = term
	if err := s.OpenTap(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	tap, incarnation, ok := s.Tap(term)
	if !ok || incarnation != 7 {
		t.Fatalf("the tap of term %d is there: %t, of incarnation %d", term, ok, incarnation)
	}
	return tap
}

// TestOpenTapLooksAgain: if the promotion ends while the tap connects, nothing stays open.
func TestOpenTapLooksAgain(t *testing.T) {
	for what, after := range map[string]consensus.RoleState{
		"it does not lead": {Term: 3}, "it leads in another term": {Term: 4, Leading: true}, "it is cancelled": {Term: 3, Leading: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, w := tapped()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.during = func() {
				if w.role = after; what == "it is cancelled" {
					cancel()
				}
			}
			if err := s.OpenTap(ctx, 3); err == nil || err.Error() != "the promotion in term 3 ended" {
				t.Errorf("%s: %v", what, err)
			}
			if _, ok := s.Stats(); ok {
				t.Errorf("%s: the epoch is open", what)
			}
			if gone, _ := closed(w.sources[0]); !gone {
				t.Errorf("%s: the tap is open", what)
			}
			s.Close()
		})
	}
}

// TestOneEpoch: a tap that does not connect leaves the earlier epoch alone. The next tap that connects ends that
// epoch.
func TestOneEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := tapped()
		first := w.open(t, s, 3)
		w.connects = errors.New("too many connections")
		if err := s.OpenTap(t.Context(), 3); !errors.Is(err, w.connects) {
			t.Errorf("a tap that does not connect: %v", err)
		}
		if tap, _, _ := s.Tap(3); tap != first {
			t.Error("a tap that does not connect took the place of the one before")
		}
		if gone, _ := closed(w.sources[0]); gone {
			t.Error("a tap that does not connect closed the one before")
		}
		w.connects = nil
		w.open(t, s, 4)
		if _, _, ok := s.Tap(3); ok {
			t.Error("two epochs are open")
		}
		if gone, _ := closed(w.sources[0]); !gone {
			t.Error("the tap of the epoch before is open")
		}
		s.Close()
		if gone, _ := closed(w.sources[1]); !gone {
			t.Error("the tap is open after Close")
		}
	})
}

// TestCommitEpochWithoutTap: nothing is proposed for an epoch without a tap.
func TestCommitEpochWithoutTap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := tapped()
		w.propose = func(context.Context) error { return errors.New("it is proposed") }
		w.open(t, s, 3)
		defer s.Close()
		for _, term := range []uint64{2, 4} {
			if err := s.CommitEpoch(t.Context(), term); err == nil || !strings.Contains(err.Error(), "its tap is gone") || w.proposed != 0 {
				t.Errorf("epoch %d: %v", term, err)
			}
		}
		if err := s.CommitEpoch(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "it is proposed") {
			t.Errorf("the epoch of the tap: %v", err)
		}
	})
}

// TestAcknowledgeAfterClose: what may be acknowledged is acknowledged while the epoch is open, and never after its
// end.
func TestAcknowledgeAfterClose(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, w := tapped()
			w.open(t, s, 3)
			go s.run(s.of(3))
			w.send(w.binlog.Statement("DROP TABLE t"))
			synctest.Wait()
			s.Committed(consensus.Mark{Index: 9, Epoch: 3, Number: 1})
			if ends {
				s.Close()
			}
			s.Acknowledge(9)
			gone, acked := closed(w.sources[0])
			if gone != ends || acked == ends || (len(w.acks) == 0) != ends {
				t.Errorf("closed before it: %t: the tap is closed: %t, something is acknowledged: %t, the observer knows of %d", ends, gone, acked, w.acks)
			}
			s.Close()
			synctest.Wait()
		})
	}
}

// TestService: clients are served in a term while its lease holds. A turn of consensus that ends the service wakes
// the router, and leaves the connections to the router: there may be thousands, and to close them panics here. ACKs
// wait for more than the commit here, so a deposed primary is not settled, and its tap is closed.
func TestService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := tapped()
		w.open(t, s, 3)
		w.leads = true
		s.Serve(3)
		if !s.Serving() || s.Answering() || s.Served() != 3 || w.woken != 1 {
			t.Errorf("served: %t, answered: %t, in term %d, woken %d times", s.Serving(), s.Answering(), s.Served(), w.woken)
		}
		if w.leads = false; s.Serving() {
			t.Error("served without a lease")
		}
		w.leads, w.role.Term = true, 4
		if s.Serving() {
			t.Error("served under the lease of another term")
		}
		if s.RoleChanged(consensus.RoleState{Term: 4}); w.woken != 2 || s.Served() != 0 {
			t.Errorf("deposed: woken %d times, serves term %d", w.woken, s.Served())
		}
		if gone, _ := closed(w.sources[0]); !gone {
			t.Error("deposed: the tap is open")
		}
		if s.Serve(3); s.Serving() || s.Served() != 0 {
			t.Error("served though its tap is closed")
		}
		if s.RoleChanged(consensus.RoleState{Term: 5}); w.woken != 3 {
			t.Errorf("nothing is served, and the router was woken: %d times", w.woken)
		}
	})
}

// TestEndOfTap: a tap that ends by itself raises a doubt about its mysqld, with the reason. A tap that we end raises
// none.
func TestEndOfTap(t *testing.T) {
	fails := func(err error) func(*Slot, *tappedWorld) {
		return func(_ *Slot, w *tappedWorld) {
			w.propose = func(context.Context) error { return err }
			w.send(w.binlog.Statement("DROP TABLE t"))
		}
	}
	for _, c := range []struct {
		what string
		end  func(*Slot, *tappedWorld)
		want string // "" = no doubt
	}{
		{"it is closed", func(s *Slot, _ *tappedWorld) { s.Close() }, ""},
		{"the node ends", fails(context.Canceled), ""},
		{"consensus refuses a batch", fails(errors.New("refused")), "the tap ended: propose batch 1: refused"},
		{"mysqld ends", func(_ *Slot, w *tappedWorld) { _ = w.sources[0].Close() }, "mysqld ended, or it closed the tap's connection"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, w := tapped()
			w.open(t, s, 3)
			ended := false
			go func() {
				s.run(s.of(3))
				ended = true
			}()
			synctest.Wait()
			c.end(s, w)
			synctest.Wait()
			var want []role.Input
			if c.want != "" {
				want = []role.Input{role.Doubt{Incarnation: 7, Reason: c.want}}
			}
			if d := cmp.Diff(want, s.cfg.Inbox.Mail()); d != "" || !ended {
				t.Errorf("%s: its end is there: %t (-want +got):\n%s", c.what, ended, d)
			}
			s.Close()
		})
	}
}
