package e2e

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

const didCommitTable = ledger.Database + ".sessions"

// TestDidCommit kills the primary with commits under way, and compares the answer of
// `quorate did-commit` for each of them with the table.
func TestDidCommit(t *testing.T) {
	beside(t)
	f := newFixture(t, electionOptions(slowElections))
	if _, err := f.local(t, f.heal(t, t.Context())).ExecContext(t.Context(), "CREATE TABLE "+didCommitTable+
		" (session INT, seq INT, text VARCHAR(200), PRIMARY KEY (session, seq))"); err != nil {
		t.Fatal(err)
	}
	f.scenario(t, "Killed", func(t *testing.T, ctx context.Context) { f.didCommitAfterKill(t, ctx, 100, nil) })
	f.scenario(t, "KilledWhileWaiting", func(t *testing.T, ctx context.Context) {
		f.didCommitAfterKill(t, ctx, 200, func(primary int) {
			f.pause(t, ctx, f.others(primary)...)
			f.awaitWaiting(t, ctx, primary)
		})
	})
	f.scenario(t, "SessionGone", f.didCommitSessionGone)
	f.scenario(t, "NoMajority", f.didCommitNoMajority)
}

// session is a client's connection, and what it knows.
type session struct {
	number int
	conn   *sql.Conn
	token  string // the GTID of its first transaction
	acked  int    // transactions after it that were acknowledged
}

// openSession connects through node i's port and commits one transaction. Its GTID
// is what the server sends with the OK for session_track_gtids=OWN_GTID, which
// this driver does not show; so it is read on the server, of that connection.
func (f *fixture) openSession(t *testing.T, ctx context.Context, primary, i, number int) *session {
	t.Helper()
	conn, err := openDSN(t, f.DSN(i), nil).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{number: number, conn: conn}
	var id int
	if err := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if err := s.write(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.admin(t, primary).QueryRowContext(ctx, `SELECT h.GTID FROM performance_schema.events_transactions_history h
		JOIN performance_schema.threads t USING (THREAD_ID) WHERE t.PROCESSLIST_ID = ? AND h.GTID LIKE '%:%'
		ORDER BY h.EVENT_ID DESC LIMIT 1`, id).Scan(&s.token); err != nil {
		t.Fatal(err)
	}
	return s
}

// write commits row seq. Every third one as a transaction of two statements.
func (s *session) write(ctx context.Context, seq int) error {
	insert := "INSERT INTO " + didCommitTable + " VALUES (?, ?, REPEAT('x', 150))"
	if seq%3 != 2 {
		_, err := s.conn.ExecContext(ctx, insert, s.number, seq)
		return err
	}
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, insert, s.number, seq); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+didCommitTable+" SET text = 'y' WHERE session = ? AND seq = ?", s.number, seq); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// ask asks node i what became of a transaction.
func (f *fixture) didCommit(t *testing.T, ctx context.Context, i int, args ...string) (cluster.DidCommit, int) {
	t.Helper()
	var text strings.Builder
	cmd := exec.CommandContext(ctx, os.Getenv(binaryVariable), append([]string{"did-commit", "--addr", f.ControlSocket(i), "--json"}, args...)...)
	cmd.Stderr = &text
	out, err := cmd.Output()
	exit := 0
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		exit = e.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	var answer cluster.DidCommit
	if len(out) > 0 {
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatalf("did-commit %v: %v: %s", args, err, out)
		}
	} else {
		answer.Reason = strings.TrimSpace(text.String())
	}
	return answer, exit
}

// didCommitAfterKill lets sessions write, calls before, which may change the
// cluster, kills the primary, and asks for each session on every node.
func (f *fixture) didCommitAfterKill(t *testing.T, ctx context.Context, first int, before func(primary int)) {
	primary := f.heal(t, ctx)
	var sessions []*session
	for n := range 12 {
		sessions = append(sessions, f.openSession(t, ctx, primary, n%f.Len(), first+n))
	}
	var work sync.WaitGroup
	started := make(chan struct{}, len(sessions))
	for _, s := range sessions {
		work.Go(func() {
			for seq := 1; s.write(ctx, seq) == nil; seq++ {
				if s.acked = seq; seq == 20 {
					started <- struct{}{}
				}
			}
		})
	}
	for range sessions {
		select {
		case <-started:
		case <-ctx.Done():
			t.Fatal("the sessions do not write")
		}
	}
	if before != nil {
		before(primary)
	}
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	for _, i := range f.others(primary) {
		if f.AgentPaused(i) {
			f.resume(t, i)
		}
	}
	work.Wait()
	now, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	db := f.local(t, now)
	for _, i := range f.others(primary) {
		f.compareSessions(t, ctx, i, db, sessions)
	}
	f.heal(t, ctx)
	f.compareSessions(t, ctx, primary, db, sessions) // which was away
	source, _, _ := strings.Cut(sessions[0].token, ":")
	if answer, exit := f.didCommit(t, ctx, now, source+":99999999"); exit != 1 || answer.Outcome != cluster.OutcomeNotCommitted {
		t.Errorf("a GTID of the dead primary that it never gave: exit %d, %+v", exit, answer)
	}
}

// compareSessions asks node i for each session, and for each of its transactions.
func (f *fixture) compareSessions(t *testing.T, ctx context.Context, i int, db *sql.DB, sessions []*session) {
	t.Helper()
	doubtful, committed := 0, 0
	for _, s := range sessions {
		var rows int
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+didCommitTable+" WHERE session = ? AND seq > 0", s.number).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if rows < s.acked || rows > s.acked+1 {
			t.Fatalf("session %d: %d rows, %d were acknowledged", s.number, rows, s.acked)
		}
		answer, exit := f.didCommit(t, ctx, i, "--session-token", s.token)
		if answer.Count != uint64(rows) || exit != 0 || answer.Outcome != cluster.OutcomeCommitted {
			t.Errorf("node %s, session %d: exit %d, %+v; the table has %d rows, %d were acknowledged",
				f.Name(i), s.number, exit, answer, rows, s.acked)
			continue
		}
		// The client's question: was a transaction committed after the last one for which I have an OK?
		last := s.token
		if s.acked > 0 && s.acked <= len(answer.GTIDs) {
			last = answer.GTIDs[s.acked-1]
		} else if s.acked > 0 {
			continue // only the first hundred are listed
		}
		doubtful++
		want := 1
		if rows > s.acked {
			want = 0
			committed++
		}
		if answer, exit := f.didCommit(t, ctx, i, "--session-token", last); exit != want {
			t.Errorf("node %s, session %d after its last OK: exit %d, want %d: %+v", f.Name(i), s.number, exit, want, answer)
		}
		if answer, exit := f.didCommit(t, ctx, i, last); exit != 0 || answer.Index == 0 {
			t.Errorf("node %s, session %d, its last OK: exit %d, %+v", f.Name(i), s.number, exit, answer)
		}
	}
	t.Logf("node %s: of %d sessions with an open question %d had committed", f.Name(i), doubtful, committed)
}

// didCommitSessionGone: while the primary lives, the answer is known once the connection has ended.
func (f *fixture) didCommitSessionGone(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	s := f.openSession(t, ctx, primary, primary, 900)
	source, _, _ := strings.Cut(s.token, ":")
	for i := range f.Len() {
		if answer, exit := f.didCommit(t, ctx, i, "--session-token", s.token); exit != 3 || answer.Outcome != cluster.OutcomeUnknown {
			t.Errorf("node %s, a session that is there: exit %d, %+v", f.Name(i), exit, answer)
		}
		if answer, exit := f.didCommit(t, ctx, i, source+":99999999"); exit != 3 {
			t.Errorf("node %s, a GTID that the primary may give: exit %d, %+v", f.Name(i), exit, answer)
		}
		if answer, exit := f.didCommit(t, ctx, i, "00000000-0000-0000-0000-00000000beef:1"); exit != 3 {
			t.Errorf("node %s, a GTID of a server that no epoch is of: exit %d, %+v", f.Name(i), exit, answer)
		}
		if answer, exit := f.didCommit(t, ctx, i, "nonsense"); exit != 2 {
			t.Errorf("node %s, no GTID: exit %d, %+v", f.Name(i), exit, answer)
		}
	}
	// The pool closes a connection that is said to be bad.
	if err := s.conn.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
		t.Fatal(err)
	}
	for i := range f.Len() {
		if err := devcluster.PollCommand(ctx, "the session is known to be gone", func(ctx context.Context) (bool, string, error) {
			answer, exit := f.didCommit(t, ctx, i, "--session-token", s.token)
			return exit == 1, fmt.Sprintf("exit %d, %+v", exit, answer), nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// didCommitNoMajority: without a majority no node can know the answer, and every node says that it does not.
func (f *fixture) didCommitNoMajority(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	s := f.openSession(t, ctx, primary, primary, 950)
	for _, i := range f.others(primary) {
		if err := f.KillBoth(i); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{s.token}, {"--session-token", s.token}} {
		if answer, exit := f.didCommit(t, ctx, primary, args...); exit != 3 {
			t.Errorf("did-commit %v without a majority: exit %d, %+v", args, exit, answer)
		}
	}
	f.heal(t, ctx)
	if answer, exit := f.didCommit(t, ctx, primary, s.token); exit != 0 {
		t.Errorf("with one again: exit %d, %+v", exit, answer)
	}
}
