package experiment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/plan"
	"github.com/quorate/quorate/lab/result"
)

// TestMixesNamesWhatDiffers: rows of different data, programs or times must not be mixed under one name.
func TestMixesNamesWhatDiffers(t *testing.T) {
	p := plan.Plan{Name: "p", Tables: 8, Rows: 1000}
	step := plan.Step{Cell: result.Cell{Experiment: result.Throughput, System: "mgr", Network: "same-rack", Workload: "oltp_write_only", Threads: 1},
		Repetition: 1, Duration: 15 * time.Second, Warmup: 5 * time.Second}
	before := result.Results{
		Facts: []result.Facts{runFacts("r", "", p, peers.Installations{}), {Variant: "mgr", Versions: map[string]string{"mysqld": "1"}}},
		Rows:  []result.Row{{Cell: step.Cell, Repetition: 1, Status: result.OK, LoadSeconds: 15, WarmupSeconds: 5}},
	}
	if got := Mixes(before, p, peers.Installations{}, []plan.Step{step}); len(got) != 0 {
		t.Errorf("the same: %v", got)
	}
	if got := Mixes(result.Results{}, p, peers.Installations{}, []plan.Step{step}); len(got) != 0 {
		t.Errorf("a new file: %v", got)
	}
	more, shorter := p, step
	more.Rows, shorter.Duration = 2000, 10*time.Second
	before.Facts[0].Versions = map[string]string{"quorate": "old"}
	program := filepath.Join(t.TempDir(), "quorate")
	if err := os.WriteFile(program, []byte("new"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(Mixes(before, more, peers.Installations{Quorate: program}, []plan.Step{shorter}), "; ")
	for _, want := range []string{"rows were 1000 and are 2000", "quorate was old and is sha256 ", "mgr/1#1 has 15 s after a warm-up of 5 s, the plan 10 s"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

// TestTeardownKeepsTheRow: if something goes wrong when a system is taken down, its measured row stays, with a note.
// The run ends only if processes are left.
func TestTeardownKeepsTheRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), result.FileName)
	f, err := result.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &runner{Options: Options{Results: f}}
	measured := result.Row{Run: "r", Cell: result.Cell{Experiment: result.RTO, System: "mgr"}, Repetition: 1, Status: result.OK, Started: time.Unix(1, 0).UTC()}
	if err := f.Append(measured); err != nil {
		t.Fatal(err)
	}
	r.last = measured
	if err := r.tornDown(errors.New("unmount: busy")); err != nil {
		t.Errorf("nothing is left, and the run ends: %v", err)
	}
	if err := r.tornDown(nil); err != nil {
		t.Error(err)
	}
	if err := r.tornDown(fmt.Errorf("%w: process 7", peers.ErrLeft)); !errors.Is(err, peers.ErrLeft) {
		t.Errorf("a process is left: %v", err)
	}
	got, err := result.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	latest := got.Latest()
	if len(got.Rows) != 3 || len(latest) != 1 || !strings.HasSuffix(latest[0].Text[result.TextTeardown], "process 7") || latest[0].Status != result.OK || latest[0].FailedBefore != 0 {
		t.Errorf("rows %+v", got.Rows)
	}
}
