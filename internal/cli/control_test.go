package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/install"
)

// agentThat serves as an agent that gives this answer to all control requests, and notes the last request in asked.
func agentThat(t *testing.T, answer *control.Answer, asked *control.Request) (addr string) {
	t.Helper()
	return onSocket(t, func(w http.ResponseWriter, r *http.Request) {
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
	})
}

// onSocket serves on a control socket, and returns its path.
func onSocket(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(serve)
	server.Listener.Close()
	socket := filepath.Join(t.TempDir(), "s")
	var err error
	if server.Listener, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(server.Close)
	return socket
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
	answer = control.Answer{Code: control.CodeOK, Result: resultOf(t, cluster.ChangeResult{Changed: true, What: "it", Done: "It is.", Version: 4})}
	for line, want := range map[string]string{
		"node set b --weight 7":                            `node.set {"name":"b","weight":7}`,
		"node set b --weight 0 --site x":                   `node.set {"name":"b","weight":0,"site":"x"}`,
		"maintenance on --reason disks":                    `maintenance {"on":true,"reason":"disks"}`,
		"maintenance off":                                  `maintenance {"on":false}`,
		"node set b --site east --addr TO":                 `node.set {"name":"b","site":"east"}`,
		"node set b --site none":                           `node.set {"name":"b","site":""}`,
		"node set b --require-ack":                         `node.set {"name":"b","require_ack":true}`,
		"node set b --require-ack=false":                   `node.set {"name":"b","require_ack":false}`,
		"node set b --require-ack --degrade drop-after=2s": `node.set {"name":"b","require_ack":true,"drop_after_ns":2000000000}`,
		"node set b --degrade wait":                        `node.set {"name":"b","drop_after_ns":0}`,
		"cluster set --durability all":                     `cluster.set {"durability":"all"}`,
		"maintenance on":                                   `maintenance {"on":true}`,
		"maintenance off -n":                               `maintenance {"on":false,"dry_run":true}`,
		"cluster set --durability all --dry-run":           `cluster.set {"durability":"all","dry_run":true}`,
		"cluster set --durability all --force":             `cluster.set {"durability":"all","force":true}`,
		"node set b --require-ack --force":                 `node.set {"name":"b","require_ack":true,"force":true}`,
		"node remove b --dry-run":                          `node.remove {"change":{"op":"remove","name":"b"},"dry_run":true}`,
		"maintenance on --reason=x --addr A":               `maintenance {"on":true,"reason":"x"}`,
	} {
		args := strings.Fields(line)
		if i := len(args) - 2; args[i] == "--addr" {
			args = args[:i]
		}
		code, out, errs := run(t, append(args, "--addr", addr)...)
		if code != exitOK || out != "It is.\n" || errs != "" {
			t.Errorf("%s: %d, %q, %q", line, code, out, errs)
		}
		if got := asked.Name + " " + string(asked.Args); got != want || asked.By != os.Getenv("SUDO_USER") {
			t.Errorf("%s asks %s by %q, want %s", line, got, asked.By, want)
		}
	}
	answer.Result = resultOf(t, cluster.ChangeResult{What: "it", Version: 4})
	if code, out, _ := run(t, "maintenance", "off", "--addr", addr); code != exitOK || out != "it was so already: it\n" {
		t.Errorf("unchanged: %d, %q", code, out)
	}
	if code, out, _ := run(t, "maintenance", "off", "--addr", addr, "--json"); code != exitOK || !strings.Contains(out, `"changed": false`) {
		t.Errorf("--json: %d, %q", code, out)
	}
}

// TestControlExitCodes: the exit code tells a script what became of its request.
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
		"cluster set", "cluster set --durability most", "node set b --degrade never", "follow --stop --check"} {
		if code, _, errs := run(t, append(strings.Fields(line), "--addr", addr)...); code != exitUsage {
			t.Errorf("%s: exit code %d, %q", line, code, errs)
		}
	}
}

// TestNodeKeyIsSetAlone: no setting beside --key is left out without a word, whatever its value is.
func TestNodeKeyIsSetAlone(t *testing.T) {
	newNodeSetCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains([]string{"key", "config", "addr", "json", "dry-run", "force"}, f.Name) {
			return
		}
		value := f.DefValue
		if value == "" {
			value = "none"
		}
		code, out, errs := run(t, "node", "set", "b", "--addr", "./none", "--key", "q1:k", "--"+f.Name+"="+value)
		if code != exitUsage || out != "" || errs != "quorate: --key is set alone\n" {
			t.Errorf("--%s=%s: exit code %d, %q, %q", f.Name, value, code, out, errs)
		}
	})
}

func TestNodeList(t *testing.T) {
	addr := agentThat(t, nil, nil)
	code, out, errs := run(t, "node", "list", "--addr", addr)
	want := `NODE  KIND  WEIGHT  SITE  REQUIRE-ACK  SOURCE  PEER  ROLE         VERSION
a     full  7       -     -            -             primary      -
b     full  0       -     -            -             errant       -
c     full  0       -     -            -             unreachable  -
d     full  0       -     -            -             unknown      -
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

// TestClusterShow: all settings that are in force are shown, also those that nobody has set.
func TestClusterShow(t *testing.T) {
	var asked control.Request
	addr := agentThat(t, &control.Answer{Code: control.CodeOK, Result: json.RawMessage(`{"variables": {"sql_mode": "ANSI"}}`)}, &asked)
	const want = `cluster        orders
version        0
durability     majority
require-ack    none
reseed         auto
errant         keep
retain-max     off
peer-security  none
router         off
events         on
variables      sql_mode
maintenance    off
`
	if code, out, errs := run(t, "cluster", "show", "--addr", addr); code != exitOK || out != want {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	code, out, _ := run(t, "cluster", "show", "--addr", addr, "--json")
	var got clusterSettings
	if err := json.Unmarshal([]byte(out), &got); code != exitOK || err != nil || got.Reseed != cluster.ReseedAuto {
		t.Errorf("%d, %v, %+v", code, err, got)
	}
	set := clusterSettings{Cluster: "c", Durability: cluster.DurabilityAll, Reseed: cluster.ReseedManual, Errant: cluster.ErrantRebuild,
		RetainBytesMax: 1500 << 20, Variables: map[string]string{"sql_mode": "", "max_connections": "5"}, RequireAck: map[string]string{"c": "wait"}, Maintenance: &cluster.Maintenance{By: "ann@db1", Since: time.Unix(0, 0)}}
	if text := set.String(); !strings.Contains(text, "retain-max     1500MiB\npeer-security  none\nrouter         off\nevents         on\nvariables      max_connections, sql_mode\nmaintenance    on since 1970-01-01 00:00:00 UTC, by ann@db1") ||
		!strings.Contains(text, "require-ack    c (wait)\n") {
		t.Errorf("%q", text)
	}
}

// TestDeletingAsks: a command that deletes data needs --yes where no person can answer. Without --yes
// the agent gets no request.
func TestDeletingAsks(t *testing.T) {
	var asked control.Request
	answer := control.Answer{Code: control.CodeOK, Result: resultOf(t, cluster.ChangeResult{What: "it", Changed: true})}
	addr := agentThat(t, &answer, &asked)
	for _, line := range []string{"node remove b", "node rebuild b", "node remove b --json", "fence b --force", "log purge", "log purge --json"} {
		asked = control.Request{}
		code, _, errs := run(t, append(strings.Fields(line), "--addr", addr)...)
		if code != exitUsage || errs != "quorate: this is not a terminal, so nobody can confirm it: use --yes\n" || asked.Name != "" {
			t.Errorf("%s: %d, %q, asked %s", line, code, errs, asked.Name)
		}
		if code, _, errs := run(t, append(strings.Fields(line), "--yes", "--addr", addr)...); code != exitOK || asked.Name == "" {
			t.Errorf("%s --yes: %d, %q", line, code, errs)
		}
	}
}

// TestDeletingAsksOnATerminal: the command says what it would mean, asks, and goes on only after y or yes.
func TestDeletingAsksOnATerminal(t *testing.T) {
	var asked control.Request
	plan := cluster.ChangeResult{What: "it", DryRun: true, Impact: cluster.Impact{Notes: []string{"2 of 2 then"}}}
	answer := control.Answer{Code: control.CodeOK, Result: resultOf(t, plan)}
	addr := agentThat(t, &answer, &asked)
	for typed, want := range map[string]int{"y\n": exitOK, "YES\n": exitOK, "n\n": exitFailure, "\n": exitFailure, "node\n": exitFailure} {
		terminal, person := openTerminal(t)
		if _, err := person.WriteString(typed); err != nil {
			t.Fatal(err)
		}
		cmd := newRootCommand(Deps{})
		cmd.SetArgs([]string{"node", "remove", "b", "--addr", addr})
		cmd.SetIn(terminal)
		cmd.SetOut(terminal)
		err := cmd.ExecuteContext(t.Context())
		if (err == nil) != (want == exitOK) || (err != nil && !errors.Is(err, errNotMeant)) {
			t.Errorf("%q: %v", typed, err)
		}
		if dry := strings.Contains(string(asked.Args), "dry_run"); dry == (want == exitOK) {
			t.Errorf("%q: asked last %s", typed, asked.Args)
		}
		if err := terminal.Close(); err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(person) // in parts, and with the terminal's echo first; at its end there is an error
		if !strings.Contains(string(said), "note: 2 of 2 then\r\nRemove node b for good? No node can have its name again. [y/N] ") {
			t.Errorf("%q: the question was not seen in %q: %v", typed, said, err)
		}
	}
}

// openTerminal returns a pseudo-terminal, and its other end, where the person types and reads.
func openTerminal(t *testing.T) (terminal, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return terminal, person
}

func TestAuditTable(t *testing.T) {
	var asked control.Request
	lines := []cluster.AuditEntry{
		{At: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), By: "ann@db1", What: "maintenance on: new disks", Result: "done", Index: 12, Version: 3},
		{At: time.Date(2026, 1, 2, 13, 0, 0, 0, time.UTC), By: "bob@db2", Node: "db1", Seq: 7, What: "switchover from db1 to db2", Result: "not done: called off: db2\nlags"},
		{At: time.Date(2026, 1, 2, 14, 0, 0, 0, time.UTC), By: "bob@db2", Node: "db2", Seq: 8, What: "fence node db2", Result: "done"},
	}
	addr := agentThat(t, &control.Answer{Code: control.CodeOK, Result: resultOf(t, lines)}, &asked)
	code, out, errs := run(t, "audit", "--addr", addr, "--last", "2")
	want := `TIME                     BY       NODE  RESULT    WHAT
2026-01-02 12:00:00 UTC  ann@db1  all   done      maintenance on: new disks
2026-01-02 13:00:00 UTC  bob@db2  db1   not done  switchover from db1 to db2
    called off: db2 lags
2026-01-02 14:00:00 UTC  bob@db2  db2   done      fence node db2
`
	if d := cmp.Diff(want, out); code != exitOK || d != "" || string(asked.Args) != `{"last":2}` {
		t.Errorf("%d, %q, %s (-want +got):\n%s", code, errs, asked.Args, d)
	}
	if code, out, _ := run(t, "audit", "--addr", addr, "--json"); code != exitOK || strings.Count(out, "\n") != 3 {
		t.Errorf("--json: %d, %q", code, out)
	}
}

// TestChangeText: a dry run says what it would do, and its exit code tells whether that is possible now.
func TestChangeText(t *testing.T) {
	var answer control.Answer
	var asked control.Request
	addr := agentThat(t, &answer, &asked)
	for want, result := range map[string]cluster.ChangeResult{
		"it could be done now: it\nnote: c could take over\n":               {What: "it", DryRun: true, Impact: cluster.Impact{Notes: []string{"c could take over"}}},
		"it would be refused without --force: it\nwrites stop: b is away\n": {What: "it", DryRun: true, Impact: cluster.Impact{Stops: []string{"b is away"}}},
		"done: it\nwrites stop: b is away\n":                                {What: "it", Changed: true, Version: 4, Impact: cluster.Impact{Stops: []string{"b is away"}}},
	} {
		answer = control.Answer{Code: control.CodeOK, Result: resultOf(t, result)}
		wantCode := exitOK
		if result.DryRun && len(result.Stops) > 0 {
			wantCode = exitFailure
		}
		if code, out, errs := run(t, "maintenance", "off", "--addr", addr); code != wantCode || out != want || errs != "" {
			t.Errorf("%d, %q, %q, want %q", code, out, errs, want)
		}
	}
}

// TestJSON: whatever becomes of a request, --json prints one document, with the same exit code
// as without --json.
func TestJSON(t *testing.T) {
	var answer control.Answer
	var asked control.Request
	addr := agentThat(t, &answer, &asked)
	done := func(v any) control.Answer { return control.Answer{Code: control.CodeOK, Result: resultOf(t, v)} }
	blocked := cluster.Switchover{From: "a", DryRun: true, Blocks: []string{"b lags"}}
	fence := cluster.Fence{By: "ann@db1", At: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)}
	for _, c := range []struct {
		line   string
		answer control.Answer
		want   map[string]any
		code   int
	}{
		{"maintenance on", control.Answer{Code: control.CodeFailed, Error: "not now"},
			map[string]any{"error": "not now", "code": "failed", "exit_code": 1.0}, exitFailure},
		{"node set x --weight 1", control.Answer{Code: control.CodeInvalid, Error: "no x"},
			map[string]any{"error": "no x", "code": "invalid", "exit_code": 2.0}, exitUsage},
		{"switchover --dry-run", control.Answer{Code: control.CodeNoLeader, Error: "none"},
			map[string]any{"error": "none", "code": "no-leader", "exit_code": 3.0}, exitNoPrimary},
		{"switchover --dry-run", control.Answer{Code: control.CodeUncertain, Error: "maybe"},
			map[string]any{"error": "maybe", "code": "uncertain", "exit_code": 4.0}, exitUncertain},
		{"switchover --dry-run", control.Answer{Code: control.CodeFailed, Error: "a leads"},
			map[string]any{"error": "a leads", "code": "failed", "exit_code": 1.0, "possible": false}, exitFailure},
		{"cluster set --durability most --dry-run", control.Answer{}, map[string]any{
			"error": `--durability must be one of majority, all, site-majority, not "most"`, "code": "invalid", "exit_code": 2.0}, exitUsage},
		{"switchover --dry-run", done(blocked), map[string]any{"from": "a", "dry_run": true, "blocks": []any{"b lags"},
			"possible": false, "notes": []any{}}, exitFailure},
		{"restart-mysqld a --dry-run", done(cluster.Restarted{Node: "a", DryRun: true, Incarnation: 1<<53 + 1, Moved: &blocked}), map[string]any{
			"node": "a", "dry_run": true, "incarnation": float64(1<<53 + 1), "seconds": 0.0, "possible": false, "notes": []any{},
			"moved": map[string]any{"from": "a", "dry_run": true, "blocks": []any{"b lags"}}}, exitFailure},
		{"maintenance off --dry-run", done(cluster.ChangeResult{What: "it", DryRun: true, Impact: cluster.Impact{Stops: []string{"b is away"}}}), map[string]any{
			"changed": false, "what": "it", "dry_run": true, "version": 0.0, "stops": []any{"b is away"}, "possible": false, "notes": []any{}}, exitFailure},
		{"fence b --dry-run", done(cluster.FenceResult{Fence: fence, Changed: true, DryRun: true, Notes: []string{"n"}}), map[string]any{
			"changed": false, "dry_run": true, "possible": true, "notes": []any{"n"}}, exitOK},
		{"unfence b --dry-run", done(cluster.FenceResult{Fence: fence, Changed: true, DryRun: true}), map[string]any{
			"by": "ann@db1", "at": "2026-01-02T12:00:00Z", "changed": false, "dry_run": true, "possible": true, "notes": []any{}}, exitOK},
		{"unfence b", done(cluster.FenceResult{}), map[string]any{"changed": false}, exitOK},
		{"log purge --dry-run", done(cluster.PurgePlan{Node: "a", Segments: []cluster.PurgeSegment{}}), map[string]any{
			"node": "a", "up_to": 0.0, "bytes": 0.0, "segments": []any{}, "done": false, "dry_run": true, "possible": true, "notes": []any{}}, exitOK},
		{"node remove b", control.Answer{}, map[string]any{
			"error": "this is not a terminal, so nobody can confirm it: use --yes", "code": "invalid", "exit_code": 2.0}, exitUsage},
		{"did-commit x", control.Answer{}, map[string]any{
			"error": `"x" is no GTID, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23`, "code": "invalid", "exit_code": 2.0}, exitUsage},
		{"cluster set --durability most", control.Answer{}, map[string]any{
			"error": `--durability must be one of majority, all, site-majority, not "most"`, "code": "invalid", "exit_code": 2.0}, exitUsage},
	} {
		answer = c.answer
		code, out, _ := run(t, append(strings.Fields(c.line), "--json", "--addr", addr)...)
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != c.code {
			t.Errorf("%s: %d, %v: %s", c.line, code, err, out)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.line, d)
		}
	}
}

// fullDisk is a stdout that takes some writes and then no more.
type fullDisk struct{ takes int }

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.takes--; f.takes < 0 {
		return 0, unix.ENOSPC
	}
	return len(p), nil
}

// TestDoneAndNotPrinted: a change that was made has not failed if its result cannot be printed. A dry run has.
func TestDoneAndNotPrinted(t *testing.T) {
	answer, asked := control.Answer{Code: control.CodeOK}, control.Request{}
	addr := agentThat(t, &answer, &asked)
	plan, yes := resultOf(t, samplePlan()), json.RawMessage(`{}`)
	for _, c := range []struct {
		line   string
		answer json.RawMessage
		takes  int
		code   int
	}{
		{"node set b --weight 7", yes, 0, exitUncertain},
		{"node set b --weight 7 --dry-run", json.RawMessage(`{"dry_run":true}`), 0, exitFailure},
		{"node remove b --yes", yes, 0, exitUncertain},
		{"cluster set --durability all", yes, 0, exitUncertain},
		{"maintenance off", yes, 0, exitUncertain},
		{"variables set a=1", yes, 0, exitUncertain},
		{"switchover", yes, 0, exitUncertain},
		{"restart-mysqld b", yes, 0, exitUncertain},
		{"fence b", yes, 0, exitUncertain},
		{"unfence b", yes, 0, exitUncertain},
		{"secrets rotate", yes, 0, exitUncertain},
		{"follow db0 --user u --password-file p --tls off", yes, 0, exitUncertain},
		{"follow db0 --user u --password-file p --tls off --check", yes, 0, exitFailure},
		{"follow --stop", yes, 0, exitUncertain},
		{"cutover", yes, 0, exitUncertain},
		{"site follow", yes, 0, exitUncertain},
		{"site switch", yes, 0, exitUncertain},
		{"site promote --yes", yes, 0, exitUncertain},
		{"site forget", yes, 0, exitUncertain},
		{"site", yes, 0, exitFailure},
		{"sessions b", yes, 0, exitFailure},
		{"log purge --yes", plan, 0, exitFailure}, // it is not asked for before the plan is there to see
		{"log purge --yes", plan, 1, exitUncertain},
	} {
		for _, how := range []string{"", " --json"} {
			if how != "" && strings.HasPrefix(c.line, "log purge") {
				how, c.takes, c.code = how+" --yes", 0, exitUncertain
			}
			answer.Result = c.answer
			var errs bytes.Buffer
			code := Main(t.Context(), append(strings.Fields(c.line+how), "--addr", addr), &fullDisk{c.takes}, &errs, Deps{})
			if code != c.code || strings.Contains(errs.String(), "it was done, but the result cannot be printed: ") != (code == exitUncertain) {
				t.Errorf("%s%s: exit code %d, want %d: %s", c.line, how, code, c.code, errs.String())
			}
		}
	}
	for what, err := range map[string]error{
		"recover":        (&recoverOptions{}).print(recovered{Done: new(cluster.Recovery)}, new(fullDisk)),
		"recover --json": (&recoverOptions{asJSON: true}).print(recovered{Done: new(cluster.Recovery)}, new(fullDisk)),
		"adopt":          (&adoptOptions{}).printDone(new(fullDisk), "it is done"),
	} {
		if e, ok := errors.AsType[*exitError](err); !ok || e.code != exitUncertain {
			t.Errorf("%s: %v", what, err)
		}
	}
	file := filepath.Join(t.TempDir(), "all.binlog")
	if code := Main(t.Context(), []string{"log", "export", "--dir", upgradedLog(t), "--until-index", "3", "--out", file}, new(fullDisk), io.Discard, Deps{}); code != exitUncertain {
		t.Errorf("export: exit code %d", code)
	}
}

// TestFailureIsOneLineOfJSON: an error is one line of JSON, also for commands that print one object per line, and
// wherever --json stands.
func TestFailureIsOneLineOfJSON(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for line, wantCode := range map[string]int{
		"history --json --addr " + none:              exitFailure,
		"log dump --json --dir " + none:              exitFailure,
		"switchover --json --dry-run --addr " + none: exitFailure,
		"switchover --json --nonsense":               exitUsage,
		"switchover --nonsense --json":               exitUsage,
		"log dump --nonsense --json":                 exitUsage,
		"status --json nonsense":                     exitUsage,
	} {
		code, out, errs := run(t, strings.Fields(line)...)
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil || strings.Count(out, "\n") != 1 || code != wantCode || errs == "" {
			t.Errorf("%s: %d, %v: %q, %q", line, code, err, out, errs)
		}
		if _, ok := got["possible"]; ok || got["exit_code"] != float64(wantCode) {
			t.Errorf("%s: %v", line, got)
		}
	}
	for _, line := range []string{"switchover --nonsense", "switchover --nonsense -- --json", "run --nonsense --json"} {
		if code, out, _ := run(t, strings.Fields(line)...); code != exitUsage || out != "" {
			t.Errorf("%s: %d, %q", line, code, out)
		}
	}
}

// TestUnanswered: if the agent cannot be reached, the error says what to do.
func TestUnanswered(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"audit", "--addr", "/nonexistent/s"}, "ask agent at /nonexistent/s: connect: no such file or directory: is the agent running there (systemctl status quorate)?", exitFailure},
		{[]string{"status", "--addr", "127.0.0.1:1"}, "connection refused: is the agent running there", exitFailure},
		{[]string{"audit", "--addr", "127.0.0.1:1"}, "requests go to the agent's control socket", exitUsage},
	} {
		if code, out, errs := run(t, c.args...); code != c.code || out != "" || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: %d, %q, %q", c.args, code, out, errs)
		}
	}
}

// TestOneLineHasNoControlCharacters: anybody may have written a reason, so it must not control the terminal.
func TestOneLineHasNoControlCharacters(t *testing.T) {
	if got := oneLine(" a\x1b[2J\r\n\tb \u202e c\u2028d\x00 ü e"); got != "a[2J b c d ü e" {
		t.Errorf("%q", got)
	}
}

func TestMaintenanceLine(t *testing.T) {
	st := sampleStatus()
	st.Maintenance = &cluster.Maintenance{Reason: "new\ndisks", By: "ann@db1", Primary: "a", Since: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)}
	lines := strings.Split(statusTable(st, true), "\n")
	if lines[1] != "\x1b["+ansiYellow+"mMAINTENANCE since 2026-01-02 12:00:00 UTC, by ann@db1: no failover, no node may open but a: new disks\x1b[0m" || lines[2] != "" ||
		!strings.HasPrefix(lines[3], "\x1b[1mNODE") || !strings.HasPrefix(lines[4], "\x1b["+ansiGreen+"ma") {
		t.Errorf("%q", lines)
	}
}

// TestDidCommitSaysWhatIsKnown: "never will be" is said only of a session token. A token that nobody
// knows is "not known", and a GTID may be given again by its server.
func TestDidCommitSaysWhatIsKnown(t *testing.T) {
	const id = "3e11fa47-71ca-11e1-9e33-c80aa9429562:22"
	var asked control.Request
	var answer control.Answer
	addr := agentThat(t, &answer, &asked)
	for _, c := range []struct {
		args    []string
		outcome cluster.Outcome
		want    string
		code    int
	}{
		{[]string{"--session-token", id}, cluster.OutcomeUnknown, "not known: because\n", exitUnknown},
		{[]string{"--session-token", id}, cluster.OutcomeNotCommitted, "not committed, and never will be: because\n", exitFailure},
		{[]string{id}, cluster.OutcomeNotCommitted, "not committed: because\n", exitFailure},
		{[]string{id}, cluster.OutcomeCommitted, "committed: because\n", exitOK},
	} {
		answer = control.Answer{Code: control.CodeOK, Result: resultOf(t, cluster.DidCommit{Outcome: c.outcome, Reason: "because"})}
		if code, out, errs := run(t, append([]string{"did-commit", "--addr", addr}, c.args...)...); code != c.code || out != c.want || errs != "" {
			t.Errorf("%v: %d, %q, %q", c.args, code, out, errs)
		}
	}
}

// TestRequestsWithoutSocket: if an agent has no control socket, the error has the reason, which the agent's API says.
func TestRequestsWithoutSocket(t *testing.T) {
	var st status.Cluster
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(st) }))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "node.toml")
	dir := t.TempDir()
	text := fmt.Sprintf("data_dir = %q\n[api]\nlisten = %q\n", dir, server.Listener.Addr())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for role, want := range map[status.Role]string{
		status.RoleForming: "quorate: node a takes no requests, and nothing was done: it is forming: node b has not answered\n",
		status.RoleRemoved: "quorate: node a takes no requests, and nothing was done: it is removed: node b has not answered\n",
		status.RoleReplica: "is the agent running there",
	} {
		st = status.Cluster{Self: "a", Nodes: []status.Node{{Name: "b", Role: status.RoleForming}, {Name: "a", Role: role, Reason: "node b has not answered"}}}
		for _, command := range []string{"history", "audit", "switchover"} {
			if code, _, errs := run(t, command, "--config", path); code != exitFailure || !strings.Contains(errs, want) {
				t.Errorf("%s, %s: %d, %q", command, role, code, errs)
			}
		}
	}
	// The lines that the node has on disk are shown all the same, even if there are none.
	if err := os.WriteFile(filepath.Join(dir, "identity.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"history", "audit"} {
		if code, out, errs := run(t, command, "--config", path); code != exitOK || !strings.HasPrefix(out, "TIME") || !strings.Contains(errs, "there are no lines in "+dir) {
			t.Errorf("%s without a line: %d, %q, %q", command, code, out, errs)
		}
	}
	for name, line := range map[string]string{
		"history.log": `{"at":"2026-11-22T12:00:00Z","node":"a","seq":1,"what":"fenced","event":{"kind":"fenced","why":"its disk"}}`,
		"audit.log":   `{"at":"2026-11-22T12:00:00Z","node":"a","by":"ann@db1","what":"fence node a"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []status.Role{status.RoleRemoved, status.RoleReplica} {
		st = status.Cluster{Self: "a", Nodes: []status.Node{{Name: "a", Role: role}}}
		for command, want := range map[string]string{"history": "its disk", "audit": "fence node a"} {
			code, out, errs := run(t, command, "--config", path)
			if code != exitOK || !strings.Contains(out, want) || !strings.Contains(errs, "these lines are from "+dir) {
				t.Errorf("%s, %s: %d, %q, %q", command, role, code, out, errs)
			}
		}
		if code, _, _ := run(t, "history", "--config", path, "--last", "0"); code == exitOK {
			t.Error("history --last 0 is taken")
		}
	}
}

// TestHangingAgent: an agent that shows no sign of life gets no request. History and audit lines then come from its
// files.
func TestHangingAgent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "node.toml")
	for name, text := range map[string]string{
		"node.toml":     fmt.Sprintf("data_dir = %q\n[api]\nlisten = \"127.0.0.1:1\"\n", dir),
		"identity.json": "",
		"history.log":   `{"at":"2026-11-22T12:00:00Z","node":"a","seq":1,"what":"fenced","event":{"kind":"fenced","why":"its disk"}}` + "\n",
		"audit.log":     `{"at":"2026-11-22T12:00:00Z","node":"a","by":"ann@db1","what":"fence node a"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent, err := net.Listen("unix", filepath.Join(dir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"switchover"}, exitFailure, "", "it is starting, or hangs, and nothing was asked of it; use another node"},
		{[]string{"history"}, exitOK, "its disk", "these lines are from " + dir},
		{[]string{"audit"}, exitOK, "fence node a", "these lines are from " + dir},
	} {
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		var out, errs bytes.Buffer
		code := Main(ctx, append(c.args, "--config", path), &out, &errs, Deps{})
		if text := aboutData(ctx, filepath.Join(dir, "control.sock")); !strings.HasSuffix(text, "; the data may be old, and a write may get no OK: use another node\n") {
			t.Errorf("of mysqld's data is said %q", text)
		}
		stop()
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%v: %d, %q, %q", c.args, code, out.String(), errs.String())
		}
	}
}

// TestOldData: a session that is opened while a node applies its log is told so, and no other.
func TestOldData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    status.Node
		want string
	}{
		{status.Node{Role: status.RolePromoting, LagTransactions: 12}, "quorate: node a (promoting) still applies the log, 12 transactions left: its data are old (quorate status)\n"},
		{status.Node{Role: status.RoleUnverified, Leader: 2, LagTransactions: 12, LagUnknown: true}, "quorate: node a (unverified) still applies the log: its data are old (quorate status)\n"},
		{status.Node{Role: status.RoleUnverified, LagUnknown: true}, "quorate: node a (unverified) has no leader: nobody knows whether its data are the newest, and it takes no writes (quorate status)\n"},
		{status.Node{Role: status.RoleReplica, LagTransactions: 1, LagSeconds: 61}, "quorate: node a (replica) still applies the log, 1 transaction left: its data are old (quorate status)\n"},
		{status.Node{Role: status.RoleReplica, LagTransactions: 1, LagSeconds: 1}, ""},
		{status.Node{Role: status.RolePrimary}, ""},
		{status.Node{}, ""},
	} {
		dir := t.TempDir()
		c.n.Name = "a"
		listener, err := net.Listen("unix", filepath.Join(dir, "control.sock"))
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(status.Cluster{Self: "a", Nodes: []status.Node{c.n}})
		}))
		server.Listener.Close()
		server.Listener = listener
		server.Start()
		path := filepath.Join(dir, "node.toml")
		if err := os.WriteFile(path, fmt.Appendf(nil, "node = \"a\"\ndata_dir = %q\n", dir), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, errs := run(t, "mysql", "--config", path) // there is no mysqld
		if !strings.HasPrefix(errs, c.want) || c.want == "" && strings.Contains(errs, "applies the log") {
			t.Errorf("%s: %q, want %q", c.n.Role, errs, c.want)
		}
		server.Close()
	}
}

// TestFilesOfAFormingNode: a command that needs files of a node that has not begun yet says
// so, and where to look.
func TestFilesOfAFormingNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.toml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "node = \"a\"\ndata_dir = %q\n", t.TempDir()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, args string }{{"node a has no mysqld yet", "mysql"}, {"this node has no log yet", "log ls"}} {
		if _, err := install.Discover(""); err != nil && c.args == "mysql" {
			continue // the error says that there is no MySQL
		}
		code, _, errs := run(t, append(strings.Fields(c.args), "--config", path)...)
		if code != exitFailure || !strings.Contains(errs, c.what) || !strings.HasSuffix(errs, "\"quorate status\" says why\n") {
			t.Errorf("%s: %d, %q", c.args, code, errs)
		}
	}
}

// TestLostLogIsNamed: a node that has had a log is not taken for a node that has none yet.
func TestLostLogIsNamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(t.TempDir(), "node.toml")
	identity := `{"format": 1, "cluster": "orders", "cluster_id": "1", "node": "a", "node_id": "1", "instance": "02000000000000000000000000000000", "log": true}`
	for name, text := range map[string]string{path: fmt.Sprintf("node = \"a\"\ndata_dir = %q\n", dir), filepath.Join(dir, "identity.json"): identity} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // first the directory is missing, then it is empty, as when its disk is not mounted
		if code, _, errs := run(t, "log", "ls", "--config", path); code != exitFailure || !strings.Contains(errs, "but this node has had one: mount it, or put it back") {
			t.Errorf("%d, %q", code, errs)
		}
		if err := os.MkdirAll(filepath.Join(dir, "log"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSettingsOfNodeOutside: a node that takes no part in the cluster does not show defaults as
// the cluster's settings, nor its log, which it has not opened, as empty.
func TestSettingsOfNodeOutside(t *testing.T) {
	var st status.Cluster
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(st) }))
	defer server.Close()
	for _, tc := range []struct {
		role status.Role
		code int
	}{{status.RoleRemoved, exitFailure}, {status.RoleJoining, exitFailure}, {status.RoleForming, exitFailure}, {status.RoleReplica, exitOK}} {
		own := status.Node{Name: "a", Role: tc.role, Reachable: true}
		st = status.Cluster{Self: "a", Nodes: []status.Node{own}}
		for _, command := range [][]string{{"cluster", "show"}, {"node", "list"}, {"cluster", "show", "--json"}, {"node", "list", "--json"}} {
			code, out, errs := run(t, append(command, "--addr", server.Listener.Addr().String())...)
			if code != tc.code || code != exitOK && !strings.Contains(out+errs, "node a does not know what the cluster has agreed on: "+tc.role.Outside()) {
				t.Errorf("%s, %v: %d, %q, %q", tc.role, command, code, out, errs)
			}
		}
		want := []string{"-", "-"}
		if tc.code == exitOK {
			want = []string{"0", "0B"}
		}
		if row := statusRow(own, nil); !slices.Equal(row[4:6], want) {
			t.Errorf("%s: %q", tc.role, row)
		}
	}
}

// TestAgentDiesOverARequest: if the agent dies, the error says that it is not known whether the request
// was done. A request that changes nothing has failed.
func TestAgentDiesOverARequest(t *testing.T) {
	socket := onSocket(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUncertain, `no answer came: EOF; "quorate history" on another node shows whether the primary moved`, []string{"switchover", "--to", "b"}},
		{exitUncertain, `"code":"uncertain"`, []string{"switchover", "--to", "b", "--json"}},
		{exitUnknown, "no answer came", []string{"did-commit", "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}},
		{exitFailure, "no answer came: EOF", []string{"history"}},
	} {
		code, out, errOut := run(t, append(c.args, "--addr", socket)...)
		if code != c.code || !strings.Contains(out+errOut, c.want) {
			t.Errorf("%v: exit code %d, %s%s", c.args, code, out, errOut)
		}
	}
}
