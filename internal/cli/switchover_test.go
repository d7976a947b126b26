package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

// TestActions: each command sends the right request, and shows the answer.
func TestActions(t *testing.T) {
	var answer control.Answer
	var asked control.Request
	addr := agentThat(t, &answer, &asked)
	moved := cluster.Switchover{From: "a", To: "b", Why: "it was named", PauseMs: 61.7, Notes: []string{"a\nnote"}}
	planned := cluster.Switchover{From: "a", To: "b", Why: "it was named", DryRun: true}
	fence := cluster.Fence{By: "ann@db1", At: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), Reason: "disk"}
	blocked := cluster.Switchover{From: "a", DryRun: true, Blocks: []string{"b lags"}}
	for line, want := range map[string]struct {
		result any
		asks   string
		says   string
		code   int
	}{
		"switchover --to b": {moved, `switchover {"to":"b","max_pause_ns":2000000000,"wait_ns":10000000000}`,
			"the primary moved from a to b: no writes for about 62 ms\nnote: a note\n", exitOK},
		"switchover --dry-run --wait 1s": {planned, `switchover {"dry_run":true,"max_pause_ns":2000000000,"wait_ns":1000000000}`,
			"the primary would move from a to b: it was named\n", exitOK},
		"switchover --dry-run --max-pause 1s": {blocked, `switchover {"dry_run":true,"max_pause_ns":1000000000,"wait_ns":10000000000}`,
			"the primary would not move\nin the way: b lags\n", exitFailure},
		"switchover --to b --dry-run": {cluster.Switchover{From: "b", To: "b", Why: "it is the primary already", DryRun: true},
			`switchover {"to":"b","dry_run":true,"max_pause_ns":2000000000,"wait_ns":10000000000}`, "nothing to move: node b is the primary already\n", exitOK},
		"restart-mysqld a": {cluster.Restarted{Node: "a", Moved: &moved, Incarnation: 3, Seconds: 2.04}, `restart {"node":"a","max_pause_ns":2000000000}`,
			"the primary moved from a to b: no writes for about 62 ms\nnote: a note\nmysqld of a was restarted in 2.0 s, incarnation 3\n", exitOK},
		"restart-mysqld a --in-place": {cluster.Restarted{Node: "a", Incarnation: 3, Seconds: 2}, `restart {"node":"a","in_place":true,"max_pause_ns":2000000000}`,
			"mysqld of a was restarted in 2.0 s, incarnation 3\n", exitOK},
		"restart-mysqld b": {cluster.Restarted{Node: "b", Incarnation: 3, Seconds: 2, Notes: []string{"b does not apply"}}, `restart {"node":"b","max_pause_ns":2000000000}`,
			"mysqld of b was restarted in 2.0 s, incarnation 3\nnote: b does not apply\n", exitOK},
		"restart-mysqld a --dry-run": {cluster.Restarted{Node: "a", DryRun: true, Moved: &blocked}, `restart {"node":"a","dry_run":true,"max_pause_ns":2000000000}`,
			"the primary would not move\nin the way: b lags\n", exitFailure},
		"restart-mysqld b --dry-run": {cluster.Restarted{Node: "b", DryRun: true, Notes: []string{"meanwhile"}}, `restart {"node":"b","dry_run":true,"max_pause_ns":2000000000}`,
			"mysqld of b would be stopped in order and started again\nnote: meanwhile\n", exitOK},
		"fence b --reason disk": {cluster.FenceResult{Fence: fence, Changed: true, Notes: []string{"c could take over"}}, `fence {"node":"b","reason":"disk"}`,
			"b is fenced: its mysqld is down, and stays so until \"quorate unfence b\"\nnote: c could take over\n", exitOK},
		"fence b --force --yes": {cluster.FenceResult{Fence: fence}, `fence {"node":"b","force":true}`,
			"b was fenced already: fenced by ann@db1 at 2026-01-02 12:00:00 UTC: disk\n", exitOK},
		"fence b --dry-run": {cluster.FenceResult{Fence: fence, Changed: true, DryRun: true}, `fence {"node":"b","dry_run":true}`,
			"no mysqld would run on b until \"quorate unfence b\"\n", exitOK},
		"unfence b": {cluster.FenceResult{Fence: fence, Changed: true}, `unfence {"node":"b"}`,
			"b is not fenced any more: its mysqld starts, see \"quorate status\"\n", exitOK},
		"unfence b -n": {cluster.FenceResult{Fence: fence, Changed: true, DryRun: true}, `unfence {"node":"b","dry_run":true}`,
			"the mysqld of b would be started; it was fenced by ann@db1 at 2026-01-02 12:00:00 UTC: disk\n", exitOK},
		"secrets rotate": {cluster.SecretsRotated{Node: "b"}, `secrets.rotate {}`,
			"node b has new passwords from its agent's next start on: systemctl restart quorate\n", exitOK},
		"unfence  b": {cluster.FenceResult{Notes: []string{"b is replica"}}, `unfence {"node":"b"}`, "b was not fenced by an operator\nnote: b is replica\n", exitOK},
	} {
		answer = control.Answer{Code: control.CodeOK, Result: resultOf(t, want.result)}
		code, out, errs := run(t, append(strings.Fields(line), "--addr", addr)...)
		if got := asked.Name + " " + string(asked.Args); code != want.code || out != want.says || got != want.asks {
			t.Errorf("%s: %d, %q, %q; it asks %s", line, code, out, errs, got)
		}
	}
	for _, line := range []string{"switchover b", "switchover --max-pause x", "restart-mysqld", "fence", "unfence a b", "maintenance on --for -1s", "maintenance on --for 0", "maintenance on --for 59s", "maintenance on --for 721h", "maintenance off --for 1h"} {
		if code, _, errs := run(t, append(strings.Fields(line), "--addr", addr)...); code != exitUsage {
			t.Errorf("%s: exit code %d, %q", line, code, errs)
		}
	}
}

func TestMaintenanceForATime(t *testing.T) {
	st := sampleStatus()
	since := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	st.Maintenance = &cluster.Maintenance{By: "ann@db1", Since: since, Until: since.Add(time.Hour)}
	want := "MAINTENANCE since 2026-01-02 12:00:00 UTC, by ann@db1, until 2026-01-02 13:00:00 UTC: no failover, no node may open"
	if lines := strings.Split(statusTable(st, false), "\n"); lines[1] != want {
		t.Errorf("%q", lines[1])
	}
}
