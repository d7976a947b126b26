package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

func samplePlan() cluster.PurgePlan {
	return cluster.PurgePlan{
		Node: "a", UpTo: 100, Bytes: 128 << 20, Blocked: "entries 101-200 would go by retention: node b needs it from index 120 (durable mark)",
		Segments: []cluster.PurgeSegment{
			{First: 1, Last: 100, Bytes: 128 << 20, Written: time.Unix(0, 0), Purge: true, Why: "it is older than its retention (age 80h0m0s of 72h0m0s)"},
			{First: 101, Last: 200, Bytes: 64 << 20, Why: "kept: node b needs it from index 120 (durable mark)"},
		},
	}
}

const samplePurgeTable = `node a: 1 of 2 segments can go, 128MiB

ENTRIES  SIZE    LAST COMMIT           PLAN
1-100    128MiB  1970-01-01T00:00:00Z  goes: it is older than its retention (age 80h0m0s of 72h0m0s)
101-200  64MiB   -                     kept: node b needs it from index 120 (durable mark)

blocked: entries 101-200 would go by retention: node b needs it from index 120 (durable mark)
`

// purgeAgent answers like an agent and notes what it was asked.
func purgeAgent(t *testing.T, plan cluster.PurgePlan) (addr string, asked *[]string) {
	t.Helper()
	asked = new([]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*asked = append(*asked, r.Method+" "+r.URL.String()+" "+string(body))
		answer := plan
		answer.Done = r.Method == http.MethodPost && plan.UpTo != 0
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), asked
}

func TestLogPurge(t *testing.T) {
	done := "\nremoved 128MiB: the log of node a now begins at entry 101\n"
	for _, c := range []struct {
		name  string
		args  []string
		plan  cluster.PurgePlan
		asked []string
		out   string
	}{
		{"dry run", []string{"--dry-run"}, samplePlan(), []string{"GET /log/purge "}, samplePurgeTable},
		{"configured", nil, samplePlan(), []string{"GET /log/purge ", "POST /log/purge {}"}, samplePurgeTable + done},
		{"keep", []string{"--keep", "1KiB", "--yes"}, samplePlan(),
			[]string{"GET /log/purge?retention_size=1024 ", `POST /log/purge {"retention_size":1024}`}, samplePurgeTable + done},
		{"nothing", []string{"--keep", "0"}, cluster.PurgePlan{Node: "a"}, []string{"GET /log/purge?retention_size=0 "},
			"node a: 0 of 0 segments can go, 0B\n\nENTRIES  SIZE  LAST COMMIT  PLAN\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, asked := purgeAgent(t, c.plan)
			code, out, errs := run(t, append([]string{"log", "purge", "--addr", addr}, c.args...)...)
			if code != exitOK || errs != "" {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			if diff := cmp.Diff(c.asked, *asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.out, out); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogPurgeJSON(t *testing.T) {
	for _, c := range []struct {
		args []string
		done bool
	}{{[]string{"--dry-run"}, false}, {nil, true}} {
		addr, asked := purgeAgent(t, samplePlan())
		code, out, errs := run(t, append([]string{"log", "purge", "--json", "--addr", addr}, c.args...)...)
		var got cluster.PurgePlan
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
			t.Fatalf("%v: exit code %d, %v: %s", c.args, code, err, errs)
		}
		if got.Done != c.done || got.UpTo != 100 || len(*asked) != 1 {
			t.Errorf("%v: %+v, asked %q", c.args, got, *asked)
		}
	}
}

func TestLogPurgeFails(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--keep", "much"}, exitUsage, `--keep: "much" is not a size`},
		{[]string{"--addr", "127.0.0.1:1"}, exitFailure, "ask agent at 127.0.0.1:1"},
	} {
		code, out, errs := run(t, append([]string{"log", "purge"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d, %q, %q", c.args, code, out, errs)
		}
	}
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "": false, "n\n": false, "yesterday\n": false} {
		var out bytes.Buffer
		if got := confirm(strings.NewReader(answer), &out, "Sure? "); got != want || out.String() != "Sure? " {
			t.Errorf("%q: %t, printed %q", answer, got, out.String())
		}
	}
}
