package result

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func row(threads, repetition int, status Status) Row {
	return Row{
		Run: "r1", Repetition: repetition, Started: time.Unix(1_800_000_000, 0).UTC(), Seconds: 10, Status: status,
		Cell:    Cell{Experiment: Throughput, System: "async", Options: map[string]string{"workers": "1", "compress": "true"}, Network: "two-city", Workload: "oltp_write_only", Threads: threads},
		Metrics: map[string]float64{TPS: 1234.5}, Series: map[string]Series{SeriesTPS: {EveryMS: 1000, Values: []float64{1, 2}}},
	}
}

func TestNames(t *testing.T) {
	c := row(16, 1, OK).Cell
	if got, want := c.Name(), "throughput/oltp_write_only/two-city/async,compress=true,workers=1/16"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
	if got, want := Key(c, 3), c.Name()+"#3"; got != want {
		t.Errorf("key %q, want %q", got, want)
	}
	for _, text := range []string{c.Variant(), c.Label()} {
		system, options, err := ParseVariant(text)
		if err != nil || system != c.System || !cmp.Equal(options, c.Options) {
			t.Errorf("parse %q: %q %v %v", text, system, options, err)
		}
	}
	for _, bad := range []string{"", " , ", "async workers", "async =1", "async workers="} {
		if _, _, err := ParseVariant(bad); err == nil {
			t.Errorf("parse %q: no error", bad)
		}
	}
}

func TestAppendAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrLocked) {
		t.Errorf("open a second time: %v, want ErrLocked", err)
	}
	facts := Facts{ID: "f1", Run: "r1", Versions: map[string]string{"mysqld": "8.0.30"}, Settings: []Setting{{"sync_binlog", "1", "durable"}}}
	if err := errors.Join(f.AppendFacts(facts), f.Append(row(1, 1, OK)), f.Append(row(4, 1, Failed)), f.Close()); err != nil {
		t.Fatal(err)
	}
	// A crash tears the last line, and the next run goes on.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < 200; cut += 13 {
		if err := os.WriteFile(path, data[:len(data)-cut], 0o644); err != nil {
			t.Fatal(err)
		}
		torn, err := ReadFile(path)
		if err != nil || !torn.Torn || len(torn.Rows) != 1 {
			t.Fatalf("%d bytes cut off: torn %v, %d rows, %v", cut, torn.Torn, len(torn.Rows), err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if cutOff, err := ReadFile(path); err != nil || cutOff.Torn {
			t.Fatalf("%d bytes cut off and opened: torn %v, %v", cut, cutOff.Torn, err)
		}
		if err := errors.Join(f.Append(row(4, 1, Failed)), f.Close()); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := Results{Rows: []Row{row(1, 1, OK), row(4, 1, Failed)}, Facts: []Facts{facts}}
		want.Facts[0].Schema, want.Facts[0].Kind = Schema, kindFacts
		for i := range want.Rows {
			want.Rows[i].Schema, want.Rows[i].CellName = Schema, want.Rows[i].Name()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%d bytes cut off (-want +got):\n%s", cut, diff)
		}
	}
}

func TestAppendKeepsARowWithNaN(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	r := row(1, 1, OK)
	r.Metrics[CVPercent] = math.NaN()
	r.Series["long"] = Series{EveryMS: 1, Values: make([]float64, valuesMax+1)}
	if err := errors.Join(f.Append(r), f.Close()); err != nil {
		t.Fatal(err)
	}
	res, err := ReadFile(path)
	if err != nil || len(res.Rows) != 1 {
		t.Fatalf("%d rows, %v", len(res.Rows), err)
	}
	got := res.Rows[0]
	if _, there := got.Metric(CVPercent); there || got.Metrics[TPS] != 1234.5 || got.Text[droppedValues] != "cv_percent, series long" {
		t.Errorf("metrics %v, text %v", got.Metrics, got.Text)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"garbage in the middle": "{\"schema\":1}\nx\n{\"schema\":1}\n",
		"a later schema":        "{\"schema\":2}\n",
		"an unknown kind":       "{\"schema\":1,\"kind\":\"x\"}\n",
		"a line without end":    strings.Repeat("x", lineBytesMax+1),
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v, want an error that names the line", name, err)
		}
	}
}

func TestLatestAndDone(t *testing.T) {
	first, second := row(1, 1, OK), row(1, 1, OK)
	first.Run, second.Run = "a", "b"
	res := Results{Rows: []Row{row(4, 1, Failed), first, second, row(4, 1, Skipped), row(1, 1, Failed), row(16, 1, OK)}}
	var got []string
	for _, r := range res.Latest() {
		got = append(got, r.Run+" "+r.Key()+" "+string(r.Status))
	}
	p := "throughput/oltp_write_only/two-city/async,compress=true,workers=1/"
	if diff := cmp.Diff([]string{"r1 " + p + "4#1 skipped", "b " + p + "1#1 ok", "r1 " + p + "16#1 ok"}, got); diff != "" {
		t.Errorf("latest (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{p + "1#1": true, p + "16#1": true}, res.Done()); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
}

// TestLatestCountsWhatItHides: an ok row does not hide that the cell has failed before. A row that is written again with
// a note does not count as another attempt.
func TestLatestCountsWhatItHides(t *testing.T) {
	attempt := func(second int, status Status) Row {
		r := row(1, 1, status)
		r.Started = r.Started.Add(time.Duration(second) * time.Second)
		return r
	}
	noted := attempt(1, Failed)
	noted.Text = map[string]string{TextTeardown: "x"}
	for _, tc := range []struct {
		name   string
		rows   []Row
		status Status
		want   int
	}{
		{"ok at once", []Row{attempt(0, OK)}, OK, 0},
		{"failed once", []Row{attempt(0, Failed), attempt(1, OK)}, OK, 1},
		{"failed twice, once with a note", []Row{attempt(0, Failed), attempt(1, Failed), noted, attempt(2, OK)}, OK, 2},
		{"failed after it was ok", []Row{attempt(0, OK), attempt(1, Failed)}, OK, 1},
		{"ok with a note", []Row{attempt(0, OK), attempt(0, OK)}, OK, 0},
		{"skipped is not failed", []Row{attempt(0, Skipped), attempt(1, OK)}, OK, 0},
		{"failed, then again", []Row{attempt(0, Failed), attempt(1, Failed)}, Failed, 1},
	} {
		got := Results{Rows: tc.rows}.Latest()
		if len(got) != 1 || got[0].Status != tc.status || got[0].FailedBefore != tc.want {
			t.Errorf("%s: %d rows, %s, %d failed before; want 1, %s, %d", tc.name, len(got), got[0].Status, got[0].FailedBefore, tc.status, tc.want)
		}
	}
}
