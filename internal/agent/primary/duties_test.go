package primary

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/clock"
)

// dutiful is a node that records what its duties ask of its clients, its mysqld and consensus. At first mysqld runs,
// and this node leads in term 3.
type dutiful struct {
	*tappedWorld
	*noted
	none    bool
	ownPort bool
	fails   error
	hangs   bool // EndReads does
}

// onDuty returns the duties of a node whose epoch 3 is open.
func onDuty(t *testing.T) (*Duties, *dutiful) {
	t.Helper()
	s, w := tapped()
	w.open(t, s, 3)
	d := &dutiful{tappedWorld: w, noted: &noted{}}
	s.cfg.Clients, s.cfg.Raft = d, func() Raft { return dutyRaft{w, d.noted} }
	s.cfg.Local = func() (Local, error) {
		if d.none {
			return nil, ErrNoMysqld
		}
		return d, nil
	}
	return &Duties{Process: d.noted, Slot: s, Orders: &Orders{}, ElectionTimeout: time.Second}, d
}

// dutyRaft is consensus as the duties ask it.
type dutyRaft struct {
	*tappedWorld
	noted *noted
}

func (r dutyRaft) Barrier(context.Context) error         { return nil }
func (r dutyRaft) Resign(_ context.Context, term uint64) { r.noted.at("raft: resign %d", term) }
func (r dutyRaft) TransferTo(_ context.Context, term uint64, to cluster.NodeID) {
	r.noted.at("raft: transfer %d %d", term, to)
}

func (d *dutiful) CloseAll()     { d.at("close all") }
func (d *dutiful) Hold()         { d.at("hold") }
func (d *dutiful) OwnPort() bool { return d.ownPort }
func (d *dutiful) AwaitPort()    { d.at("await port") }
func (d *dutiful) EndReads(ctx context.Context) error {
	d.at("end reads")
	if d.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return d.fails
}
func (d *dutiful) ClosePort(context.Context) error { d.at("close port"); return d.fails }
func (d *dutiful) SetSuperReadOnly(_ context.Context, on bool, wait time.Duration) error {
	d.at("read-only %t %v", on, wait)
	return d.fails
}
func (d *dutiful) NotClosed(err error) error { return fmt.Errorf("%w: by session 7", err) }
func (d *dutiful) EndLockWaiters(context.Context) (int, error) {
	d.at("end waiters")
	return 0, d.fails
}
func (d *dutiful) Configure(context.Context) error { d.at("configure"); return nil }
func (d *dutiful) Start(context.Context) error     { d.at("start"); return nil }
func (d *dutiful) ShutOut(context.Context) (func(context.Context) error, error) {
	d.at("shut out")
	return func(context.Context) error { return nil }, nil
}
func (d *dutiful) StopReplica(context.Context) error { d.at("stop replica"); return nil }
func (d *dutiful) ReplicaStatus(context.Context) (ReplicaStatus, error) {
	return ReplicaStatus{}, nil
}
func (d *dutiful) AppliedWithin(context.Context, *gtid.Set, time.Duration) (bool, error) {
	return true, nil
}
func (d *dutiful) BeginReplica(context.Context) error              { return nil }
func (d *dutiful) RestartAckReceiver(context.Context) error        { return nil }
func (d *dutiful) InCommit(context.Context) (bool, error)          { return false, nil }
func (d *dutiful) NextBinlog(context.Context) error                { return nil }
func (d *dutiful) GTIDExecuted(context.Context) (*gtid.Set, error) { return &gtid.Set{}, nil }

// expect compares what was done since the last call.
func (d *dutiful) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if !slices.Equal(d.did, want) {
		t.Errorf("%s: it did %q, want %q", what, d.did, want)
	}
	d.did = nil
}

// TestDutiesGiveUp: a node stops to serve its clients before it gives leadership away, also the clients that are past
// the router.
func TestDutiesGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, d := onDuty(t)
		defer o.Close()
		o.Serve(3)
		o.Resign(t.Context(), 3)
		d.expect(t, "resigned", "raft: resign 3") // the lease ends with leadership
		d.ownPort = true
		o.Resign(t.Context(), 3)
		d.expect(t, "resigned with a port", "close all", "await port", "raft: resign 3")
		o.Serve(3)
		o.Transfer(t.Context(), 3, 2)
		d.expect(t, "transferred", "close all", "await port", "raft: transfer 3 2")
		if o.Served() != 0 {
			t.Errorf("term %d is served", o.Served())
		}
	})
}

// TestDutiesWrites: writes open only with the tap of their epoch. They close within a plan's limit, and at once if no
// mysqld runs.
func TestDutiesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, d := onDuty(t)
		if err := o.OpenWrites(t.Context(), 3); err != nil {
			t.Error(err)
		}
		d.expect(t, "opened", "await port", "read-only false 2s")
		if err := o.CloseWrites(t.Context()); err != nil {
			t.Error(err)
		}
		d.expect(t, "closed", "read-only true 2s")
		order := NewOrder("ann", true, time.Second, clock.Machine{})
		o.Orders.now.Store(order)
		o.Closing()
		d.fails = errors.ErrUnsupported
		if err := o.CloseWrites(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "by session 7") {
			t.Errorf("closed for a plan: %v", err)
		}
		d.expect(t, "closed for a plan", "hold", "read-only true 1s")
		d.none = true
		if err := o.CloseWrites(t.Context()); !errors.Is(err, ErrNoMysqld) {
			t.Errorf("closed for a plan without mysqld: %v", err)
		}
		woken := d.woken
		o.PlanEnded("called off")
		o.PlanEnded("called off")
		if err := o.CloseWrites(t.Context()); err != nil || d.woken != woken+1 {
			t.Errorf("closed without mysqld: %v, woken %d times", err, d.woken-woken)
		}
		if err := o.AwaitTarget(t.Context(), 2, 3); err == nil {
			t.Error("a target is waited for without an order")
		}
		d.none, d.fails = false, nil
		o.Close()
		if err := o.OpenWrites(t.Context(), 3); err == nil {
			t.Error("writes are open without a tap")
		}
	})
}

// willingHost may be the primary.
type willingHost struct{ Host }

func (willingHost) MayOpen() error                { return nil }
func (willingHost) CatchingUp(string)             {}
func (willingHost) CaughtUp(int64, time.Duration) {}

// TestDutiesEndReads: the sessions that only read end while mysqld is read-only, where an error kills no mysqld. This
// does not take long.
func TestDutiesEndReads(t *testing.T) {
	for name, c := range map[string]struct {
		set   func(*dutiful)
		want  error
		takes time.Duration
	}{
		"they end":        {func(*dutiful) {}, nil, 0},
		"an error":        {func(d *dutiful) { d.fails = errors.ErrUnsupported }, errors.ErrUnsupported, 0},
		"mysqld is stuck": {func(d *dutiful) { d.hangs = true }, context.DeadlineExceeded, endReadsTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, d := onDuty(t)
			defer o.Close()
			o.Host = willingHost{}
			c.set(d)
			began := time.Now()
			if err := o.CatchUp(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took != c.takes {
				t.Errorf("%s: it took %v", name, took)
			}
			d.expect(t, name, "stop replica", "end reads")
		})
	}
}

// TestDutiesReplicate: a mysqld that was opened is tidied, once. A mysqld that was settled counts as kept once it
// replicates.
func TestDutiesReplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, d := onDuty(t)
		defer o.Close()
		if err := o.OpenWrites(t.Context(), 3); err != nil {
			t.Error(err)
		}
		d.expect(t, "opened", "await port", "read-only false 2s")
		o.settled = 7
		for _, want := range [][]string{{"shut out", "configure", "start"}, {"configure", "start"}} {
			if err := o.Replicate(t.Context()); err != nil || o.Kept() != 1 {
				t.Errorf("%v, kept %d", err, o.Kept())
			}
			d.expect(t, "replicated", want...)
		}
	})
}

// TestDutiesSettle: only the mysqld of the epoch is settled, with the tap of the epoch; its port is closed first.
func TestDutiesSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, d := onDuty(t)
		d.fails = errors.ErrUnsupported
		settle := func(term uint64, want string) {
			t.Helper()
			if err := o.Settle(t.Context(), term); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("term %d: %v, want %q", term, err, want)
			}
		}
		settle(2, "its tap is closed")
		d.expect(t, "of another term")
		settle(3, "close mysqld's own port")
		d.expect(t, "with a port that stays open", "close port")
		d.none = true
		settle(3, "its tap is closed")
		d.none = false
		o.Close()
		settle(3, "its tap is closed")
		d.expect(t, "without a tap")
		if o.Killed() != 4 {
			t.Errorf("%d could not be settled", o.Killed())
		}
	})
}

// TestDutiesWithoutMysqld: a duty that needs a mysqld says that there is none.
func TestDutiesWithoutMysqld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, d := onDuty(t)
		defer o.Close()
		d.none = true
		o.Orders.now.Store(NewOrder("ann", true, time.Second, clock.Machine{}))
		for what, do := range map[string]func() error{
			"Judge":       func() error { return o.Judge(t.Context(), true) },
			"Replicate":   func() error { return o.Replicate(t.Context()) },
			"CatchUp":     func() error { return o.CatchUp(t.Context()) },
			"OpenWrites":  func() error { return o.OpenWrites(t.Context(), 3) },
			"AwaitTarget": func() error { return o.AwaitTarget(t.Context(), 2, 3) },
		} {
			if err := do(); !errors.Is(err, ErrNoMysqld) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
