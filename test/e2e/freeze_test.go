package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// long says whether tests should take their long form: a frozen node stays
// frozen for half a minute after another one took over, a crash loop goes on.
func long() bool { return os.Getenv("QUORATE_E2E_LONG") != "" }

// frozenLong is how long a node stays frozen then. askEvery is how often a session asks meanwhile.
const (
	frozenLong = 30 * time.Second
	askEvery   = 50 * time.Millisecond
)

// TestFreeze stops (SIGSTOP) the processes of a primary, lets another node take
// over, and then lets the old primary go on. A host that stands still does not notice it:
// its clients' requests wait in its sockets, and it finds them there.
func TestFreeze(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.think = busy
	for _, sc := range []struct {
		name          string
		agent, mysqld bool
	}{
		{"Agent", true, false}, {"Both", true, true}, {"Mysqld", false, true},
	} {
		f.scenario(t, sc.name, func(t *testing.T, ctx context.Context) { f.freeze(t, ctx, sc.agent, sc.mysqld) })
	}
}

func (f *fixture) freeze(t *testing.T, ctx context.Context, agent, mysqld bool) {
	primary := f.heal(t, ctx)
	before := f.dataIdentity(t, ctx)
	q := f.newQuestions(t, ctx, primary)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	l.ResetGap()
	f.stopProcesses(t, ctx, primary, agent, mysqld)
	stopAsking := q.start(ctx)
	next, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	opened := f.openedAt(t, next)
	l.awaitAcks(t, ctx, 100)
	gap := l.Gap()
	q.awaitSent(t, ctx, opened, 20)
	if long() {
		<-time.After(frozenLong)
	}
	f.continueProcesses(t, primary, agent, mysqld)
	stopAsking()
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	l.stop(t)
	q.mustNotBeAnswered(t, before[primary].UUID, opened)
	f.check(t, ctx)
	f.mustNotBeRebuilt(t, ctx, before)
	t.Logf("write gap %v", gap.Round(time.Millisecond))
}

// stopProcesses stops a node's processes and waits until the kernel has.
func (f *fixture) stopProcesses(t *testing.T, ctx context.Context, i int, agent, mysqld bool) {
	t.Helper()
	if mysqld {
		if err := f.PauseMysqld(i); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.ResumeMysqld(i) }) // for a test that failed in between
	}
	if agent {
		f.pause(t, ctx, i)
	}
}

// continueProcesses lets them go on. A mysqld may have been killed meanwhile.
func (f *fixture) continueProcesses(t *testing.T, i int, agent, mysqld bool) {
	t.Helper()
	if mysqld {
		_ = f.ResumeMysqld(i)
	}
	if agent {
		f.resume(t, i)
	}
}

// openedAt returns when node i's agent last began to open its mysqld for
// writes, by its log. Before that nobody can have read or written there.
func (f *fixture) openedAt(t *testing.T, i int) time.Time {
	t.Helper()
	at, err := lastLogged(f.Logs(i), `msg=effect do="open-writes`)
	if err != nil {
		t.Fatalf("node %s: %v", f.Name(i), err)
	}
	return at
}

// questions are sessions with a primary that each ask one thing, after it froze,
// and wait for the answer.
type questions struct {
	sessions []*sql.Conn
	waiting  sync.WaitGroup

	mu    sync.Mutex
	asked []question
}

// question is one request; the times are of this machine's clock.
type question struct {
	sent     time.Time
	write    bool
	answered bool
	server   string // who answered a read
}

// sessionsMax is within the servers' max_connections.
const sessionsMax = 200

// newQuestions opens sessions through the port of the primary's own node, where
// they stay open when it freezes.
func (f *fixture) newQuestions(t *testing.T, ctx context.Context, primary int) *questions {
	t.Helper()
	db := openDSN(t, f.DSN(primary), nil)
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS quorate_demo.late (id BIGINT AUTO_INCREMENT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(-1)
	q := &questions{}
	for range sessionsMax {
		conn, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		q.sessions = append(q.sessions, conn)
	}
	return q
}

// start lets the sessions ask, until the returned function is called, which
// waits for the answers.
func (q *questions) start(ctx context.Context) (stop func()) {
	asking, cancel := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		q.ask(asking)
	}()
	return func() {
		cancel()
		<-asked
	}
}

// ask sends one question after the other, each in a session of its own, until
// ctx ends or no session is left. It returns when each question was answered or has
// failed.
func (q *questions) ask(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for n, conn := range q.sessions {
		q.waiting.Go(func() { q.askOne(conn, n%4 == 0) })
		select {
		case <-tick.C:
		case <-ctx.Done():
			for _, rest := range q.sessions[n+1:] {
				_ = rest.Close()
			}
			q.waiting.Wait()
			return
		}
	}
	q.waiting.Wait()
}

func (q *questions) askOne(conn *sql.Conn, write bool) {
	ctx, cancel := context.WithTimeout(context.Background(), scenarioTimeout)
	defer cancel()
	defer conn.Close()
	got := question{sent: time.Now(), write: write}
	q.mu.Lock()
	n := len(q.asked)
	q.asked = append(q.asked, got)
	q.mu.Unlock()
	var err error
	if write {
		_, err = conn.ExecContext(ctx, "INSERT INTO quorate_demo.late () VALUES ()")
	} else {
		err = conn.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid").Scan(&got.server)
	}
	got.answered = err == nil
	q.mu.Lock()
	q.asked[n] = got
	q.mu.Unlock()
}

// awaitSent waits until n questions were sent after at.
func (q *questions) awaitSent(t *testing.T, ctx context.Context, at time.Time, n int) {
	t.Helper()
	if err := devcluster.Poll(ctx, "questions were sent to the old primary", func(context.Context) (bool, string, error) {
		sent := q.sentAfter(at)
		return sent >= n, fmt.Sprint(sent), nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (q *questions) sentAfter(at time.Time) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.asked {
		if a.sent.After(at) {
			n++
		}
	}
	return n
}

// mustNotBeAnswered: no write that was sent to the frozen primary got OK, and no
// read that was sent after another one opened was answered by it.
func (q *questions) mustNotBeAnswered(t *testing.T, server string, opened time.Time) {
	t.Helper()
	answered, late := 0, 0
	for _, a := range q.asked {
		since := a.sent.Sub(opened)
		if a.answered {
			answered++
		}
		if since > 0 {
			late++
		}
		switch {
		case a.write && a.answered:
			t.Errorf("a write that was sent %v after the other node opened got OK", since)
		case since > 0 && a.answered && a.server == server:
			t.Errorf("a read that was sent %v after the other node opened was answered by the old one", since)
		}
	}
	t.Logf("%d requests were sent to the old primary, %d of them after the new one opened; %d were answered", len(q.asked), late, answered)
}

// errNotLogged says that an agent's log lacks a line.
var errNotLogged = errors.New("no such line in the agent's log")

// lastLogged returns the time of the last line of an agent's log that holds
// text.
func lastLogged(path, text string) (at time.Time, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return at, err
	}
	lines := strings.Split(string(content), "\n")
	for _, line := range slices.Backward(lines) {
		if !strings.Contains(line, text) {
			continue
		}
		stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		return time.Parse(time.RFC3339Nano, stamp)
	}
	return at, fmt.Errorf("%w: %s", errNotLogged, text)
}
