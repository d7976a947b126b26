package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
)

// agentThat answers control requests, and notes what it was asked.
func agentThat(t *testing.T, answer *control.Answer, asked *control.Request) (addr string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(sampleStatus())
			return
		}
		if err := json.NewDecoder(r.Body).Decode(asked); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		if answer.Code != control.CodeOK {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func resultOf(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestControlCommands(t *testing.T) {
	var answer control.Answer
	var asked control.Request
	addr := agentThat(t, &answer, &asked)
	answer = control.Answer{Code: control.CodeOK, Result: resultOf(t, cluster.ChangeResult{Changed: true, What: "it", Version: 4})}
	for line, want := range map[string]string{
		"node set b --weight 7":                            `node.set {"name":"b","weight":7}`,
		"node set b --weight 0 --site x":                   `node.set {"name":"b","weight":0,"site":"x"}`,
		"maintenance on --reason disks":                    `maintenance {"on":true,"reason":"disks"}`,
		"maintenance off":                                  `maintenance {"on":false}`,
		"node set b --site east --addr TO":                 `node.set {"name":"b","site":"east"}`,
		"node set b --site= --weight=9":                    `node.set {"name":"b","weight":9,"site":""}`,
		"node set b --require-ack":                         `node.set {"name":"b","require_ack":true}`,
		"node set b --require-ack=false":                   `node.set {"name":"b","require_ack":false}`,
		"node set b --require-ack --degrade drop-after=2s": `node.set {"name":"b","require_ack":true,"drop_after_ns":2000000000}`,
		"node set b --degrade wait":                        `node.set {"name":"b","drop_after_ns":0}`,
		"cluster set --durability all":                     `cluster.set {"durability":"all"}`,
		"maintenance on":                                   `maintenance {"on":true}`,
		"maintenance on --reason=x --addr A":               `maintenance {"on":true,"reason":"x"}`,
	} {
		args := strings.Fields(line)
		if i := len(args) - 2; args[i] == "--addr" {
			args = args[:i]
		}
		code, out, errs := run(t, append(args, "--addr", addr)...)
		if code != exitOK || out != "it: done, version 4 of the cluster state\n" || errs != "" {
			t.Errorf("%s: %d, %q, %q", line, code, out, errs)
		}
		if got := asked.Name + " " + string(asked.Args); got != want || !strings.Contains(asked.By, "@") {
			t.Errorf("%s asks %s by %q, want %s", line, got, asked.By, want)
		}
	}
	answer.Result = resultOf(t, cluster.ChangeResult{What: "it", Version: 4})
	if code, out, _ := run(t, "maintenance", "off", "--addr", addr); code != exitOK || out != "it: it was so already\n" {
		t.Errorf("unchanged: %d, %q", code, out)
	}
	if code, out, _ := run(t, "maintenance", "off", "--addr", addr, "--json"); code != exitOK || !strings.Contains(out, `"changed": false`) {
		t.Errorf("--json: %d, %q", code, out)
	}
}

// TestControlExitCodes: a script can tell what became of its request.
func TestControlExitCodes(t *testing.T) {
	var answer control.Answer
	var asked control.Request
	addr := agentThat(t, &answer, &asked)
	for code, want := range map[control.Code]int{
		control.CodeInvalid: exitUsage, control.CodeNoLeader: exitNoPrimary, control.CodeUncertain: exitUncertain,
		control.CodeStale: exitFailure, control.CodeFailed: exitFailure, control.CodeUnknown: exitFailure,
	} {
		answer = control.Answer{Code: code, Error: "because"}
		if got, out, errs := run(t, "maintenance", "on", "--addr", addr); got != want || out != "" || errs != "quorate: because\n" {
			t.Errorf("%s: exit code %d, want %d: %q, %q", code, got, want, out, errs)
		}
	}
	for _, line := range []string{"node set b", "node set", "node set b --weight x", "maintenance", "maintenance maybe", "maintenance off --reason x", "audit x",
		"cluster set", "cluster set --durability most", "node set b --degrade never"} {
		if code, _, errs := run(t, append(strings.Fields(line), "--addr", addr)...); code != exitUsage {
			t.Errorf("%s: exit code %d, %q", line, code, errs)
		}
	}
}

func TestNodeList(t *testing.T) {
	addr := agentThat(t, nil, nil)
	code, out, errs := run(t, "node", "list", "--addr", addr)
	want := `NODE  KIND  WEIGHT  SITE  PEER  ROLE         VERSION
a     full  7       -           primary      -
b     full  0       -           errant       -
c     full  0       -           unreachable  -
d     full  0       -           unknown      -
`
	if d := cmp.Diff(want, out); code != exitOK || d != "" {
		t.Errorf("%d, %q (-want +got):\n%s", code, errs, d)
	}
	code, out, _ = run(t, "node", "list", "--addr", addr, "--json")
	var list nodeList
	if err := json.Unmarshal([]byte(out), &list); code != exitOK || err != nil || len(list.Nodes) != 4 || list.Nodes[0].Weight != 7 {
		t.Errorf("%d, %v, %+v", code, err, list)
	}
}

func TestAuditTable(t *testing.T) {
	var asked control.Request
	lines := []cluster.AuditEntry{
		{At: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), By: "ann@db1", What: "maintenance on: new disks", Result: "done", Index: 12, Version: 3},
		{At: time.Date(2026, 1, 2, 13, 0, 0, 0, time.UTC), By: "bob@db2", What: "switchover to b", Result: "called off"},
	}
	addr := agentThat(t, &control.Answer{Code: control.CodeOK, Result: resultOf(t, lines)}, &asked)
	code, out, errs := run(t, "audit", "--addr", addr, "--last", "2")
	want := `TIME                  BY       ENTRY  VERSION  RESULT      WHAT
2026-01-02T12:00:00Z  ann@db1  12     3        done        maintenance on: new disks
2026-01-02T13:00:00Z  bob@db2  -      -        called off  switchover to b
`
	if d := cmp.Diff(want, out); code != exitOK || d != "" || string(asked.Args) != `{"last":2}` {
		t.Errorf("%d, %q, %s (-want +got):\n%s", code, errs, asked.Args, d)
	}
	if code, out, _ := run(t, "audit", "--addr", addr, "--json"); code != exitOK || strings.Count(out, "\n") != 2 {
		t.Errorf("--json: %d, %q", code, out)
	}
}

// TestOneLineHasNoControlCharacters: a reason may be anybody's.
func TestOneLineHasNoControlCharacters(t *testing.T) {
	if got := oneLine(" a\x1b[2J\r\n\tb \u202e c\u2028d\x00 ü e"); got != "a[2J b c d ü e" {
		t.Errorf("%q", got)
	}
}

func TestMaintenanceLine(t *testing.T) {
	st := sampleStatus()
	st.Maintenance = &cluster.Maintenance{Reason: "new\ndisks", By: "ann@db1", Primary: "a", Since: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)}
	lines := strings.Split(statusTable(st, true), "\n")
	if lines[1] != "MAINTENANCE since 2026-01-02T12:00:00Z, by ann@db1: no failover, no node may open but a: new disks" || lines[2] != "" ||
		!strings.HasPrefix(lines[3], "\x1b[1mNODE") || !strings.HasPrefix(lines[4], "\x1b["+ansiGreen+"ma") {
		t.Errorf("%q", lines)
	}
}

// TestDidCommitUnknown: a token that nobody knows is no "never will be".
func TestDidCommitUnknown(t *testing.T) {
	var asked control.Request
	answer := cluster.DidCommit{Outcome: cluster.OutcomeUnknown, Reason: "no transaction of this cluster has this token"}
	addr := agentThat(t, &control.Answer{Code: control.CodeOK, Result: resultOf(t, answer)}, &asked)
	code, out, errs := run(t, "did-commit", "--session-token", "3e11fa47-71ca-11e1-9e33-c80aa9429562:22", "--addr", addr)
	if code != exitUnknown || out != "not known: no transaction of this cluster has this token\n" || errs != "quorate: not known\n" {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
}
