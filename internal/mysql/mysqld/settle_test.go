package mysqld

import (
	"context"
	"testing"
	"time"
)

// TestBinlogEndShowsWhatReadOnlyPasses: super_read_only=ON does not wait for a statement
// without row changes (ANALYZE TABLE, FLUSH TABLES) that waits for its ACK. The end of the
// binlog and the count of waiting sessions show the statement.
func TestBinlogEndShowsWhatReadOnlyPasses(t *testing.T) {
	t.Parallel()
	s, p := newServerWithTable(t)
	open(t, p)
	silentTap(t, s)
	a := p.Admin()
	eventually(t, "the tap is connected", func() (bool, error) {
		semi, err := a.SemiSyncStatus(ctx(t))
		return semi.Clients == 1, err
	})
	file, before, err := a.BinlogEnd(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	db := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	result := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.Background(), "ANALYZE TABLE d.t")
		result <- err
	}()
	eventually(t, "the statement waits", func() (bool, error) {
		semi, err := a.SemiSyncStatus(ctx(t))
		return semi.WaitSessions == 1, err
	})
	if err := a.SetSuperReadOnly(ctx(t), true, time.Second); err != nil {
		t.Fatalf("close: %v; then its success proves more than is said of it", err)
	}
	now, after, err := a.BinlogEnd(ctx(t))
	if err != nil || now != file || after <= before {
		t.Errorf("the binlog ended at %s:%d, now at %s:%d, %v", file, before, now, after, err)
	}
	if err := a.proveReadOnly(ctx(t)); err == nil {
		t.Error("a session waits, and the server is proven read-only")
	}
	p.Kill()
	<-result
}

// TestEndLockWaiters: a session that waits for a row lock is ended, the session that holds the
// lock is not.
func TestEndLockWaiters(t *testing.T) {
	t.Parallel()
	s, p := newServerWithTable(t)
	result := waitingCommit(t, s, p) // INSERT of 1, which holds its lock
	a := p.Admin()
	db := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	blocked := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.Background(), "INSERT INTO d.t VALUES (1)")
		blocked <- err
	}()
	ended := 0
	eventually(t, "the second writer is ended", func() (bool, error) {
		n, err := a.EndLockWaiters(ctx(t))
		ended += n
		return n > 0, err
	})
	if err := <-blocked; err == nil || ended != 1 {
		t.Errorf("%d sessions were ended; the one that waited for the lock: %v", ended, err)
	}
	semi, err := a.SemiSyncStatus(ctx(t))
	if err != nil || semi.WaitSessions != 1 {
		t.Errorf("%d sessions wait for an ACK, %v", semi.WaitSessions, err)
	}
	p.Kill()
	<-result
}
