package experiment

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/lab/fault"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/plan"
	"github.com/quorate/quorate/lab/result"
)

func TestMain(m *testing.M) {
	fault.ServeFUSE()
	goleak.VerifyTestMain(m)
}

func TestDip(t *testing.T) {
	for _, tc := range []struct {
		name         string
		values       []float64
		at           int
		percent, low float64
		ok           bool
	}{
		{"none", []float64{3, 100, 100, 100, 100, 100}, 3, 0, 0, true},
		{"half a second", []float64{3, 100, 100, 90, 60, 100}, 3, 40, 0, true},
		{"two seconds of nothing", []float64{3, 100, 100, 0, 0, 80}, 3, 100, 2, true},
		{"the first second does not count", []float64{0, 10, 10, 10, 9, 10}, 4, 10, 0, true},
		{"no load", []float64{0, 0, 0, 0, 0}, 3, 0, 0, false},
		{"too early", []float64{1, 1, 1}, 2, 0, 0, false},
		{"the load had ended", []float64{1, 1, 1, 1}, 4, 0, 0, false},
	} {
		percent, low, ok := dip(tc.values, tc.at)
		if ok != tc.ok || low != tc.low || percent < tc.percent-0.01 || percent > tc.percent+0.01 {
			t.Errorf("%s: %v %v %v, want %v %v %v", tc.name, percent, low, ok, tc.percent, tc.low, tc.ok)
		}
	}
}

func TestSizeOf(t *testing.T) {
	for name, want := range map[string]int64{"100MB": 100 << 20, "1GB": 1 << 30} {
		if got, err := sizeOf(name); err != nil || got != want {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "MB", "-1GB", "0MB", "1TB", "50k"} {
		if got, err := sizeOf(bad); !errors.Is(err, errNotForIt) {
			t.Errorf("%q: %d, %v", bad, got, err)
		}
	}
}

// TestPeerOptions: package peers knows every option of a system that a plan may name.
func TestPeerOptions(t *testing.T) {
	o, err := peerOptions(result.Cell{System: "semisync", Options: map[string]string{"workers": "2", "acks": "2", "compress": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	if o.System != "semisync" || o.Workers != 2 || o.Acks != 2 || !o.Compress {
		t.Errorf("options %+v", o)
	}
	values := map[string]string{"writers": "all", "suspect": "1s", "relay-log-recovery": "off", "size-limit": "default", "replica-durability": "relaxed", "paxos-single-leader": "true", "compress": "true", "instruments": "least", "elect-updated": "true", "clients": "port", "plain-peers": "true", "durability": "site-majority"}
	for _, s := range peers.Systems() {
		for _, name := range append(s.Options, "compress") {
			value := values[name]
			if value == "" {
				value = "1"
			}
			if _, err := peerOptions(result.Cell{System: s.Name, Options: map[string]string{name: value}}); err != nil {
				t.Errorf("%s %s: %v", s.Name, name, err)
			}
		}
	}
	for _, bad := range []map[string]string{{"wheels": "4"}, {"workers": "many"}} {
		if _, err := peerOptions(result.Cell{System: "async", Options: bad}); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

// TestEmbeddedPlans: a cell can be measured with every workload that a plan can name.
func TestEmbeddedPlans(t *testing.T) {
	for _, experiment := range result.Experiments() {
		for _, w := range plan.Workloads(experiment) {
			s := plan.Step{Cell: result.Cell{Experiment: experiment, Workload: w}, Duration: time.Second}
			if d := cellWait(s); d < time.Minute || d > 2*time.Hour {
				t.Errorf("%s %s: its time is %v", experiment, w, d)
			}
		}
	}
	for _, w := range plan.Workloads(result.Large) {
		if _, err := sizeOf(w); err != nil {
			t.Error(err)
		}
	}
}

// TestMissingProgramIsARow: a system that is not installed gives a skipped row that says what to do.
func TestMissingProgramIsARow(t *testing.T) {
	dir := t.TempDir()
	f, err := result.Open(filepath.Join(dir, result.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	step := plan.Step{Cell: result.Cell{Experiment: result.Throughput, System: "galera", Network: "same-rack", Workload: "oltp_write_only", Threads: 1}, Repetition: 1}
	wrong := step
	wrong.Network = "moon"
	var ended []string
	err = Run(t.Context(), Options{
		Steps: []plan.Step{step, wrong}, Results: f, Run: "r", Out: dir, Dir: filepath.Join(dir, "w"),
		Ended: func(_ int, s plan.Step, r result.Row, _ time.Duration) {
			ended = append(ended, s.Network+" "+string(r.Status))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := result.ReadFile(filepath.Join(dir, result.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 2 {
		t.Fatalf("%d rows, want 2", len(got.Rows))
	}
	if r := got.Rows[0]; r.Status == result.OK || r.Reason == "" || r.Key() != step.Key() {
		t.Errorf("row %+v", r)
	}
	if r := got.Rows[0]; r.Status == result.Skipped && !strings.Contains(r.Reason, "get-rivals.sh") {
		t.Errorf("reason %q does not say what to do", r.Reason)
	}
	if r := got.Rows[1]; r.Status != result.Failed || !strings.Contains(r.Reason, "moon") {
		t.Errorf("row %+v", r)
	}
	if diff := cmp.Diff([]string{"same-rack " + string(got.Rows[0].Status), "moon failed"}, ended); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "w", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestDiedUnderLoad: a cell in which a node died, or was started again, is not ok. Before, its lag, its drain and its
// CPU left that node out, and nothing said so.
func TestDiedUnderLoad(t *testing.T) {
	nodes := func(b map[string]int) []peers.Node {
		return []peers.Node{{Name: "a", Processes: map[string]int{"agent": 1, "mysqld": 2}}, {Name: "b", Processes: b}}
	}
	whole := nodes(map[string]int{"mysqld": 3})
	for _, tc := range []struct {
		name          string
		before, after []peers.Node
		bad           bool
	}{
		{"all live", whole, nodes(map[string]int{"mysqld": 3}), false},
		{"one is gone", whole, nodes(map[string]int{}), true},
		{"one was started again", whole, nodes(map[string]int{"mysqld": 4}), true},
		{"one was gone before", nodes(nil), nodes(nil), true},
	} {
		if err := died(tc.before, tc.after); (err != nil) != tc.bad || err != nil && !strings.Contains(err.Error(), "node b") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestOneLine(t *testing.T) {
	if got := oneLine(errors.New("two\n  lines")); got != "two lines" {
		t.Errorf("%q", got)
	}
	if got := oneLine(errors.New(strings.Repeat("é", 1000))); len(got) > reasonBytesMax+10 {
		t.Errorf("%d bytes", len(got))
	}
}
