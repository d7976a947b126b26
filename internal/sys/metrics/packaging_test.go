package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const rulesFile, rulesTestFile, daysTestFile = "quorate.rules.yaml", "quorate_test.yaml", "quorate_days_test.yaml"

var (
	metricName = regexp.MustCompile(`\bquorate_\w+`)
	alertName  = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	// firing finds the alerts that a test expects to fire.
	firing         = regexp.MustCompile(`alertname: (\w+)\n +exp_alerts:\n`)
	runbookSection = regexp.MustCompile(`(?m)^## (\w+)$`)
	histogramPart  = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// checkNames fails if an expression names a metric that is not in the list.
func checkNames(t *testing.T, where, expression string) {
	t.Helper()
	for _, name := range metricName.FindAllString(expression, -1) {
		d, ok := Find(name)
		if base := histogramPart.ReplaceAllString(name, ""); !ok && base != name {
			d, ok = Find(base)
			ok = ok && d.Type == TypeHistogram
		}
		if !ok || d.Type == TypeHistogram && d.Name == name {
			t.Errorf("%s names %s, which no node shows", where, name)
		}
	}
}

func all(r *regexp.Regexp, text string) (found []string) {
	for _, m := range r.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestAlerts: an alert names metrics that exist, has a severity, a summary and a section in the
// runbook, and a test lets it fire.
func TestAlerts(t *testing.T) {
	rules := read(t, "packaging", "prometheus", rulesFile)
	alerts := all(alertName, rules)
	tests := read(t, "packaging", "prometheus", rulesTestFile) + read(t, "packaging", "prometheus", daysTestFile)
	if d := cmp.Diff(alerts, all(firing, tests)); d != "" || len(alerts) == 0 {
		t.Errorf("alerts that no test lets fire (-), and the other way round:\n%s", d)
	}
	for _, rule := range strings.Split(rules, "- alert: ")[1:] {
		name, _, _ := strings.Cut(rule, "\n")
		checkNames(t, name, rule)
		for _, want := range []string{"labels: {severity: ", "          summary: \"", "          runbook_url: https://github.com/quorate/quorate/blob/main/docs/runbook.md#" + strings.ToLower(name) + "\n"} {
			if !strings.Contains(rule, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
	runbook := read(t, "docs", "runbook.md")
	if d := cmp.Diff(alerts, all(runbookSection, runbook)); d != "" {
		t.Errorf("alerts without a section in the runbook (-), and the other way round:\n%s", d)
	}
	for _, section := range strings.Split(runbook, "\n## ")[1:] {
		name, _, _ := strings.Cut(section, "\n")
		for _, want := range []string{"\n**It means:** ", "\n**By itself:** ", "\n**Look:** ", "\n**Do:**", "\n**It is over when** "} {
			if strings.Count(section, want) != 1 {
				t.Errorf("runbook, %s: not one %q", name, want)
			}
		}
	}
}

// TestPromtool: promtool accepts the alerts, and their tests pass.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"check", "config", "prometheus.yaml"}, {"test", "rules", rulesTestFile, daysTestFile}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = filepath.Join(root, "packaging", "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// notMetrics are names in the documentation that begin like metrics and are none: accounts, a role, a function.
var notMetrics = []string{"quorate_dba", "quorate_admin", "quorate_tap", "quorate_clone", "quorate_router", "quorate_follow", "quorate_decompress"}

// TestDocs: the documentation names only metrics that exist.
func TestDocs(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	more, err2 := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if err != nil || err2 != nil || len(pages) == 0 {
		t.Fatal(pages, err, err2)
	}
	for _, page := range append(pages, more...) {
		if filepath.Base(page) == "bugs.md" { // it may name metrics that no longer exist
			continue
		}
		for _, name := range metricName.FindAllString(read(t, "docs", strings.TrimPrefix(page, filepath.Join(root, "docs"))), -1) {
			if !slices.Contains(notMetrics, name) {
				if _, ok := Find(name); !ok {
					t.Errorf("%s names %s, which no node shows", page, name)
				}
			}
		}
	}
}

// board has the parts of a Grafana dashboard that the test looks at.
type board struct {
	Panels []panel `json:"panels"`
}

type panel struct {
	ID      int    `json:"id"`
	Title   string `json:"title"`
	Type    string `json:"type"`
	Text    string `json:"description"`
	GridPos struct{ H, W, X, Y int }
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// TestBoard: the board's panels ask for metrics that exist, and do not overlap.
func TestBoard(t *testing.T) {
	var b board
	text := read(t, "packaging", "grafana", "quorate.json")
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	checkNames(t, "the board", text)
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, p := range b.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && (len(p.Targets) == 0 || p.Text == "") {
			t.Errorf("panel %d, %q: its id, its title, what it says or what it asks", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			if metricName.FindString(target.Expr) == "" && !strings.Contains(target.Expr, "up{") || !strings.Contains(target.Expr, `cluster="$cluster"`) {
				t.Errorf("%q asks for %q: not for a metric, or not of a cluster", p.Title, target.Expr)
			}
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if at[0] >= 24 || places[at] != "" {
					t.Fatalf("%q lies on %q, or beside the board", p.Title, places[at])
				}
				places[at] = p.Title
			}
		}
	}
	if len(b.Panels) < 10 {
		t.Errorf("%d panels", len(b.Panels))
	}
}
