package subprocess

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startFamily starts a shell with a child, and returns the child's id.
func startFamily(t *testing.T, script string) (*Process, int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo $!; "+script)
	cmd.Stdout = w
	p, err := Start(cmd)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return p, child
}

// awaitEnd waits for the end of a process that is not a child of the test.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // the process has ended, and was reaped
	}
	m := &Child{pid: pid, fd: fd}
	defer m.Release()
	if err := m.WaitGone(); err != nil {
		t.Error(err, m.Signal(syscall.SIGKILL))
	}
}

func TestKillTakesTheGroup(t *testing.T) {
	p, child := startFamily(t, "wait")
	if p.Err() != nil || !Runs(p.Pid()) || !Runs(child) {
		t.Fatalf("the processes do not run: %v", p.Err())
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v, want SIGKILL", p.Err())
	}
	awaitEnd(t, child)
	if err := p.Kill(); err != nil {
		t.Errorf("second Kill: %v", err)
	}
}

func TestEndTakesTheGroup(t *testing.T) {
	p, child := startFamily(t, "exit 3")
	<-p.Done()
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || exit.ExitCode() != 3 {
		t.Errorf("ended by %v, want exit status 3", p.Err())
	}
	awaitEnd(t, child)
}

// TestChildren: a child of a child is found, gets the signal, and is seen to end.
func TestChildren(t *testing.T) {
	p, child := startFamily(t, "wait")
	all := Children(p.Pid())
	defer Release(all)
	if len(all) != 1 || all[0].Pid() != child {
		t.Fatalf("children: %v, want %d", all, child)
	}
	if err := errors.Join(all[0].Signal(syscall.SIGKILL), all[0].WaitGone(), all[0].Signal(syscall.SIGKILL), p.Kill()); err != nil {
		t.Fatal(err)
	}
	if Runs(child) || Runs(p.Pid()) || len(Children(p.Pid())) != 0 {
		t.Error("a process is left")
	}
}
