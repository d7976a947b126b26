package primary

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/clock"
)

// TestOrders: there is one plan at a time, until the role machine has answered. The plan leaves time to open again
// within the limit that was asked for, and closes writes once.
func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Orders
		if s.Closing() || s.MovesAway() || s.Ended("nobody asked") {
			t.Error("there is a plan")
		}
		o := NewOrder("ann", true, time.Second, clock.Machine{})
		began, reason, err := 0, "", error(nil)
		go func() { reason, err = s.Run(t.Context(), o, func() { began++ }) }()
		synctest.Wait()
		if _, err := s.Run(t.Context(), NewOrder("bob", true, time.Second, clock.Machine{}), func() { began++ }); !errors.Is(err, ErrPlanUnderWay) || began != 1 {
			t.Errorf("a second plan: %v, %d began", err, began)
		}
		if s.MovesAway() || o.Closing() || s.Now() != o {
			t.Error("it closes writes before it was told to")
		}
		for range 2 {
			if !s.Closing() || !s.MovesAway() {
				t.Error("it does not close writes")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if o.ClosedFor() != 200*time.Millisecond || o.Left() != 700*time.Millisecond {
			t.Errorf("closed for %v, %v is left", o.ClosedFor(), o.Left())
		}
		time.Sleep(time.Second)
		if o.Left() != 0 || !s.Ended("why") || s.MovesAway() {
			t.Errorf("%v is left", o.Left())
		}
		synctest.Wait()
		if reason != "why" || err != nil {
			t.Errorf("it came to %q, %v", reason, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Run(ctx, NewOrder("ann", true, time.Second, clock.Machine{}), func() {}); !errors.Is(err, ErrPlanNotEnded) || s.Now() != nil {
			t.Errorf("a plan that does not end: %v", err)
		}
	})
}

// followed is a target that records what it is asked for, and fails at one of these requests.
type followed struct {
	did   []string
	fails string
}

func (f *followed) step(what string) error {
	f.did = append(f.did, what)
	if what == f.fails {
		return errors.New(what)
	}
	return nil
}

func (f *followed) Applied(context.Context, *gtid.Set) error { return f.step("applied") }
func (f *followed) NoForeignXA(context.Context) error        { return f.step("xa") }

// TestTarget: the index, then what mysqld has, then what clients have ended there; leadership is told of last.
func TestTarget(t *testing.T) {
	all := []string{"local", "index", "applied", "xa", "chosen"}
	for n, fails := range append(slices.Clone(all), "") {
		f := &followed{fails: fails}
		term := uint64(0)
		target := Target{
			Role: func() status.Role { return status.RoleReplica }, Local: func() (TargetServer, error) { return f, f.step("local") },
			WaitIndex: func(context.Context, uint64) error { return f.step("index") }, Committed: func() *gtid.Set { return nil },
			Chosen: func(t uint64) { term = t; _ = f.step("chosen") },
		}
		err := target.Follow(t.Context(), 7, 3)
		if did := all[:min(n+1, len(all))]; !slices.Equal(f.did, did) || (err == nil) != (n >= 4) || (term == 4) != (n >= 4) {
			t.Errorf("%q fails: %v after %q, leadership of term %d", fails, err, f.did, term)
		}
		if err := target.Follow(t.Context(), 7, 0); n > 4 && (err != nil || len(f.did) != 2*len(all)-1) {
			t.Errorf("not chosen: %v after %q", err, f.did)
		}
		target.Role = func() status.Role { return status.RolePromoting }
		if err := target.Follow(t.Context(), 7, 3); err == nil || err.Error() != "it is not a replica, it is promoting" {
			t.Errorf("not a replica: %v", err)
		}
	}
}
