package netlab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/sys/subprocess"
)

// eventually waits until a condition is true that depends on the kernel.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * ms)
	defer tick.Stop()
	deadline := time.After(testWait)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", testWait, what)
		}
	}
}

func TestProcessRunsInside(t *testing.T) {
	for _, name := range []string{"same-rack", "same-city"} {
		n := upNetwork(t, name)
		var out bytes.Buffer
		cmd := exec.Command("cat", "/proc/self/net/dev")
		cmd.Stdout = &out
		p, err := n.Start("b", cmd)
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if p.Err() != nil {
			t.Fatal(p.Err())
		}
		want := map[string]string{"same-rack": "to-a:", "same-city": "lab0:"}[name]
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "eth0:") {
			t.Errorf("%s: the devices inside are\n%s", name, out.String())
		}
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("signal a process that has ended: %v", err)
		}
	}
}

func TestStartFails(t *testing.T) {
	n := upNetwork(t, "same-rack")
	if _, err := n.Start("b", exec.Command("/no/such/program")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "in node b") {
		t.Errorf("Start: %v", err)
	}
	if _, err := n.Start("x", exec.Command("true")); err == nil || !strings.Contains(err.Error(), `no node "x"`) {
		t.Errorf("Start in x: %v", err)
	}
}

// killLeftover kills a process that a failing test leaves behind.
func killLeftover(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone
	}
	t.Cleanup(func() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		closeFD(fd)
	})
}

// TestProcessOutlivesItsStarter: the parent-death signal comes when the lab ends, not
// when the goroutine that called Start ends, nor at Close.
func TestProcessOutlivesItsStarter(t *testing.T) {
	n := upNetwork(t, "same-city")
	started := make(chan *subprocess.Process)
	go func() {
		p, err := n.Start("a", exec.Command("sleep", "1000"))
		if err != nil {
			t.Error(err)
		}
		started <- p
	}()
	p := <-started
	if p == nil {
		t.Fatal("not started")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
		t.Errorf("ended: %v", p.Err())
	case <-time.After(100 * ms): // nothing is expected to happen
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}

// victimVariable is the environment variable with which the test program plays a lab that is killed.
const victimVariable = "QUORATE_TEST_NETLAB_VICTIM"

// victim brings a network up with a process in each node, prints the ids of the processes, and
// waits to be killed.
func victim() {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	t, err := Preset(os.Getenv(victimVariable))
	fail(err)
	n, err := New(t, slog.New(slog.DiscardHandler))
	fail(err)
	fail(n.Up(context.Background()))
	for i, node := range t.Nodes {
		p, err := n.Start(node, exec.Command("sleep", "1000"))
		fail(err)
		var stat unix.Stat_t
		fail(unix.Fstat(n.namespaces[i].fd, &stat))
		fmt.Println(p.Pid(), stat.Ino)
	}
	fmt.Println("end")
	select {}
}

func TestNothingIsLeftAfterSIGKILL(t *testing.T) {
	for _, name := range []string{"same-rack", "two-city"} {
		needNetworks(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimVariable+"="+name)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pids []int
		var inodes []string
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "end" {
			pid, inode, ok := strings.Cut(lines.Text(), " ")
			id, err := strconv.Atoi(pid)
			if !ok || err != nil {
				t.Errorf("the lab says %q", lines.Text())
				break
			}
			killLeftover(t, id)
			pids, inodes = append(pids, id), append(inodes, inode)
		}
		for _, pid := range pids {
			if !subprocess.Runs(pid) {
				t.Errorf("process %d does not run", pid)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		if len(pids) != 7 {
			t.Fatalf("the lab started %d processes, want 7", len(pids))
		}
		for _, pid := range pids {
			eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !subprocess.Runs(pid) })
		}
		for _, inode := range inodes {
			if holders := holders(t, inode); len(holders) > 0 {
				t.Errorf("network namespace %s is still that of %v", inode, holders)
			}
		}
	}
}

// holders are the processes in a network namespace.
func holders(t *testing.T, inode string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil || len(links) == 0 {
		t.Fatalf("list namespaces: %v, %v", links, err)
	}
	var found []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == "net:["+inode+"]" {
			found = append(found, link)
		}
	}
	return found
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// TestUpAndDown: nothing of a network stays in the lab.
func TestUpAndDown(t *testing.T) {
	rounds := 50 // of each kind
	if testing.Short() {
		rounds = 5
	}
	needNetworks(t)
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var files, threads int
	for round := range rounds {
		for _, name := range []string{"same-rack", "same-city"} {
			p, err := Preset(name)
			if err != nil {
				t.Fatal(err)
			}
			n, err := New(p, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if round == 0 { // the runtime has made its own by now
			files, threads = entries(t, "/proc/self/fd"), entries(t, "/proc/self/task")
		}
	}
	if now := entries(t, "/proc/self/fd"); now > files {
		t.Errorf("%d descriptors after %d rounds, %d after one", now, rounds, files)
	}
	const runtimeThreads = 8 // the runtime starts some when it needs them
	eventually(t, fmt.Sprintf("at most %d threads", threads+runtimeThreads), func() bool {
		return entries(t, "/proc/self/task") <= threads+runtimeThreads
	})
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "every thread is in the lab's own namespace", func() bool {
		for _, task := range tasks {
			if ns, err := os.Readlink(task); err == nil && ns != own {
				return false
			}
		}
		return true
	})
}
