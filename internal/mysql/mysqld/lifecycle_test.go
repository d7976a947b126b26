package mysqld

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	if err := s.Initialize(ctx(t)); !errors.Is(err, ErrInitialized) {
		t.Fatalf("second Initialize: %v, want ErrInitialized", err)
	}
	p := start(t, s)
	a := p.Admin()
	if got, err := a.GTIDExecuted(ctx(t)); err != nil || got != "" {
		t.Fatalf("gtid_executed of a new server: %q, %v", got, err)
	}
	uuid, err := a.ServerUUID(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if drift, err := p.CheckGuarded(ctx(t)); err != nil || len(drift) != 0 {
		t.Fatalf("CheckGuarded of a new server: %v, %v", drift, err)
	}
	if grants, err := a.ScanGrants(ctx(t)); err != nil || len(grants) != 0 {
		t.Fatalf("ScanGrants of a new server: %v, %v", grants, err)
	}
	if semi, err := a.SemiSyncStatus(ctx(t)); err != nil || semi != (SemiSync{On: true}) {
		t.Fatalf("SemiSyncStatus of a new server: %+v, %v", semi, err)
	}
	if s, err := a.PrimaryStatus(ctx(t)); err != nil || s.Executed != "" || s.SemiSync != (SemiSync{On: true}) || len(s.Dumps) != 0 {
		t.Fatalf("PrimaryStatus of a new server: %+v, %v", s, err)
	}
	if _, err := os.Stat(s.paths.initSQL); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the init file with the passwords is still there: %v", err)
	}
	// A session of its own: signals of the agent's terminal do not reach it.
	if sid, err := unix.Getsid(p.PID()); err != nil || sid != p.PID() {
		t.Fatalf("session of mysqld %d: %d, %v", p.PID(), sid, err)
	}
	if f, err := a.FlushExecuted(ctx(t)); err != nil || f.XA || f.Executed != "" {
		t.Fatalf("flushed %+v, %v", f, err)
	}

	// Killed: a new incarnation, a new binlog directory, the same identity.
	first := s.paths.binlogDir(1)
	if _, err := os.Stat(filepath.Join(first, "q0000000001.000001")); err != nil {
		t.Fatal(err)
	}
	openAlone(t, p)
	mustExec(t, login(t, s, DBAUser, s.cfg.Secrets.DBA), "CREATE DATABASE app") // a binlog without a transaction goes at the next start
	p.Kill()
	if p.ExitError() == nil {
		t.Fatal("no ExitError after Kill")
	}
	p = start(t, s)
	if p.Incarnation() != 2 {
		t.Fatalf("second incarnation: %d", p.Incarnation())
	}
	if got, err := p.Admin().ServerUUID(ctx(t)); err != nil || got != uuid {
		t.Fatalf("server_uuid %q, %v; was %q", got, err, uuid)
	}
	if _, err := os.Stat(first); err != nil {
		t.Fatalf("the old binlog directory is gone before the server was judged: %v", err)
	}
	if err := p.RemoveOldBinlogs(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the old binlog directory is still there: %v", err)
	}
	if drift, err := p.CheckGuarded(ctx(t)); err != nil || len(drift) != 0 {
		t.Fatalf("CheckGuarded after a restart: %v, %v", drift, err)
	}
}

func TestStopGracefully(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	p.StopGracefully(ctx(t))
	if got := p.log.last(); !strings.Contains(got, "Shutdown complete") {
		t.Fatalf("not a graceful stop:\n%s", got)
	}
	select {
	case <-p.ShutdownSeen():
		t.Fatal("our own shutdown was taken for a foreign one")
	default:
	}
	// Open for writes: nothing is proven, so it is killed.
	p = start(t, s)
	open(t, p)
	p.StopGracefully(ctx(t))
	if got := p.log.last(); strings.Contains(got, "Received SHUTDOWN") {
		t.Fatalf("a writable server was stopped gracefully:\n%s", got)
	}
}

func TestOneServerPerDirectory(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := New(s.cfg).Start(short, StartOptions{}); !errors.Is(err, ErrBusy) {
		t.Fatalf("second Start: %v, want ErrBusy", err)
	}
	if n, err := s.Incarnation(); err != nil || n != 1 {
		t.Fatalf("a refused Start took incarnation %d, %v", n, err)
	}
	// A Start that waits goes on when the older process is gone.
	result := make(chan error, 1)
	go func() {
		q, err := New(s.cfg).Start(ctx(t), StartOptions{})
		if err == nil {
			q.Kill()
		}
		result <- err
	}()
	p.Kill()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

func TestReadyReportsWhyMysqldEnded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.cfg.Variables["no_such_variable"] = "1"
	p, err := s.Start(ctx(t), StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	err = p.Ready(ctx(t))
	if !errors.Is(err, ErrExited) || !strings.HasPrefix(err.Error(), "mysqld does not start: unknown variable 'no_such_variable=1'") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("Ready: %v", err)
	}
}

func TestInitFileThatFailed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	start(t, s).Kill()
	// The admin account is there from before; only the proof is missing.
	id, err := s.cfg.identity()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := s.lockDirectory(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.prepare(id, 2, StartOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.writeFor(id, s.paths.initSQL, "SET SESSION sql_log_bin=0;\nno SQL;\n", 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := s.spawn(id, 2, lock, StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	_ = lock.Close()
	if err := p.Ready(ctx(t)); err == nil || !strings.Contains(err.Error(), "stopped half way") {
		t.Fatalf("Ready: %v", err)
	}
}

// TestParentDeathKillsMysqld kills an agent and expects its mysqld dead, also
// when the agent is root and mysqld is not: a change of uid after the spawn
// would clear the parent-death signal.
func TestParentDeathKillsMysqld(t *testing.T) {
	t.Parallel()
	for _, osUser := range []string{"", "nobody"} {
		t.Run("user="+osUser, func(t *testing.T) {
			if osUser != "" && os.Geteuid() != 0 {
				t.Skip("only root can run mysqld as another user")
			}
			s := newServer(t, runAs(t, osUser))
			agent := exec.Command(os.Args[0])
			agent.Env = append(os.Environ(), envHelper+"="+filepath.Dir(s.cfg.DataDir), envHelper+"_USER="+osUser)
			agent.Stderr = t.Output()
			stdin, err := agent.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stdin.Close() }()
			stdout, err := agent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
			line, err := firstLineOf(stdout)
			if err != nil {
				t.Fatalf("the agent did not start its mysqld: %v", err)
			}
			pid, err := strconv.Atoi(line)
			if err != nil {
				t.Fatal(err)
			}
			checkOwner(t, pid, osUser)
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Close(fd) }()
			if err := agent.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, int(deadline.Milliseconds()))
			for errors.Is(err, unix.EINTR) {
				n, err = unix.Poll(fds, int(deadline.Milliseconds()))
			}
			if err != nil || n != 1 {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				t.Fatalf("mysqld %d outlived its agent: %d, %v", pid, n, err)
			}
			// The next agent takes over.
			start(t, s)
		})
	}
}

func checkOwner(t *testing.T, pid int, osUser string) {
	t.Helper()
	if osUser == "" {
		return
	}
	id, err := Config{OSUser: osUser}.identity()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join("/proc", strconv.Itoa(pid)), &st); err != nil {
		t.Fatal(err)
	}
	if int(st.Uid) != id.uid {
		t.Fatalf("mysqld runs as uid %d, want %d", st.Uid, id.uid)
	}
}
