package experiment

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/lab/fault"
	"github.com/quorate/quorate/lab/netlab"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/plan"
	"github.com/quorate/quorate/lab/result"
	"github.com/quorate/quorate/lab/workload"
)

// realCells returns options for cells with real servers. It skips the test if these are missing.
func realCells(t *testing.T, steps ...plan.Step) Options {
	t.Helper()
	if testing.Short() {
		t.Skip("real servers take a while")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	rivals := os.Getenv(peers.EnvRivals)
	if rivals == "" {
		rivals = "../../.rivals"
	}
	if probe, err := netlab.New(netlab.Presets()[0], slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	} else if err := errors.Join(probe.Up(t.Context()), probe.Close()); errors.Is(err, os.ErrPermission) {
		t.Skipf("needs network namespaces: %v", err)
	}
	sysbench, err := workload.FindSysbench(rivals)
	if err != nil && slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Experiment != result.RPO }) {
		t.Skip(err)
	}
	install := peers.FindInstallations(rivals, "")
	if install.MySQL == nil {
		abs, err := filepath.Abs("../../.mysql")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("QUORATE_MYSQL_BASE", abs)
		if install = peers.FindInstallations(rivals, ""); install.MySQL == nil {
			t.Skip("there is no MySQL: run `make mysql`")
		}
	}
	dir, err := os.MkdirTemp("", "qlab") // short: sockets
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	f, err := result.Open(filepath.Join(out, result.FileName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return Options{
		Plan: plan.Plan{Name: "test", Tables: 1, Rows: 1000}, Steps: steps, Results: f, Run: "r", Out: out, Dir: dir,
		Install: install, Sysbench: sysbench, OpenDisk: fault.OpenFUSE,
	}
}

func rows(t *testing.T, o Options) result.Results {
	t.Helper()
	got, err := result.ReadFile(filepath.Join(o.Out, result.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(o.Dir, "[0-9]*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return got
}

func standalone(experiment, workload string, threads int) plan.Step {
	return plan.Step{
		Cell:       result.Cell{Experiment: experiment, System: peers.Standalone, Network: "same-rack", Workload: workload, Threads: threads},
		Repetition: 1, Duration: 4 * time.Second, Warmup: time.Second,
	}
}

// TestRealCells: a row of a real server has everything that its experiment fills.
func TestRealCells(t *testing.T) {
	second := standalone(result.Throughput, "oltp_read_write", 2)
	second.Reuse = true
	o := realCells(t, standalone(result.Throughput, "oltp_write_only", 2), second, standalone(result.RTO, "kill-primary", 0))
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	got := rows(t, o)
	if len(got.Rows) != 3 || len(got.Facts) != 2 {
		t.Fatalf("%d rows and %d facts, want 3 and 2", len(got.Rows), len(got.Facts))
	}
	load := []string{result.TPS, result.QPS, result.P50MS, result.P95MS, result.P99MS, result.CVPercent, result.EffectiveTPS, result.CPU + "mysqld", result.CPU + "client"}
	for i, want := range [][]string{
		append(load, result.SetupS), load,
		{result.GapMS, result.WritableMS, result.RestoredMS, result.Acknowledged, result.SetupS},
	} {
		r := got.Rows[i]
		if r.Status != result.OK || r.Facts == "" || r.RTT["a-b"].P50 == 0 {
			t.Errorf("row %+v", r)
		}
		for _, name := range want {
			if v, ok := r.Metric(name); !ok || v <= 0 {
				t.Errorf("%s: %s is %v", r.Key(), name, v)
			}
		}
	}
	if _, again := got.Rows[1].Metric(result.SetupS); again {
		t.Error("the second cell did not use the deployment of the first")
	}
	killed := got.Rows[2]
	if lost, ok := killed.Metric(result.Lost); !ok || lost != 0 {
		t.Errorf("%v rows lost, %v", lost, ok)
	}
	// The server is down for half of four seconds, and starts again.
	if gap, _ := killed.Metric(result.GapMS); gap < 2000 {
		t.Errorf("gap %v ms, want 2000 and more", gap)
	}
}

// TestReplicaDiesUnderLoad: a replica that is killed under load fails the cell.
func TestReplicaDiesUnderLoad(t *testing.T) {
	step := standalone(result.Throughput, "oltp_write_only", 2)
	step.System, step.Duration = peers.Async, 15*time.Second
	o := realCells(t, step)
	ctx, stop := context.WithCancel(t.Context())
	killed := make(chan error, 1)
	go func() { killed <- killServer(ctx, filepath.Join(o.Dir, "1", "d", "b")) }()
	err := Run(ctx, o)
	stop()
	if err := errors.Join(err, <-killed); err != nil {
		t.Fatal(err)
	}
	if r := rows(t, o).Rows[0]; r.Status != result.Failed || !strings.Contains(r.Reason, "node b died") {
		t.Errorf("%s %q, want a failure of node b", r.Status, r.Reason)
	}
}

// killServer kills a node's server some seconds after it has the tables of the load.
func killServer(ctx context.Context, dir string) error {
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		if _, err := os.Stat(filepath.Join(dir, "data", peers.Database, "sbtest1.ibd")); err != nil {
			continue
		}
		time.Sleep(5 * time.Second) // the load goes on
		text, err := os.ReadFile(filepath.Join(dir, "s.pid"))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	}
	return errors.New("node b got no table")
}

// TestInterrupted: Ctrl-C in the middle of a cell leaves no row and no directory.
func TestInterrupted(t *testing.T) {
	o := realCells(t, standalone(result.Throughput, "oltp_write_only", 2))
	o.Steps[0].Duration = time.Minute
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() {
		// Interrupt as soon as the tables are there and the warm-up goes on.
		for ctx.Err() == nil {
			if found, _ := filepath.Glob(filepath.Join(o.Dir, "1", "d", "a", "data", "sbtest", "sbtest1.ibd")); len(found) > 0 {
				interrupt()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want %v", err, context.Canceled)
	}
	if got := rows(t, o); len(got.Rows) != 0 {
		t.Errorf("rows %+v", got.Rows)
	}
}

// TestPowerLossControl: after a loss of power a server with fsyncs has everything that it acknowledged, and the same
// server without fsyncs has lost some of it. Without this second half the experiment would prove nothing about systems
// that lose nothing. The server fsyncs now and then for reasons of its own, at times just before the power goes. So the
// control has three attempts.
func TestPowerLossControl(t *testing.T) {
	durable, control := standalone(result.RPO, "power-loss", 0), standalone(result.RPO, "power-loss", 0)
	control.Options = map[string]string{"no-sync": "true"}
	again, third := control, control
	again.Repetition, third.Repetition = 2, 3
	o := realCells(t, durable, control, again, third)
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	got := rows(t, o)
	if len(got.Rows) != 4 {
		t.Fatalf("%d rows, want 4", len(got.Rows))
	}
	controlLost := 0.0
	for i, r := range got.Rows {
		if r.Status == result.Skipped {
			t.Skip(r.Reason)
		}
		lost, checked := r.Metric(result.Lost)
		acknowledged, _ := r.Metric(result.Acknowledged)
		t.Logf("%s: %s %s, %.0f of %.0f lost", r.Key(), r.Status, r.Reason, lost, acknowledged)
		if r.Status != result.OK || !checked || acknowledged == 0 || i == 0 && lost > 0 {
			t.Errorf("%s lost %.0f of %.0f", r.Key(), lost, acknowledged)
		}
		if i > 0 {
			controlLost += lost
		}
	}
	if controlLost == 0 {
		t.Error("the server without fsyncs has lost nothing")
	}
}
