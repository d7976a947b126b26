package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

func TestDemoRefusesFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--nodes", "2"}, {"--loggers", "2"}, {"--nodes", "1", "--loggers", "1"}, {"--nodes", "7"}, {"--duration", "1s"}, {"--writers", "0"}, {"--writers", "201"}, {"--what"}, {"extra"},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(t.Context(), append([]string{"demo"}, args...), &stdout, &stderr, Deps{}); code != exitUsage {
			t.Errorf("demo %v: exit %d, want %d; stderr %q", args, code, exitUsage, stderr.String())
		}
		if stdout.Len() != 0 || !strings.HasPrefix(stderr.String(), "quorate: ") {
			t.Errorf("demo %v: stdout %q, stderr %q", args, stdout.String(), stderr.String())
		}
	}
}

func TestDemoResult(t *testing.T) {
	t.Parallel()
	right := ledger.Result{Verdict: ledger.Verdict{Acknowledged: 48211, Unknown: 9, UnknownPresent: 4}}
	lost, diverged, nothing := right, right, ledger.Result{}
	lost.Lost = []ledger.Finding{{ID: 1}, {ID: 2}}
	diverged.Diverged = []ledger.Finding{{Detail: "x"}}
	for _, tc := range []struct {
		name string
		in   ledger.Result
		ok   bool
		line string
	}{
		{"right", right, true, "acknowledged 48211  lost 0  diverged 0  write gap 812 ms  rejoin 4.1 s"},
		{"lost", lost, false, "acknowledged 48211  lost 2  diverged 0  write gap 812 ms  rejoin 4.1 s"},
		{"diverged", diverged, false, "acknowledged 48211  lost 0  diverged 1  write gap 812 ms  rejoin 4.1 s"},
		{"nothing was written", nothing, false, "acknowledged 0  lost 0  diverged 0  write gap 812 ms  rejoin 4.1 s"},
	} {
		r := demoResult{WriteGapMs: 812, RejoinMs: 4140}
		r.fill(demoOptions{nodes: 3, writers: 8}, tc.in)
		if r.OK != tc.ok || r.line() != tc.line {
			t.Errorf("%s: ok %v, line %q", tc.name, r.OK, r.line())
		}
	}
}

// TestDemoOutput: with --json stdout has one object and nothing else, without
// it stdout has the closing line; neither has colour outside of a terminal.
func TestDemoOutput(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{true, false} {
		var stdout, stderr bytes.Buffer
		cmd := newDemoCommand()
		cmd.SetOut(&stdout)
		cmd.SetErr(&stderr)
		p := newDemoPrinter(cmd, asJSON)
		p.step("one %s", "step")
		p.bad("a row")
		r := demoResult{OK: true, Nodes: 3, Acknowledged: 5, WriteGapMs: 812}
		if err := p.result(r); err != nil {
			t.Fatal(err)
		}
		if text := stdout.String() + stderr.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "one step") {
			t.Errorf("json %v: printed %q", asJSON, text)
		}
		if !asJSON {
			if !strings.HasSuffix(stdout.String(), r.line()+"\n") || stderr.Len() != 0 {
				t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
			}
			continue
		}
		var got map[string]any
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
			t.Fatalf("stdout %q: %v", stdout.String(), err)
		}
		for _, name := range []string{"ok", "nodes", "duration_s", "mysql_version", "acknowledged", "unknown", "lost", "diverged",
			"write_gap_ms", "failover_ms", "rejoin_ms"} {
			if _, ok := got[name]; !ok {
				t.Errorf("the object has no %q: %v", name, got)
			}
		}
	}
}

// TestDemoCommandsWorkAnywhere: the commands that a kept demo prints work in any terminal, not only in
// the one where it was started.
func TestDemoCommandsWorkAnywhere(t *testing.T) {
	base := t.TempDir()
	d := &demo{opts: demoOptions{nodes: 3, dir: filepath.Join(t.TempDir(), "c")}, out: &demoPrinter{steps: io.Discard},
		install: &install.Installation{BaseDir: base, Mysql: base + "/bin/mysql", PluginDir: base}}
	if err := d.create(); err != nil {
		t.Fatal(err)
	}
	config := d.cluster.ConfigPath(1)
	text, err := os.ReadFile(config)
	if err != nil || !strings.Contains(string(text), "base_dir = "+strconv.Quote(base)) {
		t.Errorf("%v: the configuration does not name the MySQL of the demo:\n%s", err, text)
	}
	said := d.tryThis("b", config, 4711)
	for _, want := range []string{"export QUORATE_CONFIG=" + config + " ", "# node b, the primary now\n", "kill -9 4711 ", " status --watch ", " switchover ", base + "/bin/mysql "} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	for line := range strings.Lines(said) {
		program := strings.Fields(line)[0]
		if strings.HasPrefix(line, "  ") && !filepath.IsAbs(program) && program != "export" && program != "kill" {
			t.Errorf("it works in one directory alone: %s", line)
		}
	}
	t.Setenv(configVariable, config)
	var stdout, stderr bytes.Buffer
	if code := Main(t.Context(), []string{"switchover"}, &stdout, &stderr, Deps{}); code != exitFailure || !strings.Contains(stderr.String(), "is the agent running there") {
		t.Errorf("%d, %q", code, stderr.String())
	}
}

func TestShortTime(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		812*time.Millisecond + 600*time.Microsecond: "812 ms", time.Second: "1.0 s", 4140 * time.Millisecond: "4.1 s",
	} {
		if got := shortTime(d); got != want {
			t.Errorf("shortTime(%v) = %q, want %q", d, got, want)
		}
	}
}
