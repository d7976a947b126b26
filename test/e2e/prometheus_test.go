package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/sys/subprocess"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// prometheus is a stock Prometheus that scrapes a cluster every second, with the files of packaging/prometheus.
type prometheus struct{ addr string }

// errNoAnswer: Prometheus refuses a question.
var errNoAnswer = errors.New("prometheus does not answer")

// prometheus starts one; nil = it is not installed.
func (f *fixture) prometheus(t *testing.T) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return nil
	}
	dir := t.TempDir()
	places := []string{"_interval: 15s", "_interval: 1s"}
	for i := range f.Len() {
		places = append(places, fmt.Sprintf("10.0.0.%d:7401", i+1), f.APIAddr(i))
	}
	waits := regexp.MustCompile(`(?m)^( +for): .*`) // an alert of 1 m is raised after 1 s
	for name, edit := range map[string]func(string) string{
		"prometheus.yaml":    strings.NewReplacer(places...).Replace,
		"quorate.rules.yaml": func(text string) string { return waits.ReplaceAllString(text, "$1: 1s") },
	} {
		text, err := os.ReadFile(filepath.Join("../../packaging/prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(edit(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &prometheus{f.freeAddress(t)}
	cmd := exec.Command(program, "--config.file", filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path", filepath.Join(dir, "tsdb"),
		"--web.listen-address", p.addr, "--log.level", "error")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	process, err := subprocess.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Kill() })
	return p
}

// ask reads the data of an answer of Prometheus' API.
func (p *prometheus) ask(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct{ Data any }{into}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w %s: %s", errNoAnswer, path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(&answer)
}

// targets are the errors of its scrapes, "" for each agent that answers.
func (p *prometheus) targets(ctx context.Context) (failures []string, err error) {
	var found struct {
		ActiveTargets []struct{ Health, LastError string }
	}
	err = p.ask(ctx, "targets", &found)
	for _, t := range found.ActiveTargets {
		if t.Health != "up" {
			t.LastError = t.Health + t.LastError
		}
		failures = append(failures, t.LastError)
	}
	return failures, err
}

// alerts are the alerts that fire, and the rules that it cannot evaluate.
func (p *prometheus) alerts(ctx context.Context) (firing, broken []string, err error) {
	var found struct {
		Groups []struct {
			Rules []struct{ Name, State, Health, LastError string }
		}
	}
	err = p.ask(ctx, "rules", &found)
	for _, g := range found.Groups {
		for _, r := range g.Rules {
			if r.State == "firing" {
				firing = append(firing, r.Name)
			}
			if r.Health != "ok" {
				broken = append(broken, r.Name+": "+r.Health+" "+r.LastError)
			}
		}
	}
	return firing, broken, err
}

// awaitAlert waits until an alert fires, or does so no more.
func (p *prometheus) awaitAlert(t *testing.T, ctx context.Context, name string, fires bool) {
	t.Helper()
	if err := devcluster.Poll(ctx, fmt.Sprintf("alert %s fires: %v", name, fires), func(ctx context.Context) (bool, string, error) {
		firing, broken, err := p.alerts(ctx)
		return err == nil && slices.Contains(firing, name) == fires, fmt.Sprint(firing, broken, err), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// mayBeEmpty are panels of the board that may show nothing where all is well, or nobody takes backups.
var mayBeEmpty = []string{"Not as it should be", "Certificates end in", "Age of the newest full backup", "The archive lacks"}

// check: all agents are scraped without an error, each rule can be evaluated, and each panel of the board shows something.
func (p *prometheus) check(t *testing.T, ctx context.Context, nodes int) {
	t.Helper()
	if err := devcluster.Poll(ctx, "prometheus scrapes all agents", func(ctx context.Context) (bool, string, error) {
		failures, err := p.targets(ctx)
		return err == nil && len(failures) == nodes && strings.Join(failures, "") == "", fmt.Sprint(failures, err), nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, broken, err := p.alerts(ctx); err != nil || len(broken) > 0 {
		t.Errorf("rules that cannot be evaluated: %s, %v", broken, err)
	}
	text, err := os.ReadFile("../../packaging/grafana/quorate.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			asked++
			expr := strings.NewReplacer("$cluster", "shop", "$__rate_interval", "20s").Replace(target.Expr)
			var found struct{ Result []json.RawMessage }
			if err := p.ask(ctx, "query?"+url.Values{"query": {expr}}.Encode(), &found); err != nil {
				t.Errorf("%s: %v", panel.Title, err)
			} else if len(found.Result) == 0 && !slices.Contains(mayBeEmpty, panel.Title) {
				t.Errorf("%s: nothing is found by %s", panel.Title, expr)
			}
		}
	}
	if asked < 20 {
		t.Errorf("the board asks %d questions", asked)
	}
}
