package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// slowElections gives the tests that stop followers the time to act while the
// leader still leads.
const slowElections = 3 * time.Second

// verySlowElections let a leader without followers lead, and its mysqld live,
// for longer than the 8.7 s that a mysqld takes from SIGTERM to the OK for its
// waiting sessions. So to prevent the OK the agent must react to the SIGTERM itself.
const verySlowElections = 12 * time.Second

// electionOptions keeps the heartbeat short: the lease is three of them shorter
// than the election timeout.
func electionOptions(timeout time.Duration) devcluster.Options {
	return devcluster.Options{Nodes: 3, ElectionTimeout: timeout}
}

// TestNoMajority lets sessions wait for an ACK that cannot come, and tries
// every way in which one could get OK nevertheless.
func TestNoMajority(t *testing.T) {
	beside(t)
	f := newFixture(t, electionOptions(slowElections))
	f.think = busy
	f.scenario(t, "ResumedInTime", f.resumedInTime)
	f.scenario(t, "ResumedLate", f.resumedLate)
	f.scenario(t, "TailOfDeposedPrimary", f.tailOfDeposedPrimary)
	f.scenario(t, "TailOfReelectedPrimary", f.tailOfReelectedPrimary)
	f.scenario(t, "TerminateAgent", func(t *testing.T, ctx context.Context) {
		f.stopWhileWaiting(t, ctx, func(i int) {
			if err := f.Terminate(ctx, i); err != nil {
				t.Errorf("SIGTERM: %v", err)
			}
		})
	})
	f.scenario(t, "InterruptTerminal", func(t *testing.T, ctx context.Context) {
		f.stopWhileWaiting(t, ctx, func(i int) {
			if err := f.Interrupt(ctx, i); err != nil {
				t.Errorf("Ctrl-C: %v", err)
			}
		})
	})
}

// TestMysqldStopped shuts the primary's mysqld down behind its agent's back,
// with sessions waiting. Left to itself it would answer OK to them.
func TestMysqldStopped(t *testing.T) {
	beside(t)
	f := newFixture(t, electionOptions(verySlowElections))
	f.think = busy
	f.scenario(t, "SIGTERM", func(t *testing.T, ctx context.Context) {
		f.stopWhileWaiting(t, ctx, func(i int) {
			pid := f.MysqldPID(i)
			if err := f.SignalMysqld(i, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			f.awaitMysqldGone(t, ctx, i, pid)
		})
	})
	f.scenario(t, "SHUTDOWN", func(t *testing.T, ctx context.Context) {
		f.stopWhileWaiting(t, ctx, func(i int) {
			pid := f.MysqldPID(i)
			if _, err := f.admin(t, i).ExecContext(ctx, "SHUTDOWN"); err != nil {
				t.Logf("SHUTDOWN: %v", err) // the server may be dead before it answers
			}
			f.awaitMysqldGone(t, ctx, i, pid)
		})
	})
}

// blocked stops the followers' agents and then lets writers write to the
// primary, until they wait there for an ACK.
func (f *fixture) blocked(t *testing.T, ctx context.Context) (primary int, followers []int, l *load) {
	t.Helper()
	primary = f.heal(t, ctx)
	followers = f.others(primary)
	f.pause(t, ctx, followers...)
	l = f.start(t, 4, primary)
	f.awaitWaiting(t, ctx, primary)
	return primary, followers, l
}

// resumedInTime: one follower back within half an election timeout is a
// majority, and the waiting commits return OK.
func (f *fixture) resumedInTime(t *testing.T, ctx context.Context) {
	const attemptsMax = 5 // a busy machine may be too slow to be in time
	for range attemptsMax {
		began := time.Now()
		primary, followers, l := f.blocked(t, ctx)
		term := f.status(t, ctx, primary).Term
		if n := l.Stats().Acknowledged; n != 0 {
			t.Fatalf("%d rows were acknowledged without a majority", n)
		}
		f.resume(t, followers[0])
		if took := time.Since(began); took > slowElections/2 {
			t.Logf("the follower was resumed after %v: too late, again", took)
			f.resume(t, followers[1])
			l.stop(t)
			continue
		}
		l.awaitAcks(t, ctx, 100)
		if s := l.Stats(); s.Reconnects != 0 || s.Unknown != 0 {
			t.Errorf("the sessions did not survive the pause: %+v", s)
		}
		if st := f.status(t, ctx, primary); st.Role != status.RolePrimary || st.Term != term {
			t.Errorf("the primary of term %d is now %s in term %d", term, st.Role, st.Term)
		}
		f.resume(t, followers[1])
		l.stop(t)
		f.check(t, ctx)
		return
	}
	t.Fatalf("in %d attempts the follower was never resumed within %v", attemptsMax, slowElections/2)
}

// resumedLate: the leader has stepped down. Connections break, and each transaction that waited
// is on all servers or on none.
func (f *fixture) resumedLate(t *testing.T, ctx context.Context) {
	primary, followers, l := f.blocked(t, ctx)
	if err := f.WaitNode(ctx, primary, "no longer the primary", func(st status.Node) bool {
		return st.Role != status.RolePrimary
	}); err != nil {
		t.Fatal(err)
	}
	l.mustHaveNoOK(t)
	f.resume(t, followers...)
	f.writeAndCheck(t, ctx)
}

// writeAndCheck brings the cluster back, writes to it and checks everything.
func (f *fixture) writeAndCheck(t *testing.T, ctx context.Context) {
	t.Helper()
	f.heal(t, ctx)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	f.check(t, ctx)
}

// stranded kills the followers and lets writers write to the primary until its
// log has a tail that no other node has. Then it kills the primary, too.
func (f *fixture) stranded(t *testing.T, ctx context.Context) (primary int, followers []int, l *load) {
	t.Helper()
	primary = f.heal(t, ctx)
	followers = f.others(primary)
	// The followers are killed, not stopped: bytes that are sent to a stopped agent wait in its socket,
	// and reach it when it goes on.
	atOnce(t, followers, f.KillBoth)
	l = f.start(t, 4, primary)
	f.awaitWaiting(t, ctx, primary)
	if err := f.WaitNode(ctx, primary, "holding a tail that is not committed", func(st status.Node) bool {
		return st.LogLast > st.LogCommit
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	l.mustHaveNoOK(t)
	return primary, followers, l
}

// tailOfDeposedPrimary: the others commit a new epoch first, so no node keeps the
// tail.
func (f *fixture) tailOfDeposedPrimary(t *testing.T, ctx context.Context) {
	primary, followers, l := f.stranded(t, ctx)
	for _, i := range followers {
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	now, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if now == primary {
		t.Fatalf("%s is dead and the primary", f.Name(primary))
	}
	f.writeAndCheck(t, ctx)
	for i := range f.Len() {
		if n := l.rowsOn(t, ctx, i); n != 0 {
			t.Errorf("node %s has %d rows of the tail that only the old primary had", f.Name(i), n)
		}
	}
}

// tailOfReelectedPrimary: with one other node it has the longer log, wins, and
// its tail becomes everybody's.
func (f *fixture) tailOfReelectedPrimary(t *testing.T, ctx context.Context) {
	primary, followers, l := f.stranded(t, ctx)
	for _, i := range []int{primary, followers[0]} {
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WaitPrimary(ctx); err != nil {
		t.Fatal(err)
	}
	f.writeAndCheck(t, ctx)
	want := l.rowsOn(t, ctx, primary)
	if want == 0 {
		t.Errorf("the tail of the primary that was elected again is gone")
	}
	for _, i := range followers {
		if n := l.rowsOn(t, ctx, i); n != want {
			t.Errorf("node %s has %d rows of the tail, the old primary %d", f.Name(i), n, want)
		}
	}
}

// stopWhileWaiting ends the primary in a way that mysqld, left to itself, would
// answer with OK.
func (f *fixture) stopWhileWaiting(t *testing.T, ctx context.Context, stop func(primary int)) {
	t.Helper()
	primary, followers, l := f.blocked(t, ctx)
	stop(primary)
	l.mustHaveNoOK(t)
	f.resume(t, followers...)
	f.writeAndCheck(t, ctx)
}

func (f *fixture) awaitMysqldGone(t *testing.T, ctx context.Context, i, pid int) {
	t.Helper()
	if err := devcluster.Poll(ctx, fmt.Sprintf("mysqld %d is gone", pid), func(context.Context) (bool, string, error) {
		return f.MysqldPID(i) != pid, "it is there", nil
	}); err != nil {
		t.Fatal(err)
	}
	// Its agent must have noticed, too, or the node still seems to be ready.
	if err := f.WaitNode(ctx, i, "its agent has noticed", func(n status.Node) bool { return n.MysqldPID != pid }); err != nil {
		t.Fatal(err)
	}
}
