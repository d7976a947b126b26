package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/install"
)

// TestFileWarnings: there is a warning if others may read a password or a hash, or change the configuration, which
// names the program that runs as mysqld.
func TestFileWarnings(t *testing.T) {
	dir := t.TempDir()
	path, password := filepath.Join(dir, "node.toml"), filepath.Join(dir, "p")
	for _, p := range []string{path, password} {
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hash, file := config.Reader{User: "h"}, config.Reader{User: "f", PasswordFile: password}
	for name, c := range map[string]struct {
		mode, passwordMode os.FileMode
		readers            []config.Reader
		want               string
	}{
		"all well":            {0o644, 0o600, []config.Reader{file}, ""},
		"a hash, private":     {0o640, 0o600, []config.Reader{hash}, ""},
		"a hash, for all":     {0o644, 0o600, []config.Reader{hash}, "it has a password_hash, and everybody may read it (mode 0644): chmod o-r "},
		"others may write":    {0o664, 0o600, nil, "others may change it (mode 0664): chmod go-w " + path + ": the agent would not start"},
		"a password for some": {0o600, 0o640, []config.Reader{file}, `the password_file of reader "f" is open to others (mode 0640): let the agent's account own it, and chmod 600 `},
		"no password":         {0o600, 0o600, []config.Reader{{User: "g", PasswordFile: filepath.Join(dir, "none")}}, `the password_file of reader "g" cannot be read: `},
	} {
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(password, c.passwordMode); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(fileWarnings(path, config.Config{Readers: c.readers}), "\n")
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestZoneWarning: a default_time_zone by name is warned of, as no --validate-config does it, but where a server was adopted.
func TestZoneWarning(t *testing.T) {
	dir := t.TempDir()
	warned := func(zone string) bool {
		c := config.Config{DataDir: dir, MySQL: config.MySQL{Variables: map[string]string{"default_time_zone": zone}}}
		text := zoneWarning(c)
		if text != "" && !strings.HasPrefix(text, `mysql.variables.default_time_zone is "`+zone+`", and no offset such as +02:00: mysqld would not start`) {
			t.Errorf("%s: %s", zone, text)
		}
		return text != ""
	}
	if !warned("Europe/Berlin") || warned("+02:00") || warned("SYSTEM") {
		t.Error("a name is to be warned of, and nothing else")
	}
	if err := os.WriteFile(filepath.Join(dir, "adopted.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if warned("Europe/Berlin") {
		t.Error("an adopted server may have tables of time zones")
	}
}

// TestEmptyArgument: an argument that is empty, perhaps because a variable of the shell is not set, is refused. It does
// not stand for the file of $QUORATE_CONFIG.
func TestEmptyArgument(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.toml")
	if err := os.WriteFile(path, []byte("cluster = \"c\"\nnode = \"a\"\n[[member]]\nname = \"a\"\npeer = \"h:1\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(configVariable, path)
	for args, want := range map[string]string{"config check": "FILE is empty", "node remove": "NODE is empty", "sessions": "the argument is empty"} {
		if code, out, errs := run(t, append(strings.Fields(args), "")...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: %d, %q, %q", args, code, out, errs)
		}
	}
}

// TestRunRefusesChangeableConfig: run refuses a configuration that others may change: they could do all that the
// agent may do.
func TestRunRefusesChangeableConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.toml")
	text := "cluster = \"c\"\nnode = \"a\"\n[[member]]\nname = \"a\"\npeer = \"127.0.0.1:7400\"\n[mysql]\nuser = \"nobody\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		mode os.FileMode
		uid  int
		want string
	}{
		{0o644, 0, ""},
		{0o664, 0, "others may change it (mode 0664): chmod go-w "},
		{0o602, 0, "others may change it (mode 0602): chmod go-w "},
		{0o644, 65534, "an agent that is root executes what it names, and "},
	} {
		if err := os.Chmod(path, tc.mode); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(path, tc.uid, 0); err != nil {
				t.Fatal(err)
			}
		} else if tc.uid != 0 {
			continue
		}
		ran := false
		cmd := newRunCommand(Deps{RunAgent: func(context.Context, config.Config, *slog.Logger, string) error { ran = true; return nil }})
		cmd.SetArgs([]string{"--config", path})
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.ExecuteContext(t.Context())
		if ran != (tc.want == "") || ran != (err == nil) || err != nil && (!errors.As(err, new(*exitError)) || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("mode %v, uid %d: ran %t, %v", tc.mode, tc.uid, ran, err)
		}
	}
}

// TestRunWarnsOfReadableHash: if everybody may read a reader's hash, the agent logs a warning at each start.
func TestRunWarnsOfReadableHash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.toml")
	text := "cluster = \"c\"\nnode = \"a\"\n[[member]]\nname = \"a\"\npeer = \"127.0.0.1:7400\"\n[feed]\nreaders_listen = \"127.0.0.1:7403\"\n[[reader]]\nuser = \"cdc\"\npassword_hash = \"" +
		strings.Repeat("ab", 32) + "\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		cmd := newRunCommand(Deps{RunAgent: func(context.Context, config.Config, *slog.Logger, string) error { return nil }})
		cmd.SetArgs([]string{"--config", path})
		cmd.SetErr(&log)
		if err := cmd.ExecuteContext(t.Context()); err != nil || strings.Contains(log.String(), "everybody may read it (mode 0644)") != want {
			t.Errorf("mode %v: %v, %q", mode, err, log.String())
		}
	}
}

// TestTokensWarning: an agent would not start with tokens that others may read, and config check says so.
func TestTokensWarning(t *testing.T) {
	var c config.Config
	c.API.TokensFile = filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(c.API.TokensFile, []byte("read prom "+strings.Repeat("x", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o600: "", 0o640: "(mode 0640): chmod 600 it"} {
		if err := os.Chmod(c.API.TokensFile, mode); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(fileWarnings(c.API.TokensFile, c), "\n")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("mode %v: %q", mode, got)
		}
	}
}

// TestFenceWarnings: root gets no warning, because it may fence. On loopback nobody needs to fence.
func TestFenceWarnings(t *testing.T) {
	var c config.Config
	c.MySQL.Bind = "10.0.0.1"
	if got := fenceWarnings(c); (os.Geteuid() == 0) != (len(got) == 0) {
		t.Errorf("uid %d: %q", os.Geteuid(), got)
	}
	c.MySQL.Bind = "127.0.0.1"
	if got := fenceWarnings(c); len(got) != 0 {
		t.Errorf("on loopback: %q", got)
	}
}

// TestDataDirWarnings: there is a warning if the data directory cannot be written, because the agent would end. The
// check leaves nothing behind.
func TestDataDirWarnings(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o775)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir: "", filepath.Join(dir, "to", "make"): "",
		open:                         "others may write in data_dir " + open + " (drwxrwxr-x): chmod go-w it",
		"/proc/quorate":              "data_dir /proc/quorate cannot be made by uid ",
		file:                         "data_dir " + file + " cannot be written by uid ",
		filepath.Join(file, "below"): "data_dir " + filepath.Join(file, "below") + " cannot be written by uid ",
	} {
		got := strings.Join(dataDirWarnings(path), "\n")
		if want == "" && got != "" || !strings.HasPrefix(got, want) || strings.Contains(got, "\n") || got != "" && !stopsAgent(got) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 1 {
		t.Errorf("it has left %v, %v", found, err)
	}
}

// TestGroupWarnings: an agent does not start without the group that may operate.
func TestGroupWarnings(t *testing.T) {
	for group, want := range map[string]string{
		"": "", "root": "", "nosuchgroup": `control.group: this host has no group "nosuchgroup": the agent would not start`,
	} {
		var c config.Config
		c.Control.Group = group
		if got := strings.Join(groupWarnings(c), "\n"); got != want {
			t.Errorf("%q: %q", group, got)
		}
	}
}

// TestShowWithoutAgent: without an agent a line on stderr says that the cluster's variables are not known.
func TestShowWithoutAgent(t *testing.T) {
	_, example, _ := run(t, "config", "example")
	file := filepath.Join(t.TempDir(), "node.toml")
	text := strings.ReplaceAll(example, "/var/lib/quorate", filepath.Dir(file))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run(t, "config", "show", "--config", file)
	if code != 0 || !strings.Contains(out, "raft.heartbeat") || errs != "quorate: the cluster's variables are not known: no agent answers\n" {
		t.Errorf("exit code %d, %q, stdout:\n%s", code, errs, out)
	}
}

// TestRootLooksForTheAgent: what root finds of an agent of another account is judged for that account.
func TestRootLooksForTheAgent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives a directory away")
	}
	const account = 4711
	c := config.Config{DataDir: t.TempDir()}
	path := filepath.Join(c.DataDir, "node.toml")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, account, account), os.Chmod(c.DataDir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(fileWarnings(path, c), "\n"); !stopsAgent(text) {
		t.Errorf("root's agent: %q", text)
	}
	if err := os.Chown(c.DataDir, account, account); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(fileWarnings(path, c), "\n"); text != "" {
		t.Errorf("the agent of the directory's account: %q", text)
	}
	c.MySQL.User = "nobody"
	if err := os.WriteFile(c.ControlSocket(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if uid := agentUID(c); uid != 0 {
		t.Errorf("root has made the socket: %d", uid)
	}
	if checks := settings(path, []string{"it is open" + stops}, true); !strings.HasSuffix(checks[0].Found, ": the agent would not start again") {
		t.Errorf("beside an agent that runs: %+v", checks)
	}
}

// TestAdoptRemedy: beside an agent neither the same command nor --undo helps.
func TestAdoptRemedy(t *testing.T) {
	for err, again := range map[error]bool{fmt.Errorf("data directory /d %w", agent.ErrInUse): false, errors.New("no space left"): true} {
		text := adoptRemedy(err).Error()
		if strings.Contains(text, "--undo") != again || strings.Contains(text, "stop that agent") == again {
			t.Error(text)
		}
	}
}

// TestHookOfOthers: the agent runs no program that somebody else may change.
func TestHookOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		dir, file os.FileMode
		owner     int
		want      string
	}{
		"right":             {0o755, 0o755, 0, ""},
		"the file":          {0o755, 0o775, 0, "others may change"},
		"its directory":     {0o777, 0o755, 0, "others may change"},
		"a shared place":    {0o777 | os.ModeSticky, 0o755, 0, "others may change"},
		"another's program": {0o755, 0o755, 4711, "belongs to uid 4711"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root gives a file away")
			}
			hook := filepath.Join(t.TempDir(), "hook")
			link := filepath.Join(t.TempDir(), "link")
			if err := errors.Join(os.WriteFile(hook, nil, 0o755), os.Chmod(hook, c.file), os.Chmod(filepath.Dir(hook), c.dir), os.Chmod(filepath.Dir(link), 0o755), os.Symlink(hook, link)); err != nil {
				t.Fatal(err)
			}
			if c.owner != 0 {
				if err := os.Chown(hook, c.owner, c.owner); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range []string{hook, link} {
				var cfg config.Config
				cfg.Hooks.OnChange = []string{path, "x"}
				got := hookChangeable(cfg, os.Geteuid())
				if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
					t.Errorf("%q, want %q", got, c.want)
				}
				if warned := strings.Join(hookWarnings(cfg), "\n"); strings.Contains(warned, "would not start") != (c.want != "") {
					t.Errorf("config check: %q", warned)
				}
			}
		})
	}
}

// TestReflow: paragraphs get new line breaks, and indented lines stay as they are.
func TestReflow(t *testing.T) {
	word := strings.Repeat("x", 39)
	want := word + " " + word + "\ny z\n\n  as\n  it is\n\nend"
	if d := cmp.Diff(want, reflow(word+"\n"+word+" y\nz\n\n  as\n  it is\n\nend")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestShownSettings: each setting says where it comes from. The cluster's variables override the
// file's. Secrets are not shown.
func TestShownSettings(t *testing.T) {
	t.Setenv(install.EnvBaseDir, "/opt/mysql")
	c, err := config.Parse("node.toml", []byte(`cluster = "shop"
node = "a"
[raft]
heartbeat = "50ms"
[hooks]
on_change = ["/h", "x"]
[mysql.variables]
max-connections = 200
sql_mode = "ANSI"
[[reader]]
user = "cdc"
password_hash = "0100000000000000000000000000000000000000000000000000000000000002"`))
	if err != nil {
		t.Fatal(err)
	}
	text := settingsTable("/etc/quorate/node.toml", shownSettings(c, map[string]string{"max_connections": "500", "long_query_time": "1"}))
	var got []string
	for line := range strings.Lines(text) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"cluster shop node.toml:1", "raft.heartbeat 50ms node.toml:4", "raft.election_timeout 1s default", "hooks.on_change /h x node.toml:6",
		"mysql.base_dir /opt/mysql $QUORATE_MYSQL_BASE", `mysql.variables.max-connections 500 cluster (overrides "200" in node.toml:8)`,
		"mysql.variables.sql_mode ANSI node.toml:9", "mysql.variables.long_query_time 1 cluster", "reader[0].user cdc node.toml:11",
		"reader[0].password_hash (not shown) node.toml:12", "control.socket /var/lib/quorate/control.sock default", "feed.readers_max 32 default",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no line %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "0100000") {
		t.Error("the hash of a password is shown")
	}
}

// TestAddressWarnings: config check says where the node is to listen at an address that this host does not have. A name
// that is not found says nothing.
func TestAddressWarnings(t *testing.T) {
	c := config.Default()
	c.Cluster, c.Node, c.Members = "orders", "a", []config.Member{{Name: "a", Peer: "nowhere.invalid:7400", Kind: cluster.KindFull}}
	if got := addressWarnings(t.Context(), c); got != nil {
		t.Errorf("all are here: %q", got)
	}
	c.Members[0].Peer, c.API.Listen, c.MySQL.Bind = "203.0.113.1:7400", "203.0.113.2:7401", "203.0.113.3"
	want := []string{
		"peer: 203.0.113.1 is no address of this host: the agent would not start",
		"api.listen: 203.0.113.2 is no address of this host: the agent would not start",
		"mysql.bind: 203.0.113.3 is no address of this host: the agent would not start",
	}
	if d := cmp.Diff(want, addressWarnings(t.Context(), c)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
