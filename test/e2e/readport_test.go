package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// Of the read-only port, as these tests set it.
const (
	readMaxLag = 2 * time.Second
	readGrace  = 6 * time.Second
	readHold   = 3 * time.Second
)

// TestReadPort reads through port 6447 while replicas lag, die, freeze, are promoted and cut off. Writers write
// all the time, and every server agrees with what they were told.
func TestReadPort(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, MaxApplyLag: time.Minute, Router: map[string]string{
		"read_grace": fmt.Sprintf("%q", readGrace), "read_max_lag": fmt.Sprintf("%q", readMaxLag), "hold_timeout": fmt.Sprintf("%q", readHold),
	}})
	f.scenario(t, "Split", f.readsAreSplit)
	f.scenario(t, "Lag", f.readersLeaveALag)
	f.scenario(t, "Kill", f.readersOfAKilled)
	f.scenario(t, "Freeze", f.readersOfAFrozen)
	f.scenario(t, "Unacknowledged", f.readersFreezeNobody)
	f.scenario(t, "Promotion", f.readersOfAPromoted)
	f.scenario(t, "NoLeader", f.readersWithoutALeader)
}

// TestReadPortOfThePrimary: without a replica the primary serves the port if the operator says so, also for writes.
// Otherwise no node does.
func TestReadPortOfThePrimary(t *testing.T) {
	beside(t)
	for _, allowed := range []bool{false, true} {
		f := newFixture(t, devcluster.Options{Nodes: 1, Router: map[string]string{
			"read_primary": fmt.Sprint(allowed), "hold_timeout": fmt.Sprintf("%q", readHold),
		}})
		ctx := scenarioContext(t)
		r, err := f.reader(ctx, t, 0)
		if !allowed {
			wantNoReplica(t, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.ExecContext(ctx, "CREATE TABLE "+ledger.Database+".reads (id INT PRIMARY KEY)"); err != nil {
			t.Errorf("a write: %v", err)
		}
	}
}

// wantNoReplica fails unless a client was told that it can read nowhere.
func wantNoReplica(t *testing.T, err error) {
	t.Helper()
	if e := (*mysql.MySQLError)(nil); !errors.As(err, &e) || e.Number != 2003 || !strings.Contains(e.Message, "no replica may be read") {
		t.Errorf("connect: %v", err)
	}
}

// reader is one session of the read-only port, and the node whose mysqld it has.
type reader struct {
	*sql.Conn
	on int
}

// reader opens a session through node i's port.
func (f *fixture) reader(ctx context.Context, t *testing.T, i int) (r reader, err error) {
	t.Helper()
	db := openDSN(t, f.ReadDSN(i)+"?multiStatements=true", nil)
	db.SetMaxIdleConns(0) // Close ends the session
	if r.Conn, err = db.Conn(ctx); err != nil {
		return r, err
	}
	t.Cleanup(func() { _ = r.Close() })
	var port int
	if err := r.QueryRowContext(ctx, "SELECT @@port").Scan(&port); err != nil {
		return r, err
	}
	for r.on = range f.Len() {
		if strings.HasSuffix(f.MysqldAddr(r.on), fmt.Sprintf(":%d", port)) {
			return r, nil
		}
	}
	return r, fmt.Errorf("no node's mysqld has port %d", port)
}

// readers opens n sessions through node i's port, which all must be on one of the nodes.
func (f *fixture) readers(t *testing.T, ctx context.Context, n, i int, on ...int) []reader {
	t.Helper()
	var all []reader
	steady(t, func() string {
		for _, r := range all {
			_ = r.Close()
		}
		all = nil
		count := map[int]int{}
		for range n {
			r, err := f.reader(ctx, t, i)
			if err != nil {
				return err.Error()
			}
			all = append(all, r)
			count[r.on]++
		}
		for _, o := range on {
			if count[o] != n/len(on) {
				return fmt.Sprintf("%d sessions through %s are on %v, want %d on each of %v", n, f.Name(i), count, n/len(on), on)
			}
		}
		return ""
	})
	return all
}

// lives tells whether a session answers.
func (r reader) lives(ctx context.Context) bool {
	_, err := r.ExecContext(ctx, "DO 1")
	return err == nil
}

// awaitReaders waits until sessions through node i's port are on the nodes, and on no other.
func (f *fixture) awaitReaders(t *testing.T, ctx context.Context, i int, on ...int) {
	t.Helper()
	if err := devcluster.Poll(ctx, fmt.Sprintf("clients of %s read from %v", f.Name(i), on), func(ctx context.Context) (bool, string, error) {
		seen := map[int]bool{}
		for range 2 * len(on) {
			r, err := f.reader(ctx, t, i)
			if err != nil {
				return false, err.Error(), nil
			}
			defer func() { _ = r.Close() }()
			seen[r.on] = true
		}
		for _, o := range on {
			if !seen[o] {
				return false, fmt.Sprint(seen), nil
			}
		}
		return len(seen) == len(on), fmt.Sprint(seen), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitEnd waits until a session has ended.
func awaitEnd(t *testing.T, ctx context.Context, r reader) {
	t.Helper()
	if err := devcluster.Poll(ctx, "the session ends", func(ctx context.Context) (bool, string, error) {
		return !r.lives(ctx), "it lives", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// beginReads returns the nodes with all replicas readable, writers at work, and stops them at the end.
func (f *fixture) beginReads(t *testing.T, ctx context.Context) (primary int, replicas []int, end func()) {
	t.Helper()
	primary = f.heal(t, ctx)
	replicas = f.others(primary)
	f.awaitReaders(t, ctx, primary, replicas...)
	for _, r := range replicas {
		f.awaitReaders(t, ctx, r, r)
	}
	for i := range f.Len() { // the sessions are counted
		if err := devcluster.Poll(ctx, "those who read have gone", func(ctx context.Context) (bool, string, error) {
			n := f.metric(t, ctx, i, `quorate_router_sessions{port="read_only"}`)
			return n == 0, fmt.Sprint(n), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	l := f.start(t, 2)
	l.awaitAcks(t, ctx, 10)
	return primary, replicas, func() {
		l.awaitAcks(t, ctx, 10)
		l.stop(t)
		f.heal(t, ctx)
		f.check(t, ctx)
	}
}

// readsAreSplit: clients of the primary's node are spread over the replicas; clients of a replica's node read there. No
// client can write, and a client that waits for its own write sees it.
func (f *fixture) readsAreSplit(t *testing.T, ctx context.Context) {
	primary, replicas, end := f.beginReads(t, ctx)
	all := f.readers(t, ctx, 10, primary, replicas...)
	for _, r := range replicas {
		all = append(all, f.readers(t, ctx, 3, r, r)...)
	}
	db := openDSN(t, f.DSN(primary), nil)
	if _, err := db.ExecContext(ctx, "CREATE TABLE "+ledger.Database+".read_own (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	var executed string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&executed); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		var late, rows int
		if err := r.QueryRowContext(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 10)", executed).Scan(&late); err != nil || late != 0 {
			t.Errorf("wait on %s: %d, %v", f.Name(r.on), late, err)
		}
		if err := r.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+ledger.Database+".read_own").Scan(&rows); err != nil {
			t.Errorf("%s has not what was written before: %v", f.Name(r.on), err)
		}
		_, err := r.ExecContext(ctx, "CREATE TABLE "+ledger.Database+".no (id INT PRIMARY KEY)")
		if e := (*mysql.MySQLError)(nil); !errors.As(err, &e) || e.Number != 1290 {
			t.Errorf("a write on %s: %v", f.Name(r.on), err)
		}
		_ = r.Close()
	}
	end()
}

// readersLeaveALag: new clients leave a replica that lags at once, the others after the grace. Later clients come back.
func (f *fixture) readersLeaveALag(t *testing.T, ctx context.Context) {
	primary, replicas, end := f.beginReads(t, ctx)
	lags, other := replicas[0], replicas[1]
	near, far := f.readers(t, ctx, 1, lags, lags)[0], f.readers(t, ctx, 2, primary, replicas...)
	release := f.blockApplier(t, ctx, lags)
	if err := f.WaitNode(ctx, lags, "too far behind", func(n status.Node) bool {
		return n.Role == status.RoleReplica && n.Unreadable(readMaxLag) != ""
	}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, r := range f.readers(t, ctx, 2, lags, other) {
		_ = r.Close()
	}
	if time.Since(began) < readGrace-2*time.Second && !near.lives(ctx) {
		t.Error("a session ended before the grace")
	}
	if code := f.replicaCheck(t, ctx, lags, "?lag=2s"); code != 503 {
		t.Errorf("/replica?lag=2s of a replica that lags: %d", code)
	}
	awaitEnd(t, ctx, near)
	for _, r := range far {
		if r.on == lags {
			awaitEnd(t, ctx, r)
		} else if !r.lives(ctx) {
			t.Error("a session on the other replica has ended")
		}
	}
	release()
	f.awaitReaders(t, ctx, lags, lags)
	if code := f.replicaCheck(t, ctx, lags, "?lag=2s"); code != 200 {
		t.Errorf("/replica?lag=2s of a replica that has caught up: %d", code)
	}
	end()
}

// readersOfAKilled: clients of the other replicas go on.
func (f *fixture) readersOfAKilled(t *testing.T, ctx context.Context) {
	primary, replicas, end := f.beginReads(t, ctx)
	dies, lives := replicas[0], replicas[1]
	all := f.readers(t, ctx, 2, primary, replicas...)
	if err := f.KillBoth(dies); err != nil {
		t.Fatal(err)
	}
	for _, r := range f.readers(t, ctx, 2, primary, lives) { // each is tried again elsewhere, if it is sent to the dead one
		_ = r.Close()
	}
	for _, r := range all {
		if r.on == dies {
			awaitEnd(t, ctx, r)
		} else if !r.lives(ctx) {
			t.Error("a session on the other replica has ended")
		}
	}
	end()
}

// readersOfAFrozen: a frozen agent passes nothing on. New clients are sent to other replicas, the sessions of the
// others end after the grace. A request at its own port that waited for all that time gets no old data.
func (f *fixture) readersOfAFrozen(t *testing.T, ctx context.Context) {
	primary, replicas, end := f.beginReads(t, ctx)
	stands, other := replicas[0], replicas[1]
	all := f.readers(t, ctx, 2, primary, replicas...)
	own := f.readers(t, ctx, 1, stands, stands)[0]
	f.pause(t, ctx, stands)
	paused := time.Now()
	for _, r := range f.readers(t, ctx, 2, primary, other) {
		_ = r.Close()
	}
	for _, r := range all {
		if r.on == stands {
			awaitEnd(t, ctx, r) // its next statement waits until then
		} else if !r.lives(ctx) {
			t.Error("a session on the other replica has ended")
		}
	}
	time.Sleep(time.Until(paused.Add(readMaxLag + readGrace)))
	lives := make(chan bool)
	go func() { lives <- own.lives(ctx) }()
	time.Sleep(200 * time.Millisecond) // the request waits in the kernel
	f.resume(t, stands)
	if <-lives {
		t.Error("a request was answered with data as old as the freeze")
	}
	f.awaitReaders(t, ctx, primary, replicas...)
	end()
}

// readersFreezeNobody: an ordinary account runs at each replica a statement that read-only does not stop. It waits for
// an ACK that nobody gives, and the applier waits behind it. Both replicas start their mysqld again, and one of them
// takes over, also if the primary dies before that.
func (f *fixture) readersFreezeNobody(t *testing.T, ctx context.Context) {
	primary, replicas, end := f.beginReads(t, ctx)
	before := map[int]int{}
	for _, i := range replicas {
		before[i] = f.status(t, ctx, i).MysqldPID
	}
	for err := range f.updateHistograms(t, ctx, replicas) {
		if err == nil {
			t.Error("a statement that nobody acknowledged got its OK")
		}
	}
	began := time.Now()
	for _, i := range replicas {
		if err := f.WaitNode(ctx, i, "applying again", func(n status.Node) bool {
			return n.Role == status.RoleReplica && n.MysqldPID != before[i] && n.ApplierStopped == "" && !n.LagUnknown && n.LagSeconds < 1
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("both apply again %v after the statements failed", time.Since(began).Round(time.Millisecond))
	f.killPrimary(t, ctx, primary)
	end()
	for _, i := range replicas {
		if told := f.must(t, ctx, i, "history"); !strings.Contains(told, "UPDATE HISTOGRAM ON `id`") || !strings.Contains(told, "was not acknowledged") {
			t.Errorf("the history of %s does not tell of it:\n%s", f.Name(i), told)
		}
	}

	primary, replicas, end = f.beginReads(t, ctx)
	ended := f.updateHistograms(t, ctx, replicas)
	for _, i := range replicas {
		f.awaitWaiting(t, ctx, i)
	}
	f.killPrimary(t, ctx, primary)
	for range ended { // a node that is promoted before anything waits behind the statement acknowledges it
	}
	end()
}

// updateHistograms runs ANALYZE TABLE … UPDATE HISTOGRAM through the read-only port of some replicas. The channel has
// what became of each, and is closed then.
func (f *fixture) updateHistograms(t *testing.T, ctx context.Context, replicas []int) <-chan error {
	t.Helper()
	ended := make(chan error, len(replicas))
	var all sync.WaitGroup
	for _, i := range replicas {
		r := f.readers(t, ctx, 1, i, i)[0]
		all.Go(func() {
			_, err := r.ExecContext(ctx, "ANALYZE TABLE "+ledger.Database+".ledger UPDATE HISTOGRAM ON id")
			ended <- err
		})
	}
	go func() { all.Wait(); close(ended) }()
	return ended
}

// killPrimary kills the primary's node, and waits for the next primary.
func (f *fixture) killPrimary(t *testing.T, ctx context.Context, primary int) {
	t.Helper()
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := f.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	t.Logf("a new primary after %v", time.Since(began).Round(time.Millisecond))
}

// readersOfAPromoted: the sessions end before the promoted node takes writes, and their statements under way write
// nothing.
func (f *fixture) readersOfAPromoted(t *testing.T, ctx context.Context) {
	primary, replicas, end := f.beginReads(t, ctx)
	next := replicas[0]
	db := openDSN(t, f.DSN(primary), nil)
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+ledger.Database+".read_on (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	all := append(f.readers(t, ctx, 1, next, next), f.readers(t, ctx, 2, primary, replicas...)...)
	sneaks := f.readers(t, ctx, 1, next, next)[0]
	ended := make(chan error, 1)
	go func() {
		_, err := sneaks.ExecContext(ctx, "DO SLEEP(8); INSERT INTO "+ledger.Database+".read_on VALUES (1)")
		ended <- err
	}()
	admin := f.admin(t, next)
	sleeps := func(ctx context.Context) (n int, err error) {
		err = admin.QueryRowContext(ctx, "SELECT COUNT(*) FROM performance_schema.processlist WHERE USER = 'app' AND STATE = 'User sleep'").Scan(&n)
		return n, err
	}
	await := func(what string, want int) {
		t.Helper()
		if err := devcluster.Poll(ctx, what, func(ctx context.Context) (bool, string, error) {
			n, err := sleeps(ctx)
			return n == want, fmt.Sprint(n), err
		}); err != nil {
			t.Fatal(err)
		}
	}
	await("the statement is under way", 1)
	f.must(t, ctx, primary, "switchover", "--to", f.Name(next), "--max-pause", "10s")
	for _, r := range all {
		if r.on == next {
			awaitEnd(t, ctx, r)
		} else if !r.lives(ctx) {
			t.Error("a session on the other replica has ended")
		}
	}
	if err := <-ended; err == nil {
		t.Error("a client that reads has written")
	}
	await("the statement has ended in mysqld", 0)
	var rows int
	if err := f.local(t, next).QueryRowContext(ctx, "SELECT COUNT(*) FROM "+ledger.Database+".read_on").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows were written by a session that had come to read, %v", rows, err)
	}
	f.awaitReaders(t, ctx, next, f.others(next)...) // the former primary takes readers once it knows its lag
	end()
}

// readersWithoutALeader: nobody may read a replica that is cut off, because it does not know what it lacks.
func (f *fixture) readersWithoutALeader(t *testing.T, ctx context.Context) {
	primary, replicas, end := f.beginReads(t, ctx)
	alone := replicas[0]
	old := f.readers(t, ctx, 1, alone, alone)[0]
	atOnce(t, []int{primary, replicas[1]}, f.KillBoth)
	if err := f.WaitNode(ctx, alone, "without a leader", func(n status.Node) bool { return n.Unreadable(readMaxLag) != "" }); err != nil {
		t.Fatal(err)
	}
	_, err := f.reader(ctx, t, alone)
	wantNoReplica(t, err)
	awaitEnd(t, ctx, old)
	primary = f.heal(t, ctx)
	f.awaitReaders(t, ctx, primary, f.others(primary)...)
	end()
}

// replicaCheck returns node i's answer to a load balancer's check.
func (f *fixture) replicaCheck(t *testing.T, ctx context.Context, i int, query string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.APIAddr(i)+"/replica"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
