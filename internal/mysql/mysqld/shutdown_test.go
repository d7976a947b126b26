package mysqld

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"golang.org/x/sys/unix"
)

// silentTap attaches a semi-sync replica that never acknowledges, which is what
// the agent's tap is while a transaction has no majority. It reads until the
// connection ends.
func silentTap(t *testing.T, s *Server) {
	t.Helper()
	c, err := client.Connect(s.Socket(), TapUser, s.cfg.Secrets.Tap, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"SET @source_binlog_checksum = 'CRC32'", "SET @rpl_semi_sync_replica = 1",
		"SET @replica_uuid = '00000000-0000-0000-0000-00000000000a'",
	} {
		if _, err := c.Execute(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	// COM_BINLOG_DUMP_GTID: flags, server id, empty name, position 4, empty set.
	p := make([]byte, 4, 40) // the packet header's room
	p = append(p, 0x1e, 2, 0)
	p = binary.LittleEndian.AppendUint32(p, 4242)
	p = binary.LittleEndian.AppendUint32(p, 0)
	p = binary.LittleEndian.AppendUint64(p, 4)
	p = binary.LittleEndian.AppendUint32(p, 8)
	p = binary.LittleEndian.AppendUint64(p, 0)
	c.ResetSequence()
	if err := c.WritePacket(p); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c.ResetSequence() // The semi-sync stream restarts it.
			if _, err := c.ReadPacket(); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Conn.Conn.Close() // The socket: c.Close writes to what the reader uses.
		awaitClosed(t, "the silent tap's reader", ended)
	})
}

// waitingCommit opens the server and commits a row that nobody acknowledges. Once the session
// waits for the ACK, it returns the channel that will get the commit's result.
func waitingCommit(t *testing.T, s *Server, p *Process) <-chan error {
	t.Helper()
	open(t, p)
	silentTap(t, s)
	eventually(t, "the tap is connected", func() (bool, error) {
		semi, err := p.Admin().SemiSyncStatus(ctx(t))
		return semi.Clients == 1, err
	})
	db := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	result := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.Background(), "INSERT INTO d.t VALUES (1)")
		result <- err
	}()
	eventually(t, "the commit waits", func() (bool, error) {
		semi, err := p.Admin().SemiSyncStatus(ctx(t))
		return semi.WaitSessions == 1, err
	})
	return result
}

// newServerWithTable returns a running server with an empty table d.t, which no binlog has.
func newServerWithTable(t *testing.T) (*Server, *Process) {
	t.Helper()
	s := newServer(t)
	p := start(t, s)
	open(t, p)
	for _, q := range []string{"CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)"} {
		if err := p.Admin().exec(ctx(t), "make table", q); err != nil {
			t.Fatal(err)
		}
	}
	return s, p
}

// TestForeignShutdown is trace A8: after a shutdown that the agent did not order, a commit
// without ACK must not return OK, and its row must not stay.
func TestForeignShutdown(t *testing.T) {
	t.Parallel()
	// The session that sends SHUTDOWN may end before it gets the answer.
	statement := func(q string) func(*Process) {
		return func(p *Process) { _ = p.Admin().exec(context.Background(), "shut down", q) }
	}
	for _, tc := range []struct {
		name     string
		shutdown func(*Process)
	}{
		{"SIGTERM", func(p *Process) { _ = unix.Kill(p.PID(), unix.SIGTERM) }},
		{"SIGQUIT", func(p *Process) { _ = unix.Kill(p.PID(), unix.SIGQUIT) }},
		{"SHUTDOWN", statement("SHUTDOWN")},
		{"RESTART", statement("RESTART")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, p := newServerWithTable(t)
			result := waitingCommit(t, s, p)
			tc.shutdown(p)
			if err := <-result; err == nil {
				t.Fatal("OK for a commit that nobody acknowledged")
			}
			awaitClosed(t, "ShutdownSeen", p.ShutdownSeen())
			awaitClosed(t, "Done", p.Done())
			checkNoRow(t, s)
		})
	}
}

func checkNoRow(t *testing.T, s *Server) {
	t.Helper()
	p := start(t, s)
	var rows int
	if err := p.Admin().query1(ctx(t), "rows", "SELECT COUNT(*) FROM d.t", nil, &rows); err != nil {
		t.Fatal(err)
	}
	set, err := p.Admin().GTIDExecuted(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if rows != 0 || set != "" {
		t.Fatalf("%d rows and gtid_executed %q of a commit that nobody acknowledged", rows, set)
	}
}

// TestSuperReadOnlyProvesNothingWaits: while a session waits for an ACK, the server cannot be
// closed and StopGracefully kills it. A close that was given up does not take effect after a
// later open.
func TestSuperReadOnlyProvesNothingWaits(t *testing.T) {
	t.Parallel()
	s, p := newServerWithTable(t)
	result := waitingCommit(t, s, p)
	a := p.Admin()
	if err := a.SetSuperReadOnly(ctx(t), true, time.Second); !errors.Is(err, ErrWritesPending) {
		t.Fatalf("close with a waiting commit: %v, want ErrWritesPending", err)
	}
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := a.SetSuperReadOnly(short, true, time.Minute); !errors.Is(err, ErrWritesPending) {
		t.Fatalf("close given up: %v, want ErrWritesPending", err)
	}
	if err := a.SetSuperReadOnly(ctx(t), false, time.Second); err != nil {
		t.Fatal(err)
	}
	var pending int
	err := a.query1(ctx(t), "pending closes", `SELECT COUNT(*) FROM performance_schema.threads
		WHERE processlist_info LIKE 'SET GLOBAL super_read_only = ON%'`, nil, &pending)
	if err != nil || pending != 0 {
		t.Fatalf("%d closes are still pending behind the open, %v", pending, err)
	}
	p.StopGracefully(ctx(t))
	if err := <-result; err == nil {
		t.Fatal("OK for a commit that nobody acknowledged")
	}
	checkNoRow(t, s)
}

// TestCanary: the end of the canary session alone is answered with SIGKILL.
func TestCanary(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	var id uint64
	eventually(t, "the canary sits in its statement", func() (bool, error) {
		err := p.Admin().query1(ctx(t), "canary", `SELECT processlist_id FROM performance_schema.threads
			WHERE processlist_info LIKE 'SELECT SLEEP(%'`, nil, &id)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	// mysqld may be dead before it answers.
	_ = p.Admin().exec(ctx(t), "kill canary", "KILL ?", id)
	awaitClosed(t, "ShutdownSeen", p.ShutdownSeen())
	awaitClosed(t, "Done", p.Done())
	if got := p.log.last(); len(got) == 0 || p.ExitError() == nil {
		t.Fatalf("mysqld ended with %v; log:\n%s", p.ExitError(), got)
	}
}
