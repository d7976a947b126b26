package primary

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/role"
)

// TestInboxKeepsWhatMatters: of Raft's states the newest is kept, of doubts the first about the newest mysqld.
func TestInboxKeepsWhatMatters(t *testing.T) {
	shell, _ := operating(&noted{})
	b := shell.Inbox
	b.Doubt(1, "first")
	b.Doubt(1, "second")
	b.RaftChanged(role.RaftChanged{Term: 1})
	b.RaftChanged(role.RaftChanged{Term: 2})
	want := []role.Input{role.RaftChanged{Term: 2}, role.Doubt{Incarnation: 1, Reason: "first"}}
	if d := cmp.Diff(want, b.Mail()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	b.Doubt(1, "")
	b.Doubt(2, "of the next mysqld")
	b.Doubt(1, "late")
	b.LogTrouble(role.LogTrouble{Reason: "full"})
	b.LogTrouble(role.LogTrouble{})
	if d := cmp.Diff([]role.Input{role.Doubt{Incarnation: 2, Reason: "of the next mysqld"}, role.LogTrouble{}}, b.Mail()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, _, ok := b.take(false); ok {
		t.Error("something is left")
	}
}

// TestInboxPicks: the picker chooses among all sources that have an input.
func TestInboxPicks(t *testing.T) {
	for pick, want := range [][]role.Input{nil, {role.Stop{}}, {role.RaftChanged{Term: 1}}} {
		shell, _ := operating(&noted{})
		b := shell.Inbox
		b.cfg.Pick = func(n int) int {
			if n != 3 {
				t.Errorf("of %d sources", n)
			}
			return pick
		}
		b.Put(t.Context(), role.Stop{})
		b.RaftChanged(role.RaftChanged{Term: 1})
		batch, ticked, ok := b.take(true)
		if d := cmp.Diff(want, batch); d != "" || ticked != (pick == 0) || !ok {
			t.Errorf("source %d: ticked %t, %t (-want +got):\n%s", pick, ticked, ok, d)
		}
	}
}

// TestInboxIsBounded: while the queue is full, a caller that brings an input waits until there is room or its context
// ends. Each input gets in once, in order.
func TestInboxIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shell, told := operating(&noted{})
		b := shell.Inbox
		for n := range inputsMax {
			b.Put(t.Context(), role.Chosen{Term: uint64(n)})
		}
		ctx, cancel := context.WithCancel(t.Context())
		put := 0
		for range 3 {
			go func() {
				b.Put(ctx, role.Stop{})
				put++
			}()
		}
		synctest.Wait()
		if put != 0 || len(told()) != inputsMax {
			t.Errorf("%d did not wait, %d are queued", put, len(told()))
		}
		first, _, _ := b.take(false)
		synctest.Wait()
		if put != 1 || len(told()) != inputsMax || first[0] != (role.Chosen{Term: 0}) {
			t.Errorf("%v was taken: %d were put, %d are queued", first, put, len(told()))
		}
		cancel()
		synctest.Wait()
		if put != 3 || len(told()) != inputsMax {
			t.Errorf("the context has ended: %d returned, %d are queued", put, len(told()))
		}
	})
}

// TestShellTicks: the role machine is told the time before each input. While time alone may change something it is
// told ten times a second; else only at the end of the lease, or once a minute.
func TestShellTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shell, _ := operating(&noted{})
		var seen []time.Duration
		shell.Stepped = func(_ *role.Machine, in role.Input, _ role.Phase, _ []role.Effect) {
			if tick, ok := in.(role.Tick); ok {
				seen = append(seen, tick.Now)
			}
		}
		serving, changes := false, 0
		lease := time.Now().Add(time.Hour)
		shell.Inbox.cfg.Serving = func() bool { return serving && time.Now().Before(lease) }
		shell.Inbox.cfg.Lease = func() (time.Duration, bool) { return time.Until(lease), true }
		shell.Inbox.cfg.ServiceChanged = func() { changes++ }
		m := role.New(role.Config{Self: 1, Kind: cluster.KindLogger})
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		go func() { err = shell.Run(ctx, m, role.Fenced{}) }()
		took := func(d time.Duration) []time.Duration {
			seen = nil
			time.Sleep(d)
			synctest.Wait()
			return seen
		}
		if got := took(950 * time.Millisecond); len(got) != 9 {
			t.Errorf("without a leader it sees %v", got)
		}
		shell.Inbox.RaftChanged(role.RaftChanged{Term: 1, Leader: 2})
		if got := took(59 * time.Second); len(got) != 1 || got[0] != 950*time.Millisecond {
			t.Errorf("idle, it sees %v", got)
		}
		if got := took(2 * time.Second); len(got) != 1 || got[0] != 60950*time.Millisecond {
			t.Errorf("idle for a minute, it sees %v", got)
		}
		serving, lease = true, time.Now().Add(700*time.Millisecond)
		shell.Inbox.LeaseChanged()
		shell.Inbox.LeaseChanged() // one signal is enough
		if got := took(time.Second); len(got) != 2 || got[1]-got[0] != 700*time.Millisecond || changes != 2 {
			t.Errorf("serving, it sees %v; %d changes of the service", got, changes)
		}
		cancel()
		synctest.Wait()
		if err == nil {
			t.Error("it goes on after its context has ended")
		}
	})
}

// TestShellEnds: the shell ends with the role machine.
func TestShellEnds(t *testing.T) {
	shell, _ := operating(&noted{})
	m := role.New(role.Config{Self: 1, Kind: cluster.KindLogger})
	shell.Inbox.Put(t.Context(), role.Stop{})
	if err := shell.Run(t.Context(), m, role.Fenced{}); err != nil || m.Phase() != role.PhaseEnded {
		t.Errorf("%v in phase %s", err, m.Phase())
	}
}
