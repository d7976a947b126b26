package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

// nodesThat serves as an agent through which the nodes in answers answer a request for their sessions, and other
// nodes do not. The status has an unreachable node c.
func nodesThat(t *testing.T, answers map[string]cluster.Sessions, asked *sync.Map) (addr string) {
	t.Helper()
	return onSocket(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(topStatus(1))
			return
		}
		var request control.Request
		var args cluster.SessionsRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		if err := json.Unmarshal(request.Args, &args); err != nil || request.Name != "sessions" {
			t.Errorf("%s: %v", request.Name, err)
		}
		asked.Store(args.Node, args.Last)
		answer := control.Answer{Code: control.CodeFailed, Error: "node " + args.Node + " cannot be asked"}
		if s, ok := answers[args.Node]; ok {
			answer = control.Answer{Code: control.CodeOK, Result: resultOf(t, s)}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// sampleSessions returns the answers of the nodes a, the primary, and b at the same time.
func sampleSessions() map[string]cluster.Sessions {
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 12, 0, second, 0, time.UTC) }
	routed := func(client, port, node, target, stream, server string, second int) cluster.Session {
		return cluster.Session{Client: client, Port: port, State: cluster.SessionRouted, Node: node, Target: target, Stream: stream, Server: server, Since: at(second)}
	}
	return map[string]cluster.Sessions{
		"a": {Node: "a", Clients: 2, Newest: []cluster.Session{
			routed("10.0.0.9:1", "read_write", "a", "a", "", "127.0.0.1:71", 1),
			routed("", "read_write", "b", "a", "10.0.0.2:81", "127.0.0.1:72", 2),
			routed("", "read_write", "c", "a", "10.0.0.3:82", "127.0.0.1:73", 4),
			routed("10.0.0.9:2", "read_only", "a", "b", "10.0.0.1:83", "", 5),
		}},
		"b": {Node: "b", Clients: 2, Newest: []cluster.Session{
			routed("10.0.0.8:1", "read_write", "b", "a", "10.0.0.2:81", "", 2),
			routed("", "read_only", "a", "b", "10.0.0.1:83", "127.0.0.1:74", 5),
			{Client: "[2001:db8::7]:5", Port: "read_write", State: cluster.SessionHeld, Node: "b", Since: at(3)},
		}},
	}
}

const sessionsHead = "CLIENT           PORT  NODE  TARGET  STATE   SINCE                    SERVER SEES\n"

// TestSessions: what several nodes know of a client is put together. What is missing is said.
func TestSessions(t *testing.T) {
	var asked sync.Map
	addr := nodesThat(t, sampleSessions(), &asked)
	code, out, errs := run(t, "sessions", "--addr", addr)
	want := sessionsHead +
		`10.0.0.9:1       rw    a     a       routed  2026-01-02 12:00:01 UTC  127.0.0.1:71
10.0.0.8:1       rw    b     a       routed  2026-01-02 12:00:02 UTC  127.0.0.1:72
[2001:db8::7]:5  rw    b     -       held    2026-01-02 12:00:03 UTC  -
-                rw    c     a       routed  2026-01-02 12:00:04 UTC  127.0.0.1:73
10.0.0.9:2       ro    a     b       routed  2026-01-02 12:00:05 UTC  127.0.0.1:74
c has not answered: node a does not hear of it
`
	if d := cmp.Diff(want, out); code != exitFailure || errs != "" || d != "" {
		t.Errorf("%d, %q (-want +got):\n%s", code, errs, d)
	}
	if last, ok := asked.Load("b"); !ok || last != 50 {
		t.Errorf("asked for %v", last)
	}
	if _, ok := asked.Load("c"); ok {
		t.Error("a node was asked that is not heard of")
	}
	_, out, _ = run(t, "sessions", "--addr", addr, "--last", "2")
	if d := cmp.Diff([]string{"3 older clients of 4 are left out: --last shows more", "c has not answered: node a does not hear of it", ""}, strings.Split(out, "\n")[3:]); d != "" {
		t.Errorf("the newest two (-want +got):\n%s", d)
	}
	code, out, _ = run(t, "sessions", "--addr", addr, "--json")
	var v sessionsView
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitFailure || len(v.Sessions) != 5 || v.Clients != 4 || v.LeftOut != 0 || len(v.Unanswered) != 1 {
		t.Errorf("--json: %d, %v, %s", code, err, out)
	}
}

// TestSessionsOfOneNode: a client that came through another node is shown without an address.
func TestSessionsOfOneNode(t *testing.T) {
	var asked sync.Map
	addr := nodesThat(t, sampleSessions(), &asked)
	code, out, _ := run(t, "sessions", "a", "--addr", addr)
	want := strings.ReplaceAll(sessionsHead, "       PORT", "  PORT") +
		`10.0.0.9:1  rw    a     a       routed  2026-01-02 12:00:01 UTC  127.0.0.1:71
-           rw    b     a       routed  2026-01-02 12:00:02 UTC  127.0.0.1:72
-           rw    c     a       routed  2026-01-02 12:00:04 UTC  127.0.0.1:73
10.0.0.9:2  ro    a     b       routed  2026-01-02 12:00:05 UTC  -
`
	if d := cmp.Diff(want, out); code != exitOK || d != "" {
		t.Errorf("%d (-want +got):\n%s", code, d)
	}
	if code, _, errs := run(t, "sessions", "c", "--addr", addr); code != exitFailure || errs != "quorate: node c cannot be asked\n" {
		t.Errorf("%d, %s", code, errs)
	}
	none := nodesThat(t, nil, &asked)
	if code, out, errs := run(t, "sessions", "--addr", none); code != exitFailure || out != "" || errs != "quorate: node a cannot be asked\n" {
		t.Errorf("nobody answers: %d, %q, %s", code, out, errs)
	}
}

// TestSessionsLeftOut: --last bounds how many clients are shown in all, on however many nodes they are.
func TestSessionsLeftOut(t *testing.T) {
	v := joinSessions([]cluster.Sessions{{Node: "a", Clients: 900, Newest: sampleSessions()["a"].Newest}, {}}, 3)
	if v.LeftOut != 899 || len(v.Sessions) != 3 {
		t.Errorf("%+v", v)
	}
	if text := sessionsText(joinSessions(nil, 3)); strings.Count(text, "\n") != 1 {
		t.Errorf("nobody: %s", text)
	}
}

// TestSessionsLast: a number of clients that no answer can have is refused before anybody is asked.
func TestSessionsLast(t *testing.T) {
	for _, args := range [][]string{{"--last=-3"}, {"b", "--last=-3"}, {"--last=0"}, {"--last=10001"}} {
		code, out, errs := run(t, append([]string{"sessions", "--addr", "./none"}, args...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, "--last must be 1 to 10000, not ") {
			t.Errorf("%q: exit code %d, %q, %q", args, code, out, errs)
		}
	}
}
