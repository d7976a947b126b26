package report

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/lab/result"
)

func loaded(system string, tps, effective float64, n int) *cell {
	c := &cell{Cell: result.Cell{Experiment: result.Throughput, System: system, Network: "two-city", Workload: "oltp_write_only", Threads: 16}}
	for i := range n {
		by := 1 + float64(i)/1000
		c.ok = append(c.ok, result.Row{Cell: c.Cell, Repetition: i + 1, Status: result.OK, Metrics: map[string]float64{result.TPS: tps * by, result.EffectiveTPS: effective * by}})
	}
	return c
}

// TestRatiosAreOfWorkDone: a rival that leaves its replicas behind does not count as faster. Two repetitions are too
// few for a colour.
func TestRatiosAreOfWorkDone(t *testing.T) {
	for _, tc := range []struct {
		name               string
		a, b               *cell
		value, note, class string
	}{
		{"effective", loaded(ours, 1000, 1000, 3), loaded("async", 1000, 500, 3), times(2), "raw " + times(1), "better"},
		{"the same by both", loaded(ours, 1000, 500, 3), loaded("async", 1000, 500, 3), "≈ " + times(1), "", "same"},
		{"two repetitions", loaded(ours, 500, 500, 2), loaded("async", 1000, 1000, 3), times(0.5), "", ""},
		{"three", loaded(ours, 500, 500, 3), loaded("async", 1000, 1000, 3), times(0.5), "", "worse"},
	} {
		if e := divided(tc.a, tc.b); e.Value != tc.value || e.Note != tc.note || e.Class != tc.class {
			t.Errorf("%s: %q %q %q, want %q %q %q", tc.name, e.Value, e.Note, e.Class, tc.value, tc.note, tc.class)
		}
	}
}

// TestSingleLeaderHasRatios: there is also a ratio to Group Replication with its best setting.
func TestSingleLeaderHasRatios(t *testing.T) {
	var rows []result.Row
	best := loaded("mgr", 800, 800, 3)
	best.Options = map[string]string{"paxos-single-leader": "true"}
	for _, c := range []*cell{loaded(ours, 1000, 1000, 3), loaded("mgr", 500, 500, 3), best} {
		for _, r := range c.ok {
			r.Options = c.Options
			rows = append(rows, r)
		}
	}
	found := map[string]string{}
	for _, r := range articleTable(cellsOf(rows), "oltp_write_only", articles{}).Rows {
		if r.Class == "ratio" {
			found[r.Name] = r.Cells[0].Value
		}
	}
	if found["quorate / mgr"] != times(2) || found["quorate / mgr paxos-single-leader=true"] != times(1.25) {
		t.Errorf("ratio rows %v", found)
	}
}

// TestFailuresBeforeAreShown: failures before a successful attempt are shown, in the cell and at the head of the report.
func TestFailuresBeforeAreShown(t *testing.T) {
	ok := loaded(ours, 1000, 1000, 1).ok[0]
	failed := ok
	failed.Status, failed.Metrics = result.Failed, nil
	ok.Run = "second"
	res := result.Results{Rows: []result.Row{failed, ok}}
	if page := string(render(t, res, HTML)); !strings.Contains(page, "1 failed before") || !strings.Contains(page, "tried again</dt><dd>1</dd>") {
		t.Error("the page hides the failure")
	}
	if text := string(render(t, res, Markdown)); !strings.Contains(text, "1 failed before") || !strings.Contains(text, "1 attempts failed before") {
		t.Error("the summary hides the failure")
	}
}
