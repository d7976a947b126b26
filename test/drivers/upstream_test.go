package drivers

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// leftOut lists the upstream tests that fail for a reason that is not quorate's.
//
//go:embed upstream.txt
var leftOut string

// goDriver is a module whose tests come with it.
const goDriver = "github.com/go-sql-driver/mysql"

// upstream runs the suites that the drivers' authors publish with them, at one node's address. npm's mysql2 and Maven's
// Connector/J come without theirs.
func (c *testCluster) upstream(t *testing.T, dir, port string, by way) {
	by.write, _, _ = strings.Cut(by.write, ",")
	c.serves(t, by)
	t.Run("go-sql-driver", func(t *testing.T) {
		judge(t, "go-sql-driver", port, c.undisturbed(t, func() []result { return c.goUpstream(t, by) }))
	})
	t.Run("PyMySQL", func(t *testing.T) {
		judge(t, "PyMySQL", port, c.undisturbed(t, func() []result {
			return c.suite(t, dir, by, filepath.Join(dir, "python/bin/python"), "upstream.py")
		}))
	})
}

// undisturbed runs a suite that knows nothing of failovers: once more, if the primary has changed meanwhile, as on a machine that
// others keep busy.
func (c *testCluster) undisturbed(t *testing.T, run func() []result) []result {
	t.Helper()
	for tries := 1; ; tries++ {
		before := c.lastChange(t)
		all := run()
		if after := c.lastChange(t); after == before || tries == 3 {
			return all
		}
		t.Log("the primary has changed: the suite is run again")
	}
}

// lastChange says when and how the primary changed last.
func (c *testCluster) lastChange(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	primary, err := c.WaitAllReady(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Status(ctx, primary)
	if err != nil || st.LastChange == nil {
		t.Fatalf("the primary's last change is not known: %v", err)
	}
	return fmt.Sprintf("%+v", *st.LastChange)
}

// goUpstream runs the tests of go-sql-driver that need a server: those that are skipped where none answers.
func (c *testCluster) goUpstream(t *testing.T, by way) []result {
	t.Helper()
	var names []string
	for _, r := range goTest(t, ".", "MYSQL_TEST_ADDR=127.0.0.1:1") {
		if r.skipped {
			names = append(names, r.name)
		}
	}
	database := "drivers"
	if by.split { // the suite appends its own "?timeout=30s", which ends up in the attribute
		database += "?tls=skip-verify&connectionAttributes=upstream:1"
	}
	user, password := c.Application()
	return goTest(t, "^("+strings.Join(names, "|")+")$", "MYSQL_TEST_ADDR="+by.write, "MYSQL_TEST_DBNAME="+database,
		"MYSQL_TEST_USER="+user, "MYSQL_TEST_PASS="+password)
}

// goTest runs tests of go-sql-driver, and says what became of them; of a test with subtests, of these.
func goTest(t *testing.T, run string, env ...string) (all []result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	// That test asks an address on the internet, and no server.
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-skip=^TestConnectorReturnsTimeout$", "-run="+run, goDriver)
	cmd.Env = append(os.Environ(), env...)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output() // it fails where a test does
	said, parents := map[string]string{}, map[string]bool{}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var e struct{ Action, Test, Output string }
		if err := lines.Decode(&e); err != nil {
			t.Fatalf("%v: %s", err, errors.String())
		}
		if e.Test == "" {
			continue
		}
		if i := strings.LastIndex(e.Test, "/"); i > 0 {
			parents[e.Test[:i]] = true
		}
		switch e.Action {
		case "output":
			said[e.Test] += e.Output
		case "pass", "skip", "fail":
			r := result{name: e.Test, skipped: e.Action == "skip"}
			if e.Action == "fail" {
				r.err = fmt.Sprintf("%.600s", said[e.Test])
			}
			if !parents[e.Test] {
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no test was run: %v: %s", err, errors.String())
	}
	return all
}

// judge compares what became of an upstream suite with the list of what is left out. What is listed has to fail, so that the
// list stays true; where its reason begins with "flaky:" it may pass.
func judge(t *testing.T, suite, port string, all []result) {
	t.Helper()
	reasons := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(leftOut)); lines.Scan(); {
		f := strings.SplitN(lines.Text(), " ", 4)
		if len(f) == 4 && f[0] == suite && (f[1] == port || f[1] == "both") {
			reasons[f[2]] = f[3]
		}
	}
	passed, skipped, failed := 0, 0, 0
	for _, r := range all {
		name, _, _ := strings.Cut(r.name, " ") // where it failed, the reason is behind it
		reason, listed := reasons[name]
		delete(reasons, name)
		switch {
		case r.skipped:
			skipped++
			t.Logf("it skips %s", r.name)
			if listed {
				t.Errorf("%s is in upstream.txt, and skipped", r.name)
			}
		case r.err == "":
			passed++
			if listed && !strings.HasPrefix(reason, "flaky:") {
				t.Errorf("%s passes: take it out of upstream.txt (%s)", r.name, reason)
			}
		case listed:
			failed++
		default:
			t.Errorf("%s: %s", name, r.err)
		}
	}
	for name := range reasons {
		t.Errorf("%s is in upstream.txt, and was not run", name)
	}
	t.Logf("%d of %d passed, %d are left out, %d skip themselves", passed, len(all), failed, skipped)
	if passed < 100 {
		t.Errorf("the suite has ended early, or skipped too much")
	}
}
