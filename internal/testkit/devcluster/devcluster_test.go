package devcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/sys/subprocess"
)

// TestMain makes the test binary stand in for the two programs that the tests
// start: an agent (told by its arguments) and a demo (told by its environment).
func TestMain(m *testing.M) {
	if len(os.Args) >= 4 && os.Args[1] == "run" {
		os.Exit(fakeAgent(os.Args[3]))
	}
	if dir := os.Getenv("DEVCLUSTER_TEST_OWNER"); dir != "" {
		os.Exit(fakeOwner(dir))
	}
	goleak.VerifyTestMain(m)
}

// fakeAgent is an agent as far as this package can see: it has a child with
// the parent-death signal set, answers /status from its configuration, and
// ends on SIGTERM or SIGINT.
func fakeAgent(config string) int {
	text, err := os.ReadFile(config)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	name := regexp.MustCompile(`node = "(\w+)"`).FindSubmatch(text)
	listen := regexp.MustCompile(`\[api\]\nlisten = "(.*)"`).FindSubmatch(text)
	if _, err := os.Stat(filepath.Join(filepath.Dir(config), "broken")); err == nil {
		fmt.Println("fake agent: broken")
		return 1
	}
	mysqld := exec.Command("sleep", "600")
	mysqld.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := mysqld.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	role := status.RoleReplica
	if string(name[1]) == "b" {
		role = status.RolePrimary
	}
	st := status.Cluster{Self: string(name[1]), Nodes: []status.Node{{Name: string(name[1]), Role: role, Applied: 7}}}
	go func() {
		fmt.Println(http.ListenAndServe(string(listen[1]), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(st)
		})))
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	<-ctx.Done()
	return 0
}

// fakeOwner is a demo that starts a cluster, prints the process ids and waits.
func fakeOwner(dir string) int {
	c, err := New(Options{Binary: os.Args[0], Dir: dir, Nodes: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := context.Background()
	if err := errors.Join(c.Start(ctx, 0), c.WaitReady(ctx, 0)); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(c.AgentPID(0), c.MysqldPID(0))
	select {}
}

// newTestCluster returns a cluster of fake agents.
func newTestCluster(t *testing.T, nodes int) *Cluster {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "c")
	c, err := New(Options{Binary: self, Dir: dir, Nodes: nodes, Logger: slog.New(slog.DiscardHandler),
		Heartbeat: 50 * time.Millisecond, Variables: map[string]string{"max_connections": "7"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory is still there (%v)", err)
		}
	})
	return c
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestLifeAndDeath(t *testing.T) {
	t.Parallel()
	c, ctx := newTestCluster(t, 3), testContext(t)
	if err := c.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	if p, err := c.WaitAllReady(ctx); err != nil || p != 1 {
		t.Fatalf("WaitAllReady = %d, %v; node b says it is the primary", p, err)
	}
	if err := c.WaitCaughtUp(ctx, 2, 7); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx, 0); err == nil {
		t.Fatal("a node was started twice")
	}
	var pids []int
	for i := range c.Len() {
		pids = append(pids, c.AgentPID(i), c.MysqldPID(i))
	}
	if slices.ContainsFunc(pids, func(pid int) bool { return !subprocess.Runs(pid) }) {
		t.Fatalf("not all of %v run", pids)
	}
	gone := func(what string, want ...int) {
		t.Helper()
		for _, pid := range pids {
			if subprocess.Runs(pid) == slices.Contains(want, pid) {
				t.Errorf("after %s: process %d of %v runs: %v", what, pid, pids, subprocess.Runs(pid))
			}
		}
	}
	if err := c.KillMysqld(0); err != nil {
		t.Fatal(err)
	}
	gone("KillMysqld(0)", pids[1])
	if err := c.KillAgent(1); err != nil {
		t.Fatal(err)
	}
	gone("KillAgent(1)", pids[1], pids[2], pids[3])
	if err := c.KillAgent(1); !errors.Is(err, ErrAgentExited) {
		t.Errorf("a second kill: %v", err)
	}
	if err := c.Interrupt(ctx, 2); err != nil {
		t.Fatal(err)
	}
	gone("Interrupt(2)", pids[1], pids[2], pids[3], pids[4], pids[5])
	if err := c.Terminate(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if p, err := c.WaitPrimary(ctx); err != nil || p != 1 {
		t.Fatalf("after a restart: WaitPrimary = %d, %v", p, err)
	}
}

func TestPausedAgentIsStopped(t *testing.T) {
	t.Parallel()
	c, ctx := newTestCluster(t, 1), testContext(t)
	if err := errors.Join(c.Start(ctx, 0), c.WaitReady(ctx, 0), c.PauseAgent(0)); err != nil {
		t.Fatal(err)
	}
	if err := Poll(ctx, "the kernel has stopped it", func(context.Context) (bool, string, error) {
		return c.AgentPaused(0), "it runs", nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(ctx, 0); err == nil {
		t.Error("a paused agent answers")
	}
	if err := c.ResumeAgent(0); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx, 0); err != nil {
		t.Error(err)
	}
	if err := c.PauseAgent(0); err != nil { // Close must cope with it
		t.Fatal(err)
	}
}

func TestAgentThatDoesNotStart(t *testing.T) {
	t.Parallel()
	c, ctx := newTestCluster(t, 1), testContext(t)
	if err := os.WriteFile(filepath.Join(c.Dir(), "a", "broken"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx, 0); err != nil {
		t.Fatal(err)
	}
	err := c.WaitReady(ctx, 0)
	if !errors.Is(err, ErrAgentExited) || !strings.Contains(err.Error(), "fake agent: broken") {
		t.Errorf("WaitReady: %v; want ErrAgentExited and the end of the log", err)
	}
	if _, err := c.WaitPrimary(ctx); !errors.Is(err, ErrAgentExited) {
		t.Errorf("WaitPrimary: %v", err)
	}
}

// TestKilledOwner kills a process that has a cluster: nothing may survive.
func TestKilledOwner(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	owner := exec.CommandContext(ctx, self)
	owner.Env = append(os.Environ(), "DEVCLUSTER_TEST_OWNER="+filepath.Join(t.TempDir(), "c"))
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, f := range strings.Fields(line) {
		pid, err := strconv.Atoi(f)
		if err != nil || !subprocess.Runs(pid) {
			t.Fatalf("the owner printed %q (%v)", line, err)
		}
		pids = append(pids, pid)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // killed: always an error
	if err := Poll(ctx, "all processes are gone", func(context.Context) (bool, string, error) {
		return !slices.ContainsFunc(pids, subprocess.Runs), fmt.Sprint(pids), nil
	}); err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{Dir: t.TempDir(), Nodes: 2}, {Dir: full, Nodes: 1}} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v) succeeded", o)
		}
	}
}

func TestConfigOverrides(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 3)
	text := c.renderConfig(c.nodes[2])
	for _, want := range []string{`node = "c"`, `heartbeat = "50ms"`, `max_connections = "7"`, `innodb_buffer_pool_size = "128M"`} {
		if strings.Count(text, want) != 1 {
			t.Errorf("the configuration does not hold %q once:\n%s", want, text)
		}
	}
}

// TestConfigIsAccepted holds the rendered files to the product's own parser.
func TestConfigIsAccepted(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 5)
	ids := map[uint64]bool{}
	for i := range c.Len() {
		cfg, err := config.Load(c.ConfigPath(i))
		if err == nil {
			err = cfg.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Node != c.Name(i) || cfg.DataDir != c.DataDir(i) || cfg.API.Listen != c.addr(c.nodes[i].ports.api) {
			t.Errorf("node %d: %+v", i, cfg)
		}
		ids[cfg.ClusterID()] = true
	}
	if len(ids) != 1 {
		t.Errorf("the nodes compute %d cluster ids", len(ids))
	}
}
