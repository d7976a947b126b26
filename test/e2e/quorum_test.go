package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestQuorumIsTold loses one node after the other, and does what the status says.
func TestQuorumIsTold(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "StatusTells", f.quorumIsTold)
}

func (f *fixture) quorumIsTold(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	for i := range f.Len() {
		f.awaitTold(t, ctx, i, 0, "\nsurvives the failure of any 1 node: 3 of 3 voters run\nfailover now ≈ ")
	}
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)

	// One node is down: another failure is too much, unless only a mysqld fails.
	down, next := f.others(primary)[0], f.others(primary)[1]
	if err := f.KillBoth(down); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{primary, next} {
		f.awaitTold(t, ctx, i, 0, fmt.Sprintf("\nsurvives no further failure: 2 of 3 voters run, %s is not heard of\n", f.Name(down)),
			fmt.Sprintf("if %s's mysqld dies, %s takes over in ≈ ", f.Name(primary), f.Name(next)),
			fmt.Sprintf("; if %s's agent or host dies, no writes until ", f.Name(primary)))
		f.mustAnswer(t, ctx, i, "/readiness /health /liveness "+map[bool]string{true: "/primary", false: "/replica"}[i == primary])
	}
	if err := f.KillMysqld(primary); err != nil {
		t.Fatal(err)
	}
	if now, err := f.WaitPrimary(ctx, primary); err != nil || now != next {
		t.Fatalf("after the death of mysqld: %s, %v", f.Name(now), err)
	}
	l.awaitAcks(t, ctx, 100)
	if err := f.WaitReady(ctx, primary); err != nil {
		t.Fatal(err)
	}

	// Two nodes are down: the node that is left says so, and which agents to start.
	alone := primary
	if err := f.KillBoth(next); err != nil {
		t.Fatal(err)
	}
	f.toldAlone(t, ctx, alone, down, next)

	// It is enough to start one of them: then writes go on by themselves.
	st, err := f.Status(ctx, alone)
	if err != nil || st.Quorum == nil || len(st.Quorum.Start) != 2 || len(st.Quorum.Start[1]) != 1 {
		t.Fatalf("to be started: %+v, %v", st.Quorum, err)
	}
	started := slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return f.Name(i) == st.Quorum.Start[1][0] })
	if err := f.Start(ctx, started); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	f.awaitTold(t, ctx, alone, 0, "\nsurvives no further failure: 2 of 3 voters run, ")
	f.heal(t, ctx)
	l.stop(t)
	f.check(t, ctx)
	for i := range f.Len() {
		f.awaitTold(t, ctx, i, 0, "\nsurvives the failure of any 1 node: 3 of 3 voters run\n")
	}
}

// toldAlone: the node that is left says that it is alone and which agents to start, and promises nothing.
func (f *fixture) toldAlone(t *testing.T, ctx context.Context, alone, down, next int) {
	t.Helper()
	names := []string{f.Name(down), f.Name(next)}
	slices.Sort(names)
	f.awaitTold(t, ctx, alone, 3, "NO PRIMARY since ", fmt.Sprintf("2 of 3 voters must run, and 1 does: %s (%s are not heard of). Start the agent on %s: ",
		f.Name(alone), strings.Join(names, " and "), strings.Join(names, " or ")), f.Name(alone)+": no leader: waiting for a majority\n", " unknown ")
	f.mustAnswer(t, ctx, alone, "/health /liveness")
	page := f.page(t, ctx, alone)
	for _, line := range []string{`quorate_node_state{state="replica"} 1`, "quorate_mysqld_up 1", `quorate_log_state{state="ok"} 1`,
		"quorate_voters 3", "quorate_voters_reachable 1", "quorate_failures_survived -1"} {
		if !slices.Contains(page, line) {
			t.Errorf("there is no metric %s", line)
		}
	}
	if slices.ContainsFunc(page, func(line string) bool { return strings.HasPrefix(line, "quorate_lag_") }) {
		t.Error("a lag is shown that nobody can know")
	}
}

// awaitTold waits until the status that node i prints has all of these texts, and ends
// with a code.
func (f *fixture) awaitTold(t *testing.T, ctx context.Context, i, code int, texts ...string) {
	t.Helper()
	if err := devcluster.PollCommand(ctx, "the status of "+f.Name(i)+" tells so", func(ctx context.Context) (bool, string, error) {
		out, err := f.quorate(t, ctx, i, "status")
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		} else if err != nil {
			return false, "", err
		}
		missing := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return strings.Contains(out, text) })
		return got == code && len(missing) == 0, fmt.Sprintf("exit code %d, without %q:\n%s", got, missing, out), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// mustAnswer asks node i's health checks: those in yes must answer 200, the others must not.
func (f *fixture) mustAnswer(t *testing.T, ctx context.Context, i int, yes string) {
	t.Helper()
	for _, path := range []string{"/primary", "/replica", "/readiness", "/health", "/liveness"} {
		want := http.StatusServiceUnavailable
		if slices.Contains(strings.Fields(yes), path) {
			want = http.StatusOK
		}
		if resp := f.get(t, ctx, i, path); resp.StatusCode != want {
			t.Errorf("node %s: %s answers %d, want %d", f.Name(i), path, resp.StatusCode, want)
		}
	}
}

// page returns the lines of node i's page for Prometheus.
func (f *fixture) page(t *testing.T, ctx context.Context, i int) (lines []string) {
	t.Helper()
	for scan := bufio.NewScanner(f.get(t, ctx, i, "/metrics").Body); scan.Scan(); {
		lines = append(lines, scan.Text())
	}
	return lines
}

// get asks node i's API. The body can be read until the test ends.
func (f *fixture) get(t *testing.T, ctx context.Context, i int, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.APIAddr(i)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}
