package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/lab/result"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, got, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("%s (-want +got; -rewrite if it is meant):\n%s", path, diff)
	}
}

func render(t *testing.T, res result.Results, write func(io.Writer, result.Results) error) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out, res); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestMarkdown(t *testing.T) {
	golden(t, "summary.md", render(t, synthetic(t, 1), Markdown))
}

func TestHTML(t *testing.T) {
	page := string(render(t, synthetic(t, 1), HTML))
	for _, bad := range []string{"<script", "http:", "https:", " src=", "url(", "@import", "NaN", "Inf", "ZgotmplZ", "<Deadlock>", "<timeout>", "%!"} {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("the page has %q: …%s…", bad, page[max(0, i-80):min(len(page), i+80)])
		}
	}
	for _, want := range []string{"&lt;Deadlock&gt; found", "The last line of the results is torn", `id="rpo"`, "needs mysqlrouter", "article ×1.47", "drained", "semisync / async, oltp_read_write, 4 threads, same-rack", "×0.91", "✗ 37", "no write was acknowledged within 120 s &lt;timeout&gt;</text>", "async workers=1", "group_replication_flow_control_mode"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	for _, image := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1) {
		d := xml.NewDecoder(strings.NewReader(image))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("an image is not well-formed: %v\n%.300s", err, image)
			}
		}
	}
	if n := strings.Count(page, "<svg"); n < 15 {
		t.Errorf("%d images, want one for each network, fault and size", n)
	}
}

// Results of any kind make a page: nothing at all, failures alone, one experiment.
func TestHTMLOfLittle(t *testing.T) {
	all := synthetic(t, 1)
	pages := map[string]result.Results{"nothing": {}, "facts": {Facts: all.Facts}}
	failed := all
	failed.Rows = nil
	for _, r := range all.Rows {
		r.Status, r.Reason, r.Metrics, r.Series, r.Events = result.Failed, "it did not come up", nil, nil, nil
		failed.Rows = append(failed.Rows, r)
	}
	pages["failures"] = failed
	for _, experiment := range result.Experiments() {
		one := result.Results{}
		for _, r := range all.Rows {
			if r.Experiment == experiment {
				one.Rows = append(one.Rows, r)
			}
		}
		pages[experiment] = one
		bare := result.Results{}
		for _, r := range one.Rows {
			r.Metrics, r.Series, r.Events, r.Text, r.RTT = nil, nil, nil, nil, nil
			bare.Rows = append(bare.Rows, r)
		}
		pages[experiment+" without figures"] = bare
	}
	for name, res := range pages {
		page := string(render(t, res, HTML))
		render(t, res, Markdown)
		if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || !strings.Contains(page, "</html>") {
			t.Errorf("%s: a broken page", name)
		}
		if name == "failures" {
			for _, r := range failed.Latest() {
				if !strings.Contains(page, "<li>"+r.Name()+" #") {
					t.Errorf("%s: %s is not there with its reason", name, r.Name())
				}
			}
		}
	}
}

func TestCompare(t *testing.T) {
	a, b := synthetic(t, 1), synthetic(t, 2)
	for i, r := range b.Rows {
		switch {
		case r.System == "mgr-multi" && r.Threads == 16 && r.Workload == "oltp_write_only" && r.Network == "same-rack":
			b.Rows[i].Metrics[result.TPS] *= 1.5
		case r.System == "quorate" && r.Threads == 64 && r.Workload == "oltp_write_only" && r.Network == "same-city":
			b.Rows[i].Metrics[result.TPS] *= 0.7
		case r.System == "quorate" && r.Experiment == result.RPO:
			b.Rows[i].Metrics[result.Lost] = 1
		case r.System == "router" && r.Network == "same-city":
			b.Rows[i].Status, b.Rows[i].Reason = result.OK, ""
		case r.System == "galera" && r.Experiment == result.Large:
			b.Rows[i].Workload = "1GB"
		}
	}
	var out bytes.Buffer
	if err := Compare(&out, Run{"before", a}, Run{"after", b}); err != nil {
		t.Fatal(err)
	}
	golden(t, "compare.md", out.Bytes())
	out.Reset()
	if err := Compare(&out, Run{"a", a}, Run{"b", a}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), ": 0 changed") || strings.Contains(out.String(), "##") {
		t.Errorf("a run compared with itself:\n%s", out.String())
	}
}

func TestArticles(t *testing.T) {
	a, err := loadArticles()
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Throughput) != 12 || len(a.Jitter) != 4 {
		t.Fatalf("%d tables of throughput and %d of jitter, want 12 and 4", len(a.Throughput), len(a.Jitter))
	}
	for _, c := range []struct {
		other, network, workload string
		threads                  int
		want                     float64 // percent more, as published
	}{
		{"mgr", "same-rack", "oltp_write_only", 1, 47.15},
		{"mgr-after", "same-rack", "oltp_write_only", 256, 4652.96},
		{"mgr", "two-city", "oltp_write_only", 16, 917.40},
		{"mgr-after", "three-city", "oltp_read_write", 64, 565.75},
		{"mgr", "same-city", "oltp_read_only", 4, -3.22},
	} {
		if got := (a.ratio(c.other, c.network, c.workload, c.threads) - 1) * 100; got < c.want-0.02 || got > c.want+0.02 {
			t.Errorf("%+v: %.2f %%", c, got)
		}
	}
	if r := a.ratio("galera", "same-rack", "oltp_write_only", 1) + a.ratio("mgr", "same-rack", "oltp_write_only", 2); r != 0 {
		t.Errorf("what was not published is %v", r)
	}
}

func TestSpread(t *testing.T) {
	if s := spreadOf([]float64{5, 1, 3}); s != (spread{3, 1, 3, 5}) {
		t.Errorf("of three: %+v", s)
	}
	if s := spreadOf([]float64{4, 1}); s != (spread{2, 1, 2.5, 4}) {
		t.Errorf("of two: %+v", s)
	}
	if s := spreadOf(nil); s.n != 0 {
		t.Errorf("of none: %+v", s)
	}
	a := spread{3, 10, 11, 12} // widened: 9 to 13
	for other, want := range map[spread]bool{{3, 14.1, 15, 16}: true, {3, 13.1, 14, 15}: false, {3, 1, 2, 4.5}: true, {3, 1, 11, 20}: false, {1, 14, 14, 14}: true, {1, 13.5, 13.5, 13.5}: false, {}: true} {
		if apart(a, other) != want || apart(other, a) != want {
			t.Errorf("apart(%v, %v) is not %v", a, other, want)
		}
	}
}

// Two runs of the same thing have nearly no figures that changed.
func TestNoiseIsNoChange(t *testing.T) {
	figures, changed := 0, 0
	for seed := range uint64(4) {
		var out bytes.Buffer
		if err := Compare(&out, Run{"a", synthetic(t, 10+2*seed)}, Run{"b", synthetic(t, 11+2*seed)}); err != nil {
			t.Fatal(err)
		}
		var n, c int
		if _, err := fmt.Sscanf(out.String()[strings.Index(out.String(), "\n\n")+2:], "%d figures are in both: %d changed", &n, &c); err != nil {
			t.Fatal(err)
		}
		figures, changed = figures+n, changed+c
	}
	if changed*50 > figures {
		t.Errorf("%d of %d figures are said to have changed, want at most one of fifty", changed, figures)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.1234: "0.123", 1.5: "1.5", 12.34: "12.3", 99.96: "100", 1234.5: "1\u202f235", 12: "12", 1e6: "1\u202f000\u202f000", -4321: "-4\u202f321", 0.9999: "1"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{45.4: "45 ms", 999.6: "1\u202f000 ms", 2300: "2.3 s", 60_000: "60 s", 200_000: "3 min 20 s"} {
		if got := duration(v); got != want {
			t.Errorf("duration(%v) is %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{1.47: "×1.47", 17.85: "×18", 3.24: "×3.2", 0.5: "×0.50", 0: "–"} {
		if got := times(v); got != want {
			t.Errorf("times(%v) is %q, want %q", v, got, want)
		}
	}
}

func TestAxes(t *testing.T) {
	for high, want := range map[float64][]float64{0: {0, 0.2, 0.4, 0.6, 0.8, 1}, 9: {0, 2, 4, 6, 8, 10}, 10: {0, 2, 4, 6, 8, 10}, 1100: {0, 500, 1000, 1500}} {
		if diff := cmp.Diff(want, ticksTo(high), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("ticks to %v (-want +got):\n%s", high, diff)
		}
	}
	a, ticks := decades(200, 0, 23, 5000)
	if a.low > 23 || a.high < 5000 || len(ticks) < 2 || len(ticks) > 8 {
		t.Errorf("axis from 23 to 5000: %+v, ticks %v", a, ticks)
	}
	if got := a.at(a.low); got != 200 {
		t.Errorf("the axis begins at %v", got)
	}
	if got := a.at(a.high); got > 1e-9 {
		t.Errorf("the axis ends at %v", got)
	}
	got := apartBy([]float64{10, 11, 12, 99}, 10, 0, 100)
	if diff := cmp.Diff([]float64{10, 20, 30, 99}, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got := apartBy([]float64{95, 97, 99}, 10, 0, 100); !cmp.Equal(got, []float64{80, 90, 100}) {
		t.Errorf("labels at the end: %v", got)
	}
}

// Text has a contrast of 4.5 to the background and what is drawn one of 3 (WCAG 2.1), in both schemes.
func TestContrast(t *testing.T) {
	dark := strings.Index(styleFile, "@media (prefers-color-scheme: dark)")
	printed := strings.Index(styleFile, "@media print")
	if dark < 0 || printed < dark {
		t.Fatal("the style is not in the order: light, dark, print")
	}
	for scheme, css := range map[string]string{"light": styleFile[:dark], "dark": styleFile[dark:printed]} {
		colors := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{3,6});`).FindAllStringSubmatch(css, -1) {
			colors[m[1]] = luminance(t, m[2])
		}
		for _, s := range append([]string{"fg", "soft", "good", "bad", "link"}, systemOrder...) {
			c, there := colors[s]
			least := 4.5
			if slices.Contains(systemOrder, s) {
				least = 3
			}
			a, b := max(c, colors["bg"]), min(c, colors["bg"])
			if got := (a + 0.05) / (b + 0.05); !there || got < least {
				t.Errorf("%s: --%s has a contrast of %.1f to the background, want %.1f", scheme, s, got, least)
			}
		}
	}
}

// luminance is WCAG's relative luminance.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	v, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	linear := func(c uint64) float64 {
		x := float64(c&255) / 255
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(v>>16) + 0.7152*linear(v>>8) + 0.0722*linear(v)
}

func throughputCell(tps ...float64) *cell {
	c := &cell{Cell: result.Cell{Experiment: result.Throughput, System: "mgr", Network: "same-rack", Workload: "oltp_write_only", Threads: 1}}
	for _, v := range tps {
		c.ok = append(c.ok, result.Row{Metrics: map[string]float64{result.TPS: v}})
	}
	return c
}

func TestRatioEntry(t *testing.T) {
	arts, err := loadArticles()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a, b               []float64
		value, class, note string
	}{
		{[]float64{200, 202, 204}, []float64{100, 101, 102}, "×2.0", "better", "article ×1.47"},
		{[]float64{100, 101, 102}, []float64{200, 202, 204}, "×0.50", "worse", "article ×1.47"},
		{[]float64{100, 101, 102}, []float64{100, 102, 104}, "≈ ×0.99", "same", "article ×1.47"},
		{[]float64{109}, []float64{100}, "≈ ×1.09", "same", "article ×1.47"},
		{[]float64{115}, []float64{100}, "×1.15", "", "article ×1.47"},
		{nil, []float64{100}, "", "", ""},
	} {
		e := ratioEntry(throughputCell(c.a...), throughputCell(c.b...), arts)
		if e.Value != c.value || e.Class != c.class || e.Note != c.note {
			t.Errorf("%v / %v is %q, %q, %q, want %q, %q, %q", c.a, c.b, e.Value, e.Class, e.Note, c.value, c.class, c.note)
		}
	}
}

// If one of several repetitions has lost something, the cell has a loss.
func TestCountsOfTheWorstRepetition(t *testing.T) {
	lost := compared{result.TPS, -1, true} // any metric will do
	if c, both := lost.compare(throughputCell(0, 0, 0), throughputCell(0, 0, 7)); !both || c == nil || c.better {
		t.Errorf("from none to one of three: %+v, %v", c, both)
	}
	if c, both := lost.compare(throughputCell(0, 0, 7), throughputCell(0, 0, 0)); !both || c == nil || !c.better {
		t.Errorf("from one of three to none: %+v, %v", c, both)
	}
	if c, both := lost.compare(throughputCell(0, 0, 0), throughputCell(0, 0)); !both || c != nil {
		t.Errorf("none and none: %+v, %v", c, both)
	}
	if e := badIfAny(throughputCell(0, 0, 7).metric(result.TPS)); e.Value != "✗ 7" || e.Class != "worse" {
		t.Errorf("lost in one of three: %+v", e)
	}
}

// A system that never took writes again is shown as such, and not as a system without a figure.
func TestNeverWritableAgain(t *testing.T) {
	row := result.Row{Repetition: 1, Status: result.OK, Cell: result.Cell{Experiment: result.RTO, System: "mgr", Network: "same-rack", Workload: "partition-primary"},
		Metrics: map[string]float64{result.GapMS: 9000}, Text: map[string]string{result.TextVerdict: "no write was acknowledged until the end"},
		Series: map[string]result.Series{result.SeriesAcked: {EveryMS: 100, Values: append(make([]float64, 90), 0)}}, Events: []result.Event{{AtMS: 100, What: "cut"}}}
	page := string(render(t, result.Results{Rows: []result.Row{row}}, HTML))
	for _, want := range []string{"✗ never", `class="gap"`, "until the end</title>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}

// TestNotBack: a node that did not come back is shown as such. Before, the cell was empty, or had the time of the
// repetition in which all came back, and nothing said that lost and diverged were not known.
func TestNotBack(t *testing.T) {
	back := result.Row{Metrics: map[string]float64{result.RestoredMS: 2000, result.Lost: 0, result.Diverged: 0}}
	away := result.Row{Metrics: map[string]float64{}, Text: map[string]string{result.TextNotBack: "not: node b is outside", result.TextLagging: "not: node b lags", result.TextNoWitness: "no node takes writes"}}
	for _, tc := range []struct {
		rows                         []result.Row
		restored, note, lost, differ string
	}{
		{[]result.Row{back}, "2 s", "", "✓ 0", "✓ 0"},
		{[]result.Row{away}, "✗ not back", "", "✗ not known", "✗ not known"},
		{[]result.Row{back, away, back}, "✗ not back", "1 of 3", "✗ not known", "✗ not known"},
	} {
		r := rtoRow("mgr", &cell{ok: tc.rows}).Cells
		if r[5].Value != tc.restored || r[5].Note != tc.note || r[9].Value != tc.lost || r[10].Value != tc.differ {
			t.Errorf("%d rows: back %q (%q), lost %q, diverged %q, want %+v", len(tc.rows), r[5].Value, r[5].Note, r[9].Value, r[10].Value, tc)
		}
	}
	lost := away
	lost.Metrics = map[string]float64{result.Lost: 3}
	if e := judged(&cell{ok: []result.Row{lost, away}}, result.Lost, result.TextNoWitness); e.Value != "✗ 3" {
		t.Errorf("lost in one repetition, not known in another: %+v", e)
	}
	if e := largeEntries(&cell{ok: []result.Row{away}})[3]; e.Value != "✗ not back" {
		t.Errorf("large: %+v", e)
	}
}

// TestControlHasToLose: a server that does not fsync and has lost nothing is no good news. Before, it got a green tick.
func TestControlHasToLose(t *testing.T) {
	c := &cell{Cell: result.Cell{Experiment: result.RPO, System: "standalone", Options: map[string]string{"no-sync": "true"}, Workload: "power-loss"}}
	for _, tc := range []struct {
		lost         []float64
		value, class string
	}{
		{[]float64{0, 0}, "✗ the control lost nothing: this table proves nothing", "worse"},
		{[]float64{25}, "25", ""},
		{[]float64{0, 10}, "5", ""},
	} {
		c.ok = nil
		for _, v := range tc.lost {
			c.ok = append(c.ok, result.Row{Metrics: map[string]float64{result.Lost: v}})
		}
		if e := rpoEntries(c)[1]; e.Value != tc.value || e.Class != tc.class {
			t.Errorf("lost %v: %q, %q, want %q, %q", tc.lost, e.Value, e.Class, tc.value, tc.class)
		}
	}
	c.Options = nil
	if e := rpoEntries(c)[1]; e.Value != "✗ 10" {
		t.Errorf("a server that fsyncs: %+v", e)
	}
}

// TestCompareSaysWhatIsNotKnown: a loss that a later run could not find out has a line. Before, the figure was only gone;
// and a control that lost nothing any more was called better.
func TestCompareSaysWhatIsNotKnown(t *testing.T) {
	row := func(system string, options map[string]string, metrics map[string]float64, text map[string]string) result.Row {
		return result.Row{Repetition: 1, Status: result.OK, Metrics: metrics, Text: text,
			Cell: result.Cell{Experiment: result.RPO, System: system, Options: options, Network: "same-rack", Workload: "power-loss"}}
	}
	control := map[string]string{"no-sync": "true"}
	a := []result.Row{row("mgr", nil, map[string]float64{result.Lost: 3}, nil), row("standalone", control, map[string]float64{result.Lost: 10}, nil)}
	b := []result.Row{row("mgr", nil, nil, map[string]string{result.TextNoWitness: "nobody"}), row("standalone", control, map[string]float64{result.Lost: 0}, nil)}
	var out bytes.Buffer
	if err := Compare(&out, Run{"a", result.Results{Rows: a}}, Run{"b", result.Results{Rows: b}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Other status: 2", "ok → ok, lost not known", "ok → ok, the control lost nothing"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the comparison does not have %q:\n%s", want, out.String())
		}
	}
}
