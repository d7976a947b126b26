package mysqld

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// newPair returns a source that is open for writes without ACK, and a running replica of it.
func newPair(t *testing.T, o StartOptions) (source *sql.DB, replica *Server, p *Process) {
	t.Helper()
	s := newServer(t)
	sp := start(t, s)
	open(t, sp)
	for _, q := range []string{
		"SET GLOBAL rpl_semi_sync_source_enabled = OFF",
		"CREATE USER feed IDENTIFIED BY '" + feedPassword + "'", "GRANT REPLICATION SLAVE ON *.* TO feed",
	} {
		if err := sp.Admin().exec(ctx(t), q, q); err != nil {
			t.Fatal(err)
		}
	}
	// caching_sha2_password takes a password without TLS only from its cache,
	// which one login with TLS fills. (The agent's feed says yes at once.)
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = "feed", feedPassword, "tcp", "127.0.0.1:"+strconv.Itoa(s.cfg.Port)
	cfg.TLSConfig = "skip-verify"
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	err = db.PingContext(ctx(t))
	_ = db.Close()
	if err != nil {
		t.Fatal(err)
	}
	replica = newServer(t, func(c *Config) { c.ServerID = 2 })
	p = startWith(t, replica, o)
	a := p.Admin()
	if err := a.ConfigureReplication(ctx(t), "127.0.0.1", s.cfg.Port); err != nil {
		t.Fatal(err)
	}
	if err := a.StartReplica(ctx(t), "feed", feedPassword); err != nil {
		t.Fatal(err)
	}
	return login(t, s, DBAUser, s.cfg.Secrets.DBA), replica, p
}

func executed(t *testing.T, db *sql.DB) string {
	t.Helper()
	var set string
	if err := db.QueryRowContext(ctx(t), "SELECT @@GLOBAL.gtid_executed").Scan(&set); err != nil {
		t.Fatal(err)
	}
	return oneLine(set)
}

// feedPassword is the password of the account with which the replica connects.
const feedPassword = "Aa1-feed-0123456"

func TestReplication(t *testing.T) {
	t.Parallel()
	source, s, p := newPair(t, StartOptions{})
	a := p.Admin()
	mustExec(t, source, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
	set := executed(t, source)
	if err := a.WaitApplied(ctx(t), set); err != nil {
		t.Fatal(err)
	}
	st, err := a.ReplicaStatus(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if !st.Configured || !st.IORunning || !st.SQLRunning || st.Executed != set || st.Retrieved != set || st.IOErrno != 0 || st.SQLErrno != 0 {
		t.Fatalf("replica status %+v, want %s applied", st, set)
	}

	// A session that reads for a long time blocks the applier of a committed ALTER.
	reader, err := login(t, s, DBAUser, s.cfg.Secrets.DBA).Conn(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	for _, q := range []string{"BEGIN", "SELECT * FROM d.t"} {
		if _, err := reader.ExecContext(ctx(t), q); err != nil {
			t.Fatal(err)
		}
	}
	mustExec(t, source, "ALTER TABLE d.t ADD COLUMN b INT", "INSERT INTO d.t VALUES (2, 2)")
	eventually(t, "the blocker is killed", func() (bool, error) {
		n, err := a.KillBlockers(ctx(t))
		return n == 1, err
	})
	if err := a.WaitApplied(ctx(t), executed(t, source)); err != nil {
		t.Fatal(err)
	}
	if n, err := a.KillBlockers(ctx(t)); err != nil || n != 0 {
		t.Fatalf("KillBlockers with nothing blocked: %d, %v", n, err)
	}

	// An applier error is a worker's own, not the coordinator's summary.
	if err := a.exec(ctx(t), "open", "SET GLOBAL read_only = OFF"); err != nil {
		t.Fatal(err)
	}
	if err := a.exec(ctx(t), "errant row", "INSERT INTO d.t VALUES (3, 3)"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, source, "INSERT INTO d.t VALUES (3, 4)")
	eventually(t, "the applier's error", func() (bool, error) {
		st, err = a.ReplicaStatus(ctx(t))
		return st.SQLErrno != 0, err
	})
	if st.SQLErrno != 1062 || !strings.Contains(st.SQLError, "Duplicate entry") {
		t.Fatalf("applier error %d %q", st.SQLErrno, st.SQLError)
	}
	if err := a.StopReplica(ctx(t)); err != nil {
		t.Fatal(err)
	}
}

// TestApplyWork: the number changes while the applier works inside of one transaction or one
// DDL, and does not while that waits for a lock.
func TestApplyWork(t *testing.T) {
	t.Parallel()
	source, s, p := newPair(t, StartOptions{})
	a := p.Admin()
	works := func(statement string) {
		t.Helper()
		mustExec(t, source, statement)
		set, seen := executed(t, source), map[int64]bool{}
		eventually(t, "it is applied: "+statement, func() (bool, error) {
			got, err := a.GTIDExecuted(ctx(t))
			if err != nil || got == set {
				return got == set, err
			}
			work, err := a.ApplyWork(ctx(t))
			seen[work] = true
			return false, err
		})
		if t.Logf("%d values in %s", len(seen), statement); len(seen) < 3 {
			t.Errorf("the applier's work was seen %d times in %s", len(seen), statement)
		}
	}
	mustExec(t, source, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY AUTO_INCREMENT, b CHAR(100), KEY (b))", "INSERT INTO d.t (b) VALUES (0), (1)")
	for range 7 {
		mustExec(t, source, "INSERT INTO d.t (b) SELECT UUID() FROM d.t, (SELECT 1 UNION SELECT 2) AS x")
	}
	for _, statement := range []string{
		"INSERT INTO d.t (b) SELECT UUID() FROM d.t, (SELECT a FROM d.t LIMIT 5) AS x",
		"UPDATE d.t SET b = CONCAT(b, a)", "DELETE FROM d.t WHERE a % 3 = 0",
		"ALTER TABLE d.t ENGINE = InnoDB, ALGORITHM = INPLACE", "ALTER TABLE d.t ENGINE = InnoDB, ALGORITHM = COPY",
	} {
		works(statement)
	}

	reader, err := login(t, s, DBAUser, s.cfg.Secrets.DBA).Conn(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	for _, q := range []string{"BEGIN", "SELECT * FROM d.t LIMIT 1"} {
		if _, err := reader.ExecContext(ctx(t), q); err != nil {
			t.Fatal(err)
		}
	}
	mustExec(t, source, "ALTER TABLE d.t ADD COLUMN c INT")
	eventually(t, "the applier waits for a lock", func() (waits bool, err error) {
		err = a.query1(ctx(t), "waiting threads", "SELECT COUNT(*) > 0 FROM performance_schema.threads WHERE name IN "+applierThreads+
			" AND processlist_state = 'Waiting for table metadata lock'", nil, &waits)
		return waits, err
	})
	before, err := a.ApplyWork(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.ExecContext(ctx(t), "SELECT COUNT(*) FROM d.t"); err != nil { // it does not count
		t.Fatal(err)
	}
	if after, err := a.ApplyWork(ctx(t)); err != nil || after != before {
		t.Errorf("an applier that waits: %d, then %d, %v", before, after, err)
	}
}

func TestAddPurged(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	a := start(t, s).Admin()
	const done = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-3:5"
	if err := a.AddPurged(ctx(t), done); err != nil {
		t.Fatal(err)
	}
	const more = "bbbbbbbb-aaaa-aaaa-aaaa-aaaaaaaaaaaa:7"
	if err := a.AddPurged(ctx(t), more); err != nil {
		t.Fatal(err)
	}
	if got, err := a.GTIDExecuted(ctx(t)); err != nil || got != done+","+more {
		t.Fatalf("gtid_executed %q, %v", got, err)
	}
	if err := a.AddPurged(ctx(t), done); err == nil {
		t.Fatal("a transaction that is done was declared done again")
	}
	began := time.Now()
	if applied, err := a.AppliedWithin(ctx(t), "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:4", 250*time.Millisecond); err != nil || applied {
		t.Fatalf("the transaction that is missing: applied %t, %v", applied, err)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took >= waitAppliedSlice {
		t.Fatalf("a wait of 250 ms took %v", took)
	}
	if applied, err := a.AppliedWithin(ctx(t), more, time.Minute); err != nil || !applied {
		t.Fatalf("what is there: applied %t, %v", applied, err)
	}
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := a.WaitApplied(short, "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:4"); err == nil {
		t.Fatal("WaitApplied returned without the transaction")
	}
	st, err := a.ReplicaStatus(ctx(t))
	if err != nil || st.Configured || st.IORunning || st.SQLRunning {
		t.Fatalf("status of an unconfigured replica: %+v, %v", st, err)
	}
}

// TestReplicaBinlog: an XA transaction that the applier prepared is committed
// with a GTID only if the applier binlogged it; and after EnableSemiSync the
// commit waits for an ACK.
func TestReplicaBinlog(t *testing.T) {
	t.Parallel()
	source, s, p := newPair(t, StartOptions{ReplicaBinlog: true})
	a := p.Admin()
	mustExec(t, source, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
	source.SetMaxOpenConns(1)
	mustExec(t, source, "XA START 'x'", "INSERT INTO d.t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'")
	set := executed(t, source)
	if err := a.WaitApplied(ctx(t), set); err != nil {
		t.Fatal(err)
	}
	if err := a.StopReplica(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if n, err := a.PendingXA(ctx(t)); err != nil || n != 1 {
		t.Fatalf("%d prepared, %v; want 1", n, err)
	}
	mustNotDrift(t, p)
	if err := p.EnableSemiSync(ctx(t)); err != nil {
		t.Fatal(err)
	}
	mustNotDrift(t, p)
	open(t, p)
	client := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	ended := make(chan error, 1)
	go func() {
		_, err := client.ExecContext(ctx(t), "XA COMMIT 'x'")
		ended <- err
	}()
	eventually(t, "the commit waits for an ACK", func() (bool, error) {
		semi, err := a.SemiSyncStatus(ctx(t))
		return semi.WaitSessions == 1, err
	})
	if err := a.exec(ctx(t), "give up", "SET GLOBAL rpl_semi_sync_source_enabled = OFF"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if drifts, err := p.CheckGuarded(ctx(t)); err != nil || len(drifts) != 2 {
		t.Fatalf("semi-sync was switched off: drifts %v, %v; want the variable and the status", drifts, err)
	}
	if got := executed(t, client); got == set {
		t.Fatalf("the commit has no GTID: %s", got)
	}
	// Nothing is prepared any more, and only the applier has begun any.
	if f, err := a.FlushExecuted(ctx(t)); err != nil || !f.XA {
		t.Fatalf("flushed %+v, %v: the applier's XA transaction is not counted", f, err)
	}
}

func mustNotDrift(t *testing.T, p *Process) {
	t.Helper()
	if drifts, err := p.CheckGuarded(ctx(t)); err != nil || len(drifts) != 0 {
		t.Fatalf("drifts %v, %v", drifts, err)
	}
}

// TestAckWaiter: a statement that read-only does not stop waits for an ACK on a replica, and the
// applier waits behind it. A KILL helps neither. A new mysqld applies, and has nothing of the
// statement.
func TestAckWaiter(t *testing.T) {
	t.Parallel()
	source, s, p := newPair(t, StartOptions{})
	mustExec(t, source, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
	for _, c := range []struct{ statement, digest string }{
		{"FLUSH STATUS /* secret */", "FLUSH STATUS"},
		{"ANALYZE TABLE d.t UPDATE HISTOGRAM ON a WITH 77 BUCKETS", "ANALYZE TABLE `d` . `t` UPDATE HISTOGRAM ON `a` WITH ? BUCKETS"},
	} {
		a := p.Admin()
		if err := a.WaitApplied(ctx(t), executed(t, source)); err != nil {
			t.Fatal(err)
		}
		if st, err := a.ReplicaStatus(ctx(t)); err != nil || st.WaitSessions != 0 {
			t.Fatalf("%d sessions wait, %v", st.WaitSessions, err)
		}
		if account, statement, err := a.AckWaiter(ctx(t)); err != nil || account != "" || statement != "" {
			t.Fatalf("nobody waits: %s %q, %v", account, statement, err)
		}
		before := executedBy(t, p)
		passReadOnly(t, s, p, c.statement)
		mustExec(t, source, "INSERT INTO d.t SELECT MAX(a) + 1 FROM d.t")
		if applied, err := a.AppliedWithin(ctx(t), executed(t, source), time.Second); err != nil || applied {
			t.Errorf("%s waits, and the applier commits: %t, %v", c.statement, applied, err)
		}
		if _, err := a.kill(ctx(t), "the session", sessionsWhere+"processlist_state LIKE 'Waiting for semi-sync%'"); err != nil {
			t.Fatal(err)
		}
		if applied, err := a.AppliedWithin(ctx(t), executed(t, source), time.Second); err != nil || applied {
			t.Errorf("%s was killed, and the applier commits: %t, %v", c.statement, applied, err)
		}
		st, err := a.ReplicaStatus(ctx(t))
		if err != nil || st.WaitSessions != 1 || !st.SQLRunning {
			t.Errorf("%s: %+v, %v", c.statement, st, err)
		}
		account, statement, err := a.AckWaiter(ctx(t))
		if want := "'" + DBAUser + "'@'localhost'"; err != nil || account != want || statement != c.digest {
			t.Errorf("%s runs %q, %v; want %s and %q", account, statement, err, want, c.digest)
		}
		p.Kill()
		p = start(t, s)
		// What the applier had committed in the engine before its wait is kept.
		if got, all := executedBy(t, p), executed(t, source); got != before && got != all {
			t.Errorf("%s: a new mysqld has %s, want %s or %s", c.statement, got, before, all)
		}
		if err := p.Admin().StartReplica(ctx(t), "feed", feedPassword); err != nil {
			t.Fatal(err)
		}
		if err := p.Admin().WaitApplied(ctx(t), executed(t, source)); err != nil {
			t.Fatal(err)
		}
	}
	var histograms int
	if err := p.Admin().query1(ctx(t), "histograms", "SELECT COUNT(*) FROM information_schema.column_statistics", nil, &histograms); err != nil || histograms != 0 {
		t.Errorf("%d histograms, %v: a new mysqld has what was not acknowledged", histograms, err)
	}
}

// TestForeignXA: a client that ends, on a replica, an XA transaction of the applier leaves no
// GTID, but is noticed. XA transactions of the client's own do not count.
func TestForeignXA(t *testing.T) {
	t.Parallel()
	source, s, p := newPair(t, StartOptions{})
	source.SetMaxOpenConns(1)
	expect := func(what string, want bool) {
		t.Helper()
		if foreign, err := p.ForeignXA(ctx(t)); err != nil || foreign != want {
			t.Errorf("%s: foreign %t, %v", what, foreign, err)
		}
	}
	mustExec(t, source, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
	if err := p.Admin().WaitApplied(ctx(t), executed(t, source)); err != nil {
		t.Fatal(err)
	}
	reader := dbaSession(t, s)
	read := []string{"XA START 'own'", "SELECT * FROM d.t", "XA END 'own'", "XA PREPARE 'own'", "XA COMMIT 'own'"}
	mustExec(t, reader, read...)
	expect("a client's own, and none of the applier's", false)
	mustExec(t, source, "XA START 'x'", "INSERT INTO d.t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'")
	if err := p.Admin().WaitApplied(ctx(t), executed(t, source)); err != nil {
		t.Fatal(err)
	}
	if err := p.BeginReplica(ctx(t)); err == nil {
		t.Error("one is prepared, and the server begins as a replica")
	}
	before := executedBy(t, p)
	// The applier's worker detaches it a moment after its GTID is in gtid_executed.
	eventually(t, "a client ends what the applier has prepared", func() (bool, error) {
		_, err := reader.ExecContext(ctx(t), "XA COMMIT 'x'")
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == 1397 {
			return false, nil
		}
		return err == nil, err
	})
	if after := executedBy(t, p); after != before {
		t.Errorf("gtid_executed is %s, was %s", after, before)
	}
	expect("XA COMMIT of the applier's", true)
	mustExec(t, source, "XA COMMIT 'x'")
	eventually(t, "the applier stops", func() (bool, error) {
		st, err := p.Admin().ReplicaStatus(ctx(t))
		return st.SQLErrno == 1397, err
	})
	if err := p.Admin().StopReplica(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.BeginReplica(ctx(t)); err != nil {
		t.Fatal(err)
	}
	mustExec(t, reader, read...)
	expect("what was before it became a replica", false)
}

func TestForeign(t *testing.T) {
	for _, c := range []struct {
		what        string
		before, now xaStatements
		want        bool
	}{
		{"none", xaStatements{}, xaStatements{}, false},
		{"the applier's", xaStatements{}, xaStatements{ends: 2, starts: 3, applierEnds: 2, applierStarts: 3, seenStarts: 3}, false},
		{"a client's, without any of the applier's", xaStatements{}, xaStatements{ends: 2, starts: 2, applierEnds: 0, applierStarts: 0, seenStarts: 2}, false},
		{"a client ends one", xaStatements{}, xaStatements{ends: 1, starts: 1, applierEnds: 0, applierStarts: 1, seenStarts: 1}, true},
		{"a client's of before", xaStatements{ends: 5, starts: 5, applierEnds: 0, applierStarts: 0, seenStarts: 5}, xaStatements{ends: 6, starts: 6, applierEnds: 1, applierStarts: 1, seenStarts: 6}, false},
		{"a client's of before, and one since", xaStatements{ends: 5, starts: 5, applierEnds: 0, applierStarts: 0, seenStarts: 5}, xaStatements{ends: 6, starts: 6, applierEnds: 0, applierStarts: 1, seenStarts: 6}, true},
		{"instruments are off", xaStatements{}, xaStatements{ends: 1, starts: 1, applierEnds: 0, applierStarts: 0, seenStarts: 0}, true},
	} {
		if got := c.now.foreign(c.before); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

func TestForeignCommit(t *testing.T) {
	for _, c := range []struct {
		what        string
		before, now xaStatements
		want        bool
	}{
		{"none", xaStatements{}, xaStatements{}, false},
		{"the applier's", xaStatements{}, xaStatements{commits: 2, applierCommits: 2}, false},
		{"a client rolled back", xaStatements{}, xaStatements{ends: 3, commits: 2, applierEnds: 2, applierCommits: 2}, false},
		{"a client committed", xaStatements{}, xaStatements{commits: 3, applierCommits: 2}, true},
		{"before", xaStatements{commits: 3, applierCommits: 0}, xaStatements{commits: 5, applierCommits: 2}, false},
		{"instruments are off", xaStatements{}, xaStatements{commits: 1}, true},
	} {
		if got := c.now.foreignCommit(c.before); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

// TestForeignXACommit: a client commits what the applier had prepared. When the server starts
// again, the applier prepares it again without an error, and the data differ. Only the note
// shows that.
func TestForeignXACommit(t *testing.T) {
	t.Parallel()
	source, s, p := newPair(t, StartOptions{})
	source.SetMaxOpenConns(1)
	mustExec(t, source, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY, b INT)", "INSERT INTO d.t VALUES (1, 10)",
		"XA START 'w'", "INSERT INTO d.t VALUES (2, 20)", "XA END 'w'", "XA PREPARE 'w'")
	eventually(t, "none was committed", func() (bool, error) {
		commits, err := p.ForeignXACommit(ctx(t))
		return !commits && *p.xaNoneOf.Load() == 0, err
	})
	mustExec(t, source, "XA COMMIT 'w'", "XA START 'x'", "UPDATE d.t SET b = 20 WHERE a = 1", "XA END 'x'", "XA PREPARE 'x'")
	if err := p.Admin().WaitApplied(ctx(t), executed(t, source)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the applier has committed one", func() (bool, error) {
		commits, err := p.ForeignXACommit(ctx(t))
		return !commits && *p.xaNoneOf.Load() == 1, err
	})
	eventually(t, "a client commits what the applier has prepared", func() (bool, error) {
		_, err := dbaSession(t, s).ExecContext(ctx(t), "XA COMMIT 'x'")
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == 1397 {
			return false, nil
		}
		return err == nil, err
	})
	if commits, err := p.ForeignXACommit(ctx(t)); err != nil || !commits {
		t.Errorf("a client's XA COMMIT is not seen: %v", err)
	}
	if all, err := p.Admin().PreparedXA(ctx(t)); err != nil || len(all) != 0 {
		t.Errorf("prepared: %v, %v", all, err)
	}
	if err := s.NoteForeignXA(); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	p = start(t, s)
	if commits, err := p.ForeignXACommit(ctx(t)); err != nil || commits {
		t.Errorf("after a start: %t, %v", commits, err)
	}
	if noted, err := s.ForeignXANoted(); err != nil || !noted {
		t.Errorf("the note is gone: %v", err)
	}
	var b int
	if err := p.Admin().query1(ctx(t), "b", "SELECT b FROM d.t WHERE a = 1", nil, &b); err != nil || b != 20 {
		t.Errorf("b is %d, %v: the commit is gone, and there was nothing to hide", b, err)
	}
}
