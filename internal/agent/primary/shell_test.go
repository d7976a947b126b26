package primary

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// noted are operations that record their begin, take a second each unless they are cancelled, and fail if fails is
// set.
type noted struct {
	did   []string
	fails error
}

func (s *noted) step(ctx context.Context, what string, args ...any) error {
	s.did = append(s.did, fmt.Sprintf(what, args...))
	if err := (clock.Machine{}).Wait(ctx, time.Second, nil); err != nil {
		return err
	}
	return s.fails
}

func (s *noted) StartMysqld(ctx context.Context, binlog bool) (uint64, error) {
	return 7, s.step(ctx, "start %t", binlog)
}
func (s *noted) Judge(ctx context.Context, promote bool) error {
	return s.step(ctx, "judge %t", promote)
}
func (s *noted) Replicate(ctx context.Context) error { return s.step(ctx, "replicate") }
func (s *noted) CatchUp(ctx context.Context) error   { return s.step(ctx, "catch up") }
func (s *noted) OpenTap(ctx context.Context, term uint64) error {
	return s.step(ctx, "tap %d", term)
}
func (s *noted) CommitEpoch(ctx context.Context, term uint64) error {
	return s.step(ctx, "epoch %d", term)
}
func (s *noted) OpenWrites(ctx context.Context, term uint64) error {
	return s.step(ctx, "open %d", term)
}
func (s *noted) CloseWrites(ctx context.Context) error         { return s.step(ctx, "close") }
func (s *noted) Settle(ctx context.Context, term uint64) error { return s.step(ctx, "settle %d", term) }
func (s *noted) AwaitTarget(ctx context.Context, to cluster.NodeID, term uint64) error {
	return s.step(ctx, "await %d %d", to, term)
}
func (s *noted) StopMysqld()                    { s.did = append(s.did, "stop") }
func (s *noted) SignalKill()                    { s.did = append(s.did, "signal") }
func (s *noted) KillMysqld(ctx context.Context) { _ = s.step(ctx, "kill") }

func (s *noted) at(what string, args ...any) { s.did = append(s.did, fmt.Sprintf(what, args...)) }

func (s *noted) Serve(term uint64)       { s.at("serve %d", term) }
func (s *noted) Unserve()                { s.at("unserve") }
func (s *noted) CloseTap()               { s.at("close tap") }
func (s *noted) Closing()                { s.at("closing") }
func (s *noted) PlanEnded(reason string) { s.at("plan ended %s", reason) }
func (s *noted) Transfer(_ context.Context, term uint64, to cluster.NodeID) {
	s.at("transfer %d %d", term, to)
}
func (s *noted) Resign(_ context.Context, term uint64) { s.at("resign %d", term) }

// operating is a shell on a node that leads in term 3, without clients. told returns the inputs for the role machine.
func operating(s *noted) (shell *Shell, told func() []role.Input) {
	inbox := NewInbox(InboxConfig{Clock: clock.Machine{}, Pick: func(int) int { return 0 }, Serving: func() bool { return false }})
	return &Shell{
		Inbox: inbox, Service: s, Steps: s, Leads: func(term uint64) bool { return term == 3 }, PromotionTimeout: time.Second / 2,
		Stepped: func(*role.Machine, role.Input, role.Phase, []role.Effect) {}, Began: func(role.Effect) {},
		Ended: func(role.Effect, role.Done, error) {}, Clock: clock.Machine{},
	}, func() []role.Input { return inbox.queue }
}

// TestOperations: each kind of operation calls its own function, with its arguments.
func TestOperations(t *testing.T) {
	const lost = "this node does not lead in term 2"
	for _, c := range []struct {
		e     role.Effect
		did   string
		fails error
		want  role.Done
	}{
		{role.Effect{Kind: role.StartMysqld, ReplicaBinlog: true}, "start true", nil, role.Done{Verdict: role.OK, Incarnation: 7}},
		{role.Effect{Kind: role.Judge, Promote: true}, "judge true", nil, role.Done{Verdict: role.Failed, Reason: "context deadline exceeded"}},
		{role.Effect{Kind: role.Replicate}, "replicate", nil, role.Done{Verdict: role.Failed, Reason: "context deadline exceeded"}},
		{role.Effect{Kind: role.CatchUp, Term: 3}, "catch up", nil, role.Done{Verdict: role.OK}},
		{role.Effect{Kind: role.CatchUp, Term: 3}, "catch up", &VerdictError{role.ApplierStopped, "x"}, role.Done{Verdict: role.ApplierStopped, Reason: "x"}},
		{role.Effect{Kind: role.CatchUp, Term: 2}, "", nil, role.Done{Verdict: role.Failed, Reason: lost}},
		{role.Effect{Kind: role.OpenTap, Term: 3}, "tap 3", nil, role.Done{Verdict: role.OK}},
		{role.Effect{Kind: role.CommitEpoch, Term: 3}, "epoch 3", errors.New("y"), role.Done{Verdict: role.Failed, Reason: "y"}},
		{role.Effect{Kind: role.OpenWrites, Term: 3}, "open 3", nil, role.Done{Verdict: role.OK}},
		{role.Effect{Kind: role.OpenWrites, Term: 2}, "", nil, role.Done{Verdict: role.Failed, Reason: lost}},
		{role.Effect{Kind: role.CloseWrites}, "closing", nil, role.Done{Verdict: role.OK}},
		{role.Effect{Kind: role.Settle, Term: 2}, "settle 2", nil, role.Done{Verdict: role.OK}},
		{role.Effect{Kind: role.AwaitTarget, To: 5, Term: 3}, "await 5 3", nil, role.Done{Verdict: role.OK}},
		{role.Effect{Kind: role.StopMysqld}, "stop", nil, role.Done{Verdict: role.OK}},
		{role.Effect{Kind: "dance"}, "", nil, role.Done{Verdict: role.Failed, Reason: "unknown effect dance op=9"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &noted{fails: c.fails}
			shell, told := operating(s)
			c.e.Op, c.want.Op = 9, 9
			shell.execute(t.Context(), c.e)
			time.Sleep(time.Minute)
			if d := cmp.Diff([]role.Input{c.want}, told()); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.e, d)
			}
			if (c.did == "") != (len(s.did) == 0) || c.did != "" && s.did[0] != c.did {
				t.Errorf("%s: it did %q", c.e, s.did)
			}
		})
	}
}

// TestOperationsOneAtATime: an operation begins when the operation before it has ended. The signal that kills mysqld
// is sent at once.
func TestOperationsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &noted{}
		shell, told := operating(s)
		shell.execute(t.Context(), role.Effect{Kind: role.Cancel, Op: 1}) // no operation was begun so far
		shell.execute(t.Context(), role.Effect{Kind: role.CatchUp, Op: 1})
		synctest.Wait()
		shell.execute(t.Context(), role.Effect{Kind: role.CloseWrites, Op: 2})
		shell.execute(t.Context(), role.Effect{Kind: role.Cancel, Op: 1}) // operation 1 is not the newest
		shell.execute(t.Context(), role.Effect{Kind: role.KillMysqld, Op: 3})
		synctest.Wait()
		if d := cmp.Diff([]string{"catch up", "closing", "signal"}, s.did); d != "" {
			t.Errorf("while the first goes on (-want +got):\n%s", d)
		}
		time.Sleep(time.Second + time.Millisecond)
		if d := cmp.Diff([]string{"catch up", "closing", "signal", "close"}, s.did); d != "" {
			t.Errorf("once the first has ended (-want +got):\n%s", d)
		}
		time.Sleep(time.Second / 2)
		shell.execute(t.Context(), role.Effect{Kind: role.CatchUp, Op: 4})
		shell.execute(t.Context(), role.Effect{Kind: role.Cancel, Op: 4})
		time.Sleep(time.Minute)
		want := []role.Input{role.Done{Op: 1, Verdict: role.OK}, role.Done{Op: 2, Verdict: role.OK}, role.Done{Op: 3, Verdict: role.OK},
			role.Done{Op: 4, Verdict: role.Failed, Reason: "context canceled"}}
		if d := cmp.Diff(want, told()); d != "" {
			t.Errorf("they came to (-want +got):\n%s", d)
		}
	})
}

// TestEffectsAtOnce: each of the other effects calls its own function, with its arguments.
func TestEffectsAtOnce(t *testing.T) {
	s := &noted{}
	shell, _ := operating(s)
	for _, e := range []role.Effect{
		{Kind: role.Serve, Term: 3}, {Kind: role.Unserve}, {Kind: role.CloseTap}, {Kind: role.PlanEnded, Reason: "x"},
		{Kind: role.Transfer, Term: 3, To: 2}, {Kind: role.Resign, Term: 4},
	} {
		shell.execute(t.Context(), e)
	}
	if d := cmp.Diff([]string{"serve 3", "unserve", "close tap", "plan ended x", "transfer 3 2", "resign 4"}, s.did); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
