package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

func samplePlan() cluster.PurgePlan {
	return cluster.PurgePlan{
		Node: "a", UpTo: 100, Bytes: 128 << 20, Blocked: "entries 101-200 would go by retention: node b needs it from index 120 (durable mark)",
		Segments: []cluster.PurgeSegment{
			{First: 1, Last: 100, Bytes: 128 << 20, Written: time.Unix(0, 0), Purge: true, Why: "it is older than its retention (age 3d8h of 3d)"},
			{First: 101, Last: 200, Bytes: 64 << 20, Why: "kept: node b needs it from index 120 (durable mark)"},
		},
	}
}

const samplePurgeTable = `node a: 1 of 2 segments can go, 128MiB

ENTRIES  SIZE    LAST COMMIT              PLAN
1-100    128MiB  1970-01-01 00:00:00 UTC  goes: it is older than its retention (age 3d8h of 3d)
101-200  64MiB   -                        kept: node b needs it from index 120 (durable mark)

blocked: entries 101-200 would go by retention: node b needs it from index 120 (durable mark)
`

func TestLogPurge(t *testing.T) {
	var asked control.Request
	done := "\nremoved 128MiB: the log of node a now begins at entry 101\n"
	for _, c := range []struct {
		name  string
		args  []string
		plan  cluster.PurgePlan
		asked string
		out   string
	}{
		{"dry run", []string{"--dry-run"}, samplePlan(), `{"dry_run":true}`, samplePurgeTable},
		{"archive", []string{"--dry-run"}, cluster.PurgePlan{Node: "a", Note: "the archive lacks them"}, `{"dry_run":true}`,
			"node a: 0 of 0 segments can go, 0B\n\nENTRIES  SIZE  LAST COMMIT  PLAN\n\nnote: the archive lacks them\n"},
		{"configured", []string{"--yes"}, samplePlan(), `{"up_to":100}`, samplePurgeTable + done},
		{"keep", []string{"--keep", "1KiB", "--yes"}, samplePlan(), `{"retention_size":1024,"up_to":100}`, samplePurgeTable + done},
		{"nothing", []string{"--keep", "0", "--yes"}, cluster.PurgePlan{Node: "a"}, `{"retention_size":0,"dry_run":true}`,
			"node a: 0 of 0 segments can go, 0B\n\nENTRIES  SIZE  LAST COMMIT  PLAN\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.plan.Done = c.plan.UpTo != 0
			addr := agentThat(t, &control.Answer{Code: control.CodeOK, Result: resultOf(t, c.plan)}, &asked)
			code, out, errs := run(t, append([]string{"log", "purge", "--addr", addr}, c.args...)...)
			if code != exitOK || errs != "" {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			if asked.Name != "log.purge" || string(asked.Args) != c.asked {
				t.Errorf("asked %s %s, want %s", asked.Name, asked.Args, c.asked)
			}
			if diff := cmp.Diff(c.out, out); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLogPurgeOfOlderAgent: an older agent refuses the bound, because it could not obey it.
func TestLogPurgeOfOlderAgent(t *testing.T) {
	addr := onSocket(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(sampleStatus())
			return
		}
		var asked control.Request
		_ = json.NewDecoder(r.Body).Decode(&asked)
		answer := control.Answer{Code: control.CodeOK, Result: resultOf(t, samplePlan())}
		if strings.Contains(string(asked.Args), "up_to") {
			answer = control.Answer{Code: control.CodeInvalid, Error: `read the arguments of log.purge: json: unknown field "up_to"`}
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	code, _, errs := run(t, "log", "purge", "--yes", "--addr", addr)
	if code != exitUsage || !strings.Contains(errs, "an agent of an older quorate cannot obey this, and nothing was done") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestLogPurgeJSON: with --json the agent gets one request, and its plan is printed.
func TestLogPurgeJSON(t *testing.T) {
	var asked control.Request
	addr := agentThat(t, &control.Answer{Code: control.CodeOK, Result: resultOf(t, samplePlan())}, &asked)
	for want, args := range map[string][]string{`{"dry_run":true}`: {"--dry-run"}, "{}": {"--yes"}} {
		code, out, errs := run(t, append([]string{"log", "purge", "--json", "--addr", addr}, args...)...)
		var got cluster.PurgePlan
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
			t.Fatalf("%v: exit code %d, %v: %s", args, code, err, errs)
		}
		if got.UpTo != 100 || string(asked.Args) != want {
			t.Errorf("%v: %+v, asked %s", args, got, asked.Args)
		}
	}
}

func TestLogPurgeFails(t *testing.T) {
	if code, out, errs := run(t, "log", "purge", "--keep", "much"); code != exitUsage || out != "" || !strings.Contains(errs, `--keep: "much" is not a size`) {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "": false, "n\n": false, "yesterday\n": false} {
		var out bytes.Buffer
		if got := confirm(t.Context(), strings.NewReader(answer), &out, "Sure? "); got != want || out.String() != "Sure? " {
			t.Errorf("%q: %t, printed %q", answer, got, out.String())
		}
	}
}

// TestSignalEndsQuestion: a signal ends a question, and nothing is done.
func TestSignalEndsQuestion(t *testing.T) {
	in, person := io.Pipe() // nobody types
	defer func() { _ = person.Close() }()
	ctx, signal := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, signal)
	if confirm(ctx, in, io.Discard, "Sure? ") {
		t.Error("it was taken for a yes")
	}
	seen := recovery.Verdict{Situation: recovery.Situation{Cluster: "shop"}}
	if refused, err := ask(ctx, judged{v: seen}, seen, in, io.Discard); refused == "" || err != nil {
		t.Errorf("recover: %q, %v", refused, err)
	}
}
