package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestVariables sets server variables on all nodes of a cluster while writers write, and runs doctor on its hosts.
func TestVariables(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.scenario(t, "Doctor", f.doctored)
	f.scenario(t, "Set", f.variablesSet)
	f.scenario(t, "Start", f.variablesStart)
	f.scenario(t, "Events", f.eventsRun)
}

// doctored: on a host whose agent runs, doctor accepts the ports that the agent uses, and finds peers whose keys fit.
func (f *fixture) doctored(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	out := f.must(t, ctx, 1, "doctor")
	for _, line := range []string{"node b: its agent runs", "ports", "this node's agent and mysqld have theirs", "heard of, TLS, its key fits", "commit latency", "0 fail"} {
		if !strings.Contains(out, line) {
			t.Errorf("doctor does not say %q:\n%s", line, out)
		}
	}
}

// variable reads a global variable of node i's mysqld.
func (f *fixture) variable(t *testing.T, ctx context.Context, i int, name string) (value string) {
	t.Helper()
	if err := f.admin(t, i).QueryRowContext(ctx, "SELECT @@GLOBAL."+name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// onAll fails the test unless all mysqlds have a value.
func (f *fixture) onAll(t *testing.T, ctx context.Context, name, want string) {
	t.Helper()
	for i := range f.Len() {
		if got := f.variable(t, ctx, i, name); got != want {
			t.Errorf("%s of %s is %q, want %q", name, f.Name(i), got, want)
		}
	}
}

// variablesSet: a value that mysqld accepts holds on all nodes at once, and after a restart. A value that mysqld refuses,
// and a variable that quorate sets, is refused and set nowhere.
func (f *fixture) variablesSet(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 20)
	if out := f.must(t, ctx, 1, "top", "--once"); !strings.Contains(out, f.Name(primary)) || !strings.Contains(out, "commit ") || strings.Contains(out, "\x1b") {
		t.Errorf("top of a cluster that is written to says %q", out)
	}
	before := f.variable(t, ctx, 0, "net_retry_count")
	out := f.must(t, ctx, f.others(primary)[0], "variables", "set", "net-retry-count=17", "max_error_count=99")
	if !strings.Contains(out, "max_error_count=99, net_retry_count=17") {
		t.Errorf("set: %s", out)
	}
	f.onAll(t, ctx, "net_retry_count", "17")
	f.onAll(t, ctx, "max_error_count", "99")
	f.hasAudited(t, ctx, primary, "set variables max_error_count=99, net_retry_count=17", "done")
	for _, c := range []struct{ why, arg string }{
		{"can't be set to the value of '0'", "net_retry_count=0"},
		{"its value is part of quorate's promise", "sync_binlog=1"},
		{"names a place on a host", "general_log_file=/tmp/x"},
		{"unknown variable", "no_such_variable=1"},
		{"fixed when a data directory is made", "lower_case_table_names=1"},
		{"it must have uncompressed", "protocol_compression_algorithms=zstd"},
	} {
		f.refused(t, ctx, primary, []int{2}, c.why, "variables", "set", "max_error_count=5", c.arg)
	}
	f.onAll(t, ctx, "max_error_count", "99")
	if out := f.must(t, ctx, primary, "variables", "set", "net_retry_count=18", "--dry-run"); !strings.Contains(out, "it could be done now") {
		t.Errorf("dry run: %s", out)
	}
	f.refused(t, ctx, primary, []int{2}, "Unknown system variable", "variables", "set", "maximum_net_buffer_length=8192", "--dry-run")
	f.onAll(t, ctx, "net_retry_count", "17")
	f.variablesBehind(t, ctx, primary)
	replica := f.others(primary)[1]
	out = f.must(t, ctx, primary, "variables", "set", "innodb_read_io_threads=3")
	if !strings.Contains(out, f.Name(replica)+": innodb_read_io_threads waits for a restart: quorate restart-mysqld "+f.Name(replica)) {
		t.Errorf("at a start only: %s", out)
	}
	f.awaitSaid(t, ctx, primary, replica, "variables: innodb_read_io_threads waits for a restart")
	f.must(t, ctx, replica, "restart-mysqld", f.Name(replica))
	if got := f.variable(t, ctx, replica, "innodb_read_io_threads"); got != "3" {
		t.Errorf("after the restart innodb_read_io_threads is %s", got)
	}
	if got := f.variable(t, ctx, replica, "net_retry_count"); got != "17" {
		t.Errorf("after the restart net_retry_count is %s", got)
	}
	f.must(t, ctx, primary, "variables", "unset", "net_retry_count", "innodb_read_io_threads")
	f.onAll(t, ctx, "net_retry_count", before)
	f.onAll(t, ctx, "max_error_count", "99")
	if out := f.must(t, ctx, replica, "variables", "list"); !strings.Contains(out, "max_error_count  99") || strings.Contains(out, "net_retry_count") {
		t.Errorf("list: %s", out)
	}
	load.stop(t)
	f.check(t, ctx)
}

// variablesBehind sets special variables: those of TLS, which mysqld must load again, and the
// buffer pool, whose resize still goes on when the next one is asked for.
func (f *fixture) variablesBehind(t *testing.T, ctx context.Context, primary int) {
	before := f.variable(t, ctx, 0, "innodb_buffer_pool_size")
	f.must(t, ctx, primary, "variables", "set", "tls_version=TLSv1.3", "innodb_buffer_pool_size=256M")
	for i := range f.Len() {
		var tls string
		if err := f.admin(t, i).QueryRowContext(ctx, "SELECT value FROM performance_schema.tls_channel_status WHERE channel = 'mysql_main' AND property = 'Current_tls_version'").Scan(&tls); err != nil || tls != "TLSv1.3" {
			t.Errorf("%s takes %s, %v", f.Name(i), tls, err)
		}
	}
	if _, err := f.quorate(t, ctx, primary, "variables", "unset", "tls_version", "innodb_buffer_pool_size"); err != nil {
		t.Logf("a resize was under way: %v", err)
	}
	for i := range f.Len() {
		if err := devcluster.Poll(ctx, f.Name(i)+" has its buffer pool of before", func(ctx context.Context) (bool, string, error) {
			now := f.variable(t, ctx, i, "innodb_buffer_pool_size")
			return now == before, "it has " + now, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// variablesStart: a mysqld that does not start with the cluster's variables is started without them,
// which its status says, until they are correct. No command sets such a value: here it is written
// into the state that the node has on its disk.
func (f *fixture) variablesStart(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	bad := f.others(primary)[0]
	if err := f.Terminate(ctx, bad); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(f.DataDir(bad), "cluster.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	file["state"].(map[string]any)["variables"] = map[string]string{"innodb_read_io_threads": "x", "max_error_count": "98"}
	if text, err = json.Marshal(file); err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, bad); err != nil {
		t.Fatal(err)
	}
	f.awaitSaid(t, ctx, primary, bad, "mysqld did not start with the cluster's variables, and runs without them")
	f.heal(t, ctx)
	out := f.must(t, ctx, primary, "variables", "set", "max_error_count=97", "--json")
	if !strings.Contains(out, fmt.Sprintf(`"node": %q`, f.Name(bad))) || !strings.Contains(out, "runs without") && !strings.Contains(out, "has ended") {
		t.Errorf("set: %s", out)
	}
	f.must(t, ctx, primary, "restart-mysqld", f.Name(bad))
	f.onAll(t, ctx, "max_error_count", "97")
	f.heal(t, ctx)
	f.check(t, ctx)
}
