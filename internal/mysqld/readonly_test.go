package mysqld

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestStatementsThatReadOnlyLetsPass are those of a DBA that write to the binlog of
// a read-only server: they wait for an ACK like a commit, and like one they get OK
// without it while semi-sync is off. InnoDB knows nothing of them, so a server that
// is killed has forgotten them, unless it has begun a new binlog since.
func TestStatementsThatReadOnlyLetsPass(t *testing.T) {
	s := newServer(t)
	p := start(t, s)
	for _, c := range []struct {
		statement string
		rotate    bool
		kept      bool
	}{
		{"FLUSH TABLES", false, false},
		{"FLUSH TABLES", true, true},
	} {
		done := passReadOnly(t, s, p, c.statement)
		if err := p.Admin().RestartAckReceiver(ctx(t)); !errors.Is(err, ErrWritesPending) {
			t.Fatalf("%s waits, and semi-sync was switched off and on: %v", c.statement, err)
		}
		if owned, err := p.Admin().InCommit(ctx(t)); err != nil || !owned {
			t.Fatalf("%s waits and is not seen in its commit: %v", c.statement, err)
		}
		before := executedBy(t, p)
		if err := p.Admin().exec(ctx(t), "switch off", "SET GLOBAL rpl_semi_sync_source_enabled = OFF"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", c.statement, err)
		}
		if owned, err := p.Admin().InCommit(ctx(t)); err != nil || owned {
			t.Fatalf("%s has ended and is still in its commit: %v", c.statement, err)
		}
		if executedBy(t, p) == before {
			t.Errorf("%s has OK and is not in gtid_executed", c.statement)
		}
		if c.rotate {
			if err := p.Admin().NextBinlog(ctx(t)); err != nil {
				t.Fatal(err)
			}
		}
		p.Kill()
		p = start(t, s)
		if kept := executedBy(t, p) != before; kept != c.kept {
			t.Errorf("%s, new binlog %t: it is known after a kill: %t, want %t", c.statement, c.rotate, kept, c.kept)
		}
	}
}

// passReadOnly runs a statement as the DBA on a read-only server, and returns once
// it waits for its ACK.
func passReadOnly(t *testing.T, s *Server, p *Process, statement string) (done chan error) {
	t.Helper()
	db := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	done = make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), statement)
		done <- errors.Join(err, db.Close())
	}()
	eventually(t, statement+" waits for its ACK", func() (bool, error) {
		if len(done) > 0 {
			return false, fmt.Errorf("it has ended: %w", <-done)
		}
		semi, err := p.Admin().SemiSyncStatus(ctx(t))
		return semi.WaitSessions == 1, err
	})
	return done
}

func executedBy(t *testing.T, p *Process) string {
	t.Helper()
	set, err := p.Admin().GTIDExecuted(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	return set
}
