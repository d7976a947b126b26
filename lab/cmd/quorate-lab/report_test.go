package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/lab/plan"
	"github.com/quorate/quorate/lab/result"
)

func lab(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// ran makes a run's directory with one cell.
func ran(t *testing.T, tps float64) string {
	t.Helper()
	dir := t.TempDir()
	f, err := result.Open(filepath.Join(dir, result.FileName))
	if err != nil {
		t.Fatal(err)
	}
	row := result.Row{Run: "r", Repetition: 1, Started: time.Unix(1_800_000_000, 0), Status: result.OK, Metrics: map[string]float64{result.TPS: tps},
		Cell: result.Cell{Experiment: result.Throughput, System: "quorate", Network: "two-city", Workload: "oltp_write_only", Threads: 16}}
	if err := errors.Join(f.Append(row), f.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReport(t *testing.T) {
	dir := ran(t, 1234)
	for _, arg := range []string{dir, filepath.Join(dir, result.FileName)} {
		out, err := lab(t, "report", arg)
		if err != nil || !strings.HasPrefix(out, "1 rows: ") {
			t.Fatalf("report %s: %q, %v", arg, out, err)
		}
		for _, name := range []string{reportFile, summaryFile} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), "two-city") {
				t.Errorf("%s does not have the cell", name)
			}
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	if _, err := lab(t, "report", t.TempDir()); err == nil || !strings.Contains(err.Error(), "no results in") {
		t.Errorf("report of nothing: %v", err)
	}
}

func TestCompareRuns(t *testing.T) {
	out, err := lab(t, "compare", ran(t, 1000), ran(t, 1300))
	if err != nil || !strings.Contains(out, "+30 %") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPlans(t *testing.T) {
	out, err := lab(t, "plans")
	if err != nil || strings.Count(out, "\n") != 1+len(plan.Embedded()) || !strings.Contains(out, "seeds") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = lab(t, "plans", "smoke", "--only", "quorate")
	if err != nil || !strings.Contains(out, "throughput/oltp_write_only/same-rack/quorate/16") || !strings.Contains(out, "1 cells, about") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = lab(t, "plans", "seeds", "--print")
	if err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(t.TempDir(), "mine.toml")
	if err := os.WriteFile(mine, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	copied, err := lab(t, "plans", mine)
	if err != nil {
		t.Fatal(err)
	}
	if original, err := lab(t, "plans", "seeds"); err != nil || original != copied {
		t.Errorf("the printed plan has other cells: %v", err)
	}
	for want, args := range map[string][]string{
		"choose smoke, bench, failures, commit, ways, cities, tables, seeds, full": {"plans", "moon"},
		"open plan":       {"plans", "./moon.toml"},
		"matches no cell": {"plans", "smoke", "--skip", "moon"},
		"need a plan":     {"plans", "--print"},
	} {
		if _, err := lab(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// Every embedded plan names only systems, options and networks that exist.
func TestEmbeddedPlansAreRunnable(t *testing.T) {
	for _, name := range []string{"smoke", "commit", "ways", "tables", "seeds", "full"} {
		if _, _, err := loadPlan(name, nil, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestAbout(t *testing.T) {
	for d, want := range map[time.Duration]string{42 * time.Second: "42 s", 9 * time.Minute: "9 min", 3*time.Hour + 40*time.Minute: "3 h 40 min", 155 * time.Hour: "6 days"} {
		if got := about(d); got != want {
			t.Errorf("about(%v) is %q, want %q", d, got, want)
		}
	}
}
