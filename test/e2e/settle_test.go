package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestSettle deposes a primary under load. If none of its transactions is lost, its mysqld
// goes on, and clients that waited get OK. Otherwise the mysqld is killed.
func TestSettle(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, Network: true})
	f.scenario(t, "NothingLost", f.settleBlip)
	f.scenario(t, "Idle", f.settleIdle)
	f.scenario(t, "SomethingLost", f.settleLost)
}

// settleTries bounds how often settleBlip begins again.
const settleTries = 3

// settleBlip: the primary hears nobody for a while. Its followers have all that it
// wrote, but it does not know that. It gives up, then hears them again.
func (f *fixture) settleBlip(t *testing.T, ctx context.Context) {
	t.Cleanup(f.MendAll)
	for try := 0; ; try++ {
		primary := f.heal(t, ctx)
		pid, before := f.MysqldPID(primary), f.settles(t, primary)
		const writes = 40
		q := f.newQuestions(t, ctx, primary)
		q.sessions = q.sessions[:writes]
		l := f.start(t, 6)
		l.awaitAcks(t, ctx, 100)
		for _, o := range f.others(primary) {
			f.Cut(o, primary)
		}
		q.writeAll() // the lease has some time left
		f.awaitDeposed(t, ctx, primary)
		f.MendAll()
		q.waiting.Wait()
		f.heal(t, ctx)
		l.awaitAcks(t, ctx, 100)
		l.stop(t)
		f.check(t, ctx)
		now := f.settles(t, primary)
		if (now.settled != before.settled+1 || f.MysqldPID(primary) != pid) && try < settleTries-1 {
			t.Logf("try %d of %d: settled %d times; killed, if something was in the binlog that no log has", try+1, settleTries, now.settled-before.settled)
			continue // a statement that ran when leadership went, or an election more
		}
		if now.settled != before.settled+1 || f.MysqldPID(primary) != pid {
			t.Fatalf("settled %d times before, now %d times; mysqld was %d, is %d", before.settled, now.settled, pid, f.MysqldPID(primary))
		}
		answered := 0
		for _, a := range q.asked {
			if a.answered {
				answered++
			}
		}
		if answered != writes || now.acknowledged == before.acknowledged {
			t.Errorf("%d of %d writes that waited got OK, %d transactions were acknowledged late", answered, writes, now.acknowledged-before.acknowledged)
		}
		t.Logf("%d transactions were acknowledged late, try %d", now.acknowledged-before.acknowledged, try+1)
		return
	}
}

// settleIdle: nothing is in flight when the primary is cut off, so it knows without the others
// that nothing is lost.
func (f *fixture) settleIdle(t *testing.T, ctx context.Context) {
	t.Cleanup(f.MendAll)
	steady(t, func() (wrong string) {
		primary := f.heal(t, ctx)
		pid, before := f.MysqldPID(primary), f.settles(t, primary)
		f.Isolate(primary)
		f.awaitDeposed(t, ctx, primary)
		if _, err := f.WaitPrimary(ctx, primary); err != nil {
			t.Fatal(err)
		}
		f.MendAll()
		f.heal(t, ctx)
		if now := f.settles(t, primary); now.settled != before.settled+1 || f.MysqldPID(primary) != pid {
			wrong = fmt.Sprintf("settled %d times before, now %d times; mysqld was %d, is %d", before.settled, now.settled, pid, f.MysqldPID(primary))
		}
		f.check(t, ctx)
		return wrong
	})
}

// settleLost: when the primary is cut off, its binlog has transactions that reach no other node.
func (f *fixture) settleLost(t *testing.T, ctx context.Context) {
	t.Cleanup(f.MendAll)
	primary := f.heal(t, ctx)
	pid, before := f.MysqldPID(primary), f.settles(t, primary)
	q := f.newQuestions(t, ctx, primary)
	l := f.start(t, 6)
	l.awaitAcks(t, ctx, 100)
	f.Isolate(primary)
	q.sessions = q.sessions[:20]
	q.writeAll()
	if _, err := f.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	f.MendAll()
	q.waiting.Wait()
	f.heal(t, ctx)
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	if now := f.settles(t, primary); now.settled != before.settled || f.MysqldPID(primary) == pid {
		t.Errorf("settled %d times before, now %d times; mysqld was %d, is %d", before.settled, now.settled, pid, f.MysqldPID(primary))
	}
	for _, a := range q.asked {
		if a.answered {
			t.Error("a write that reached nobody got OK")
		}
	}
	f.check(t, ctx)
}

// awaitDeposed waits until a node knows that it does not lead.
func (f *fixture) awaitDeposed(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	if err := f.WaitNode(ctx, i, "deposed", func(st status.Node) bool { return st.Leader != st.ID }); err != nil {
		t.Fatal(err)
	}
}

// writeAll lets all sessions write at the same time, and returns when all have sent their statement.
func (q *questions) writeAll() {
	var sent sync.WaitGroup
	for _, conn := range q.sessions {
		sent.Add(1)
		q.waiting.Go(func() {
			sent.Done()
			q.askOne(conn, true)
		})
	}
	sent.Wait()
}

// settles is what a node's agent has logged about settling, in all its lives.
type settles struct{ settled, acknowledged int }

var settledLine = regexp.MustCompile(`msg="settled: (\d+) acknowledged, 0 killed"`)

func (f *fixture) settles(t *testing.T, i int) (s settles) {
	t.Helper()
	content, err := os.ReadFile(f.Logs(i))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range settledLine.FindAllSubmatch(content, -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		s.settled, s.acknowledged = s.settled+1, s.acknowledged+n
	}
	return s
}
