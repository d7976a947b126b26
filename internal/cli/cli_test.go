package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quorate/quorate/internal/agent/keys"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/install"
)

// run runs a command line.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(t.Context(), args, &out, &errs, Deps{Version: "v1"})
	return code, out.String(), errs.String()
}

func TestEveryCommandHasAnExample(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s has no example or no description", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand(Deps{}))
}

// TestEmptyValuesAreRefused: a flag with an empty value, such as that of a shell's variable that is not set, is not
// taken as if it were not there: "log export" would write all that there is.
func TestEmptyValuesAreRefused(t *testing.T) {
	refused := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		args := strings.Fields(cmd.CommandPath())[1:]
		if cmd.ValidateArgs(nil) != nil {
			args = append(args, "on")
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "string" {
				return
			}
			code, out, errs := run(t, append(args, "--"+f.Name+"=")...)
			if code != exitUsage || out != "" || !strings.Contains(errs, f.Name+" is empty: give it one") && !strings.Contains(errs, "--"+f.Name+" must be one of") {
				t.Errorf("%s --%s=: exit code %d, %q, %q", cmd.CommandPath(), f.Name, code, out, errs)
			}
			refused++
		})
	}
	walk(newRootCommand(Deps{}))
	if refused < 50 {
		t.Errorf("%d flags were tried", refused)
	}
	for _, line := range []string{"log export --out x --until-index 0", "log dump --until-index 0", "log dump --to 0"} {
		code, out, errs := run(t, append(strings.Fields(line), "--dir", t.TempDir())...)
		if code != exitUsage || out != "" || !strings.Contains(errs, "--until-index 0: the log begins at entry 1") {
			t.Errorf("%s: exit code %d, %q, %q", line, code, out, errs)
		}
	}
}

func sampleStatus() status.Cluster {
	return status.Cluster{
		Cluster: "orders", ClusterID: "1f", Self: "a", Primary: "a",
		Nodes: []status.Node{
			{
				ID: 1, Name: "a", Kind: cluster.KindFull, Reachable: true, Role: status.RolePrimary, Weight: 7, Term: 7,
				LogFirst: 1, LogLast: 120, LogBytes: 96 << 10, LogCommit: 119, Applied: 119, Mysqld: status.MysqldRunning, ServerVersion: "9.7.4",
				Events: 4, EventNames: "app.a, app.b, app.c",
			},
			{
				ID: 2, Name: "b", Kind: cluster.KindFull, Reachable: true, Role: status.RoleErrant, Term: 7,
				LogFirst: 40, LogLast: 119, LogBytes: 80 << 10, LogCommit: 118, Applied: 100, LagTransactions: 42, LagBytes: 3 << 20, LagSeconds: 1.25,
				StageBlocked: "no space left\non c",
				Mysqld:       status.MysqldRunning, Reason: "not in\tthe log\n", Errant: "uuid:1-2", ErrantSaved: "2 of 2 transactions in /d",
				LogState: status.LogOK, PurgeBlocked: "node c needs it",
			},
			{
				ID: 3, Name: "c", Kind: cluster.KindFull, AgeMs: 61234, Role: status.RoleReplica, Term: 6,
				LogFirst: 1, LogLast: 90, LogBytes: 70 << 10, LogCommit: 90, Applied: 90, Mysqld: status.MysqldStopped,
				LogState: status.LogFull, LogDetail: "no space left",
			},
			{ID: 4, Name: "d", Kind: cluster.KindFull},
		},
	}
}

const sampleTable = `cluster orders, primary a, as node a sees it

NODE  KIND  ROLE         WEIGHT  LOG             SIZE   LAG          MYSQLD
a     full  primary      7       120             96KiB  -            running 9.7.4
b     full  errant       0       119             80KiB  1.2s, 42 tx  running
c     full  unreachable  0       90 (29 behind)  70KiB  unknown      -
d     full  unknown      0       -               -      -            -

a: events: 4 not run: app.a, app.b, app.c, …
b: not in the log
b: errant: uuid:1-2
b: saved: 2 of 2 transactions in /d
b: purge: node c needs it
b: stage: no space left on c
c: last heard 1m1.2s ago, as replica
c: log full: no space left
d: not heard since this agent started
`

func TestStatusTable(t *testing.T) {
	if d := cmp.Diff(sampleTable, statusTable(sampleStatus(), false)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	st := sampleStatus()
	st.Nodes[1].Role, st.Nodes[1].Reason, st.Nodes[1].Errant, st.Nodes[1].StageBlocked = status.RoleReplica, "", "", ""
	st.Nodes[3].Reachable, st.Nodes[3].Role = true, status.RolePromoting
	var codes []string
	for line := range strings.Lines(statusTable(st, true)) {
		rest, ok := strings.CutPrefix(line, "\x1b[")
		if !ok {
			continue
		}
		code, _, _ := strings.Cut(rest, "m")
		codes = append(codes, code)
		if !strings.HasSuffix(line, "\x1b[0m\n") {
			t.Errorf("the colour does not end: %q", line)
		}
	}
	if d := cmp.Diff([]string{"1", ansiGreen, "0", ansiRed, "33"}, codes); d != "" {
		t.Errorf("colours (-want +got):\n%s", d)
	}
}

// TestHelpIsNarrow: no line of any help is longer than the 80 columns of a terminal.
func TestHelpIsNarrow(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		_, out, _ := run(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpColumns {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand(Deps{}))
}

// TestRootHelp: one screen has every command, once.
func TestRootHelp(t *testing.T) {
	_, out, _ := run(t, "--help")
	if !strings.Contains(out, "Also: version, completion, exit-codes\n") {
		t.Errorf("no word of the version:\n%s", out)
	}
	if rows := strings.Count(out, "\n"); rows > helpRows {
		t.Errorf("%d lines, a screen has %d:\n%s", rows, helpRows, out)
	}
	shown := map[string]int{}
	for _, g := range helpGroups() {
		for _, c := range g.commands {
			shown[c[0]]++
		}
	}
	for _, cmd := range newRootCommand(Deps{}).Commands() {
		if want := map[bool]int{true: 1}[cmd.Runnable() && cmd.Name() != "help" && cmd.Name() != "version" && cmd.Name() != "completion"]; shown[cmd.Name()] != want {
			t.Errorf("the help shows %s %d times, want %d", cmd.Name(), shown[cmd.Name()], want)
		}
		delete(shown, cmd.Name())
	}
	if len(shown) > 0 {
		t.Errorf("the help shows commands that there are not: %v", shown)
	}
	if code, out, _ := run(t, "help", "exit-codes"); code != exitOK || !strings.Contains(out, "did-commit has its own") {
		t.Errorf("help exit-codes: %d, %s", code, out)
	}
}

func TestStatusExitCodes(t *testing.T) {
	st := sampleStatus()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(st)
	}))
	addr := server.Listener.Addr().String()
	if code, out, errs := run(t, "status", "--addr", addr); code != exitOK || out != sampleTable || errs != "" {
		t.Errorf("with a primary: %d, %q, %q", code, out, errs)
	}
	code, out, _ := run(t, "status", "--addr", addr, "--json")
	var got status.Cluster
	if err := json.Unmarshal([]byte(out), &got); code != exitOK || err != nil {
		t.Errorf("--json: %d, %v", code, err)
	}
	if d := cmp.Diff(st, got); d != "" {
		t.Errorf("--json (-want +got):\n%s", d)
	}
	st.Primary = ""
	code, out, errs := run(t, "status", "--addr", addr)
	if code != exitNoPrimary || !strings.HasPrefix(out, "cluster orders, NO PRIMARY, as node a") || errs != "quorate: the cluster has no primary\n" {
		t.Errorf("without a primary: %d, %q, %q", code, out, errs)
	}
	server.Close()
	code, out, errs = run(t, "status", "--addr", addr)
	if code != exitFailure || out != "" || !strings.HasPrefix(errs, "quorate: ask agent at "+addr+": ") {
		t.Errorf("nobody there: %d, %q, %q", code, out, errs)
	}
}

// stopAfter is a writer that ends a context at its nth write.
type stopAfter struct {
	text strings.Builder
	n    int
	stop context.CancelFunc
}

func (w *stopAfter) Write(p []byte) (int, error) {
	if w.n--; w.n == 0 {
		w.stop()
	}
	return w.text.Write(p)
}

// TestStatusWatch: status --watch goes on until it is ended, also while nobody answers. Its clock shows UTC, as all
// times in the status do.
func TestStatusWatch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(sampleStatus())
	}))
	addr := server.Listener.Addr().String()
	for want, addr := range map[string]string{"cluster orders, primary a": addr, "is the agent running": "127.0.0.1:1"} {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		out := &stopAfter{n: 2, stop: stop}
		code := Main(ctx, []string{"status", "--watch", "--addr", addr}, out, out, Deps{})
		if code != exitOK || strings.Count(out.text.String(), want) != 2 {
			t.Errorf("%d, %q, want %q twice", code, out.text.String(), want)
		}
		if clock := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d UTC `); len(clock.FindAllString(out.text.String(), -1)) != 2 {
			t.Errorf("%q does not begin with the time in UTC", out.text.String())
		}
		stop()
	}
	server.Close()
}

func TestStatusAddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.toml")
	for listen, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1:1", "0.0.0.0:2": "localhost:2", ":3": "localhost:3", "[::]:4": "localhost:4", "[::1]:5": "[::1]:5",
	} {
		text := strings.Replace(config.Example(), "127.0.0.1:7401", listen, 1)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := statusAddress(path, ""); err != nil || got != want {
			t.Errorf("api.listen %s: asks %s, %v, want %s", listen, got, err, want)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Replace(config.Example(), "127.0.0.1:7401", "127.0.0.1:6", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(configVariable, path)
	if got, err := statusAddress("", ""); err != nil || got != "127.0.0.1:6" {
		t.Errorf("by %s: %s, %v", configVariable, got, err)
	}
	t.Setenv(configVariable, "")
	if got, err := statusAddress("", ""); err != nil || got != "127.0.0.1:7401" {
		t.Errorf("default: %s, %v", got, err)
	}
}

// TestUnreadableConfigIsThere: only a file that does not exist is none. Of any other file the command must say that it
// cannot be read: the defaults are not what the operator has set.
func TestUnreadableConfigIsThere(t *testing.T) {
	dir := t.TempDir()
	if path := ifPresent(filepath.Join(dir, "node.toml")); path != "" {
		t.Errorf("%s does not exist", path)
	}
	file, loop := filepath.Join(dir, "file"), filepath.Join(dir, "loop")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("loop", loop)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "node.toml"), loop} { // these fail for root, too
		if ifPresent(path) != path {
			t.Errorf("%s counts as absent", path)
		}
		if _, err := agentConfig(path); err == nil || !strings.Contains(err.Error(), "cannot read it") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestErrorsAreOneLineEach(t *testing.T) {
	var errs bytes.Buffer
	path := filepath.Join(t.TempDir(), "node.toml")
	if err := os.WriteFile(path, []byte(config.Example()), 0o600); err != nil {
		t.Fatal(err)
	}
	deps := Deps{RunAgent: func(context.Context, config.Config, *slog.Logger, string) error {
		return errors.Join(errors.New("first"), errors.New("second\nthird"))
	}}
	code := Main(t.Context(), []string{"run", "--config", path}, &errs, &errs, deps)
	if want := "quorate: first\nquorate: second\nquorate: third\n"; code != exitFailure || errs.String() != want {
		t.Errorf("%d, %q, want %q", code, errs.String(), want)
	}
}

// TestKeyMistakeExit: a key that a person must mend ends the agent with an exit code at which the systemd unit does
// not start it again.
func TestKeyMistakeExit(t *testing.T) {
	var errs bytes.Buffer
	path := filepath.Join(t.TempDir(), "node.toml")
	if err := os.WriteFile(path, []byte(config.Example()), 0o600); err != nil {
		t.Fatal(err)
	}
	deps := Deps{RunAgent: func(context.Context, config.Config, *slog.Logger, string) error {
		return fmt.Errorf("%w: %w", keys.ErrKey, errors.New("why"))
	}}
	code := Main(t.Context(), []string{"run", "--config", path}, &errs, &errs, deps)
	if want := "quorate: " + keys.ErrKey.Error() + ": why\n"; code != exitUsage || errs.String() != want {
		t.Errorf("%d, %q, want %q", code, errs.String(), want)
	}
}

// TestClientArgv: the option file takes the place of --no-defaults as the first
// option, and no password is among the arguments.
func TestClientArgv(t *testing.T) {
	install := &install.Installation{
		Loader: []string{"/p/ld.so", "--library-path", "/p/lib"}, Mysql: "/p/bin/mysql",
		PluginDir: "/p/plugin", CharsetsDir: "/p/charsets",
	}
	client, err := install.ClientArgv()
	if err != nil {
		t.Fatal(err)
	}
	argv := clientArgv(client, "FILE", "SOCKET", []string{"-e", "select 1"})
	program := slices.Index(argv, "/p/bin/mysql")
	if program < 0 || argv[program+1] != "--defaults-file=FILE" || slices.Contains(argv, "--no-defaults") {
		t.Errorf("argv %q", argv)
	}
	want := []string{"--protocol=SOCKET", "--host=localhost", "--socket=SOCKET", "-e", "select 1"}
	if d := cmp.Diff(want, argv[len(argv)-len(want):]); d != "" {
		t.Errorf("the end of argv (-want +got):\n%s", d)
	}
}

// TestOptionFile: a child can read the file, and nobody but its owner may.
func TestOptionFile(t *testing.T) {
	path, err := optionFile("secret")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || !info.Mode().IsRegular() {
		t.Errorf("mode %v, %v, want a regular file with 0600", info.Mode(), err)
	}
	if out, err := exec.Command("cat", path).Output(); err != nil || string(out) != "secret" {
		t.Errorf("a child reads %q, %v", out, err)
	}
}

// TestAnswers: answers tells a server's socket from a socket at which nobody listens, and from a
// missing one. The server sees no connection.
func TestAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := answers(path); err == nil || err.Error() != `no mysqld runs on this node: "quorate status" says why` {
		t.Errorf("none is there: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := answers(path); err != nil {
		t.Errorf("a server listens: %v", err)
	}
	if err := l.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server has seen a connection: %v", err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := answers(path); err == nil {
		t.Error("a server of before is taken for one that listens")
	}
}
