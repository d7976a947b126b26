package config

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/internal/cluster"
)

// header is the required part of a file; it has 7 lines.
const header = `cluster = "orders"
node = "a"
data_dir = "/d"
[[member]]
name = "a"
peer = "10.0.0.1:7400"
# the tables of a test begin at line 8
`

// lines returns the messages of an error, one per problem.
func lines(err error) []string {
	var texts []string
	for _, e := range Problems(err) {
		texts = append(texts, e.Error())
	}
	return texts
}

// check runs Load's and Validate's checks on a text, as `config check` does.
func check(text string) []string {
	c, err := Parse("node.toml", []byte(text))
	if err == nil {
		err = c.Validate()
	}
	return lines(err)
}

func TestExampleIsTheDefault(t *testing.T) {
	c, err := Parse("example", []byte(Example()))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Cluster, want.Node = "orders", "a"
	want.Members = []Member{
		{"a", "10.0.0.1:7400", cluster.KindFull, cluster.WeightDefault, cluster.KeyOf([]byte("a"))},
		{"b", "10.0.0.2:7400", cluster.KindFull, cluster.WeightDefault, cluster.KeyOf([]byte("b"))},
		{"c", "10.0.0.3:7400", cluster.KindFull, cluster.WeightDefault, cluster.KeyOf([]byte("c"))},
	}
	if d := cmp.Diff(want, c, cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("Example differs from Default (-want +got):\n%s", d)
	}
	for key := range new(Config).fields() {
		if c.source.lines[key] == 0 {
			t.Errorf("the example does not show %s", key)
		}
	}
	for key := range new(Member).fields() {
		if c.source.lines["member[0]."+key] == 0 {
			t.Errorf("the example does not show member.%s", key)
		}
	}
	for key := range new(Reader).fields() {
		if !strings.Contains(Example(), "\n# "+key+" ") && !strings.Contains(Example(), " "+key+" = ") {
			t.Errorf("the example does not show reader.%s", key)
		}
	}
}

func TestLoadReadsEveryKey(t *testing.T) {
	c, err := Parse("node.toml", []byte(`
cluster = "c1"
node = "n5"
data_dir = "/srv/q"
log_level = "debug"
member = [{name = "n1", peer = "h1:1", kind = "full"}, {name = "n2", peer = "h2:9"}, {name = "n3", peer = "h3:9", kind = "logger"}, {name = "n4", peer = "h4:9", weight = 9}]
join = {peer = "h5:9", kind = "learner"}
api = {listen = "127.0.0.1:3", tokens_file = "/t", pprof = true}
control = {socket = "/run/q.sock", group = "dba"}
feed = {listen = "127.0.0.1:1", readers_listen = ":4", readers_max = 3}
hooks = {on_change = ["/etc/hook", "a, b"], timeout = "2s"}
backup = {put_command = "put", get_command = "get", list_command = "list", delete_command = "delete", command_idle = "2h", recipients = ["age1x", "age1y"], interval = "5s", keep_full = 2}
raft = {heartbeat = "50ms", election_timeout = "700ms"}
log = {segment_size = "64MiB", retention_size = "2GiB", retention_age = "1h", stage_size_min = "1MiB", cache_size = 33554432, prefetch_size = "16MiB"}
[mysql]
base_dir = "/opt/mysql"
port = 3307
bind = "10.0.0.2"
user = "mysql"
promotion_timeout = "1m"
max_apply_lag = "3s"
xa_prepared_max_age = "2h"
bind_unfenced_stale_reads = true
variables = { max_connections = 500, innodb_adaptive_hash_index = false, innodb_buffer_pool_size = "1G", innodb_max_dirty_pages_pct = 75.5 }
[[reader]]
user = "cdc"
password_hash = "0100000000000000000000000000000000000000000000000000000000000002"
allow = "10.1.2.3/8, ::1"
decompress = true
[[reader]]
user = "copy"
password_file = "/p"
sql = true
[router]
read_write = ":2"
hold_max = 7
read_only = ":5"
read_max_lag = "7s"
read_grace = "1m"
read_primary = true
forward = false
hold_timeout = "5s"`))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Cluster: "c1", Node: "n5", DataDir: "/srv/q", LogLevel: slog.LevelDebug,
		Members: []Member{{"n1", "h1:1", cluster.KindFull, cluster.WeightDefault, ""}, {"n2", "h2:9", cluster.KindFull, cluster.WeightDefault, ""},
			{"n3", "h3:9", cluster.KindLogger, cluster.WeightDefault, ""}, {"n4", "h4:9", cluster.KindFull, 9, ""}},
		Join: Join{"h5:9", cluster.KindLearner}, Raft: Raft{50 * time.Millisecond, 700 * time.Millisecond}, Log: Log{64 * MiB, 2 * GiB, time.Hour, MiB, 32 * MiB, 16 * MiB},
		MySQL: MySQL{"/opt/mysql", 3307, "10.0.0.2", true, "mysql", time.Minute, 3 * time.Second, 2 * time.Hour, map[string]string{
			"max_connections": "500", "innodb_adaptive_hash_index": "false",
			"innodb_buffer_pool_size": "1G", "innodb_max_dirty_pages_pct": "75.5",
		}},
		Readers: []Reader{
			{User: "cdc", PasswordHash: [32]byte{0: 1, 31: 2}, Decompress: true,
				Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
			{User: "copy", PasswordFile: "/p", SQL: true}},
		Feed: Feed{"127.0.0.1:1", ":4", 3}, Router: Router{":2", ":5", 7 * time.Second, time.Minute, true, 5 * time.Second, 7, nil, false}, API: API{"127.0.0.1:3", "/t", true}, Control: Control{"/run/q.sock", "dba"},
		Hooks:  Hooks{[]string{"/etc/hook", "a, b"}, 2 * time.Second},
		Backup: Backup{"", "put", "get", "list", "delete", 2 * time.Hour, []string{"age1x", "age1y"}, 5 * time.Second, 2},
	}
	if d := cmp.Diff(want, c, cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateComparable(netip.Prefix{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
}

// TestAllow: networks may be a list, or one text with commas, for the router and for readers.
func TestAllow(t *testing.T) {
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, text := range []string{`["10.0.0.0/8", "::1"]`, `"10.0.0.0/8, ::1"`} {
		c, err := Parse("node.toml", []byte("[router]\nallow = "+text+"\n[[reader]]\nallow = "+text))
		if err != nil || !slices.Equal(c.Router.Allow, want) || !slices.Equal(c.Readers[0].Allow, want) {
			t.Errorf("%s: %v, %+v, %+v", text, err, c.Router, c.Readers)
		}
	}
	for _, text := range []string{`[10]`, `["10.0.0.0/33"]`, `[["::1"]]`} {
		if _, err := Parse("node.toml", []byte("[router]\nallow = "+text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	c := Default()
	c.Router.Allow, c.MySQL.Bind = want, "10.0.0.1"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "router.allow") {
		t.Errorf("with mysql.bind: %v", err)
	}
}

// TestControlSocket: the socket is in the data directory unless the file says otherwise. A path that is
// too long for the kernel is refused.
func TestControlSocket(t *testing.T) {
	c := Default()
	c.Cluster, c.Node, c.Members = "c", "a", []Member{{"a", "h:1", cluster.KindFull, cluster.WeightDefault, ""}}
	c.DataDir = "/" + strings.Repeat("d", socketPathBytesMax-len("//control.sock"))
	if err := c.Validate(); err != nil || len(c.ControlSocket()) != socketPathBytesMax {
		t.Errorf("the longest: %v, %d bytes", err, len(c.ControlSocket()))
	}
	c.DataDir += "d"
	want := []string{"config: the control socket's path " + c.DataDir + "/control.sock has 108 bytes, the kernel takes 107: " +
		"set control.socket to a shorter one, such as /run/quorate/a.sock"}
	if d := cmp.Diff(want, lines(c.Validate())); d != "" {
		t.Errorf("too long (-want +got):\n%s", d)
	}
	c.Control.Socket = "/run/quorate/a.sock"
	if err := c.Validate(); err != nil || c.ControlSocket() != "/run/quorate/a.sock" {
		t.Errorf("elsewhere: %v, %s", err, c.ControlSocket())
	}
	c.Control.Socket = "a.sock"
	if d := cmp.Diff([]string{`config: control.socket "a.sock" is not an absolute path: write a path that starts with /`}, lines(c.Validate())); d != "" {
		t.Errorf("relative (-want +got):\n%s", d)
	}
}

// TestProblems runs testdata/problems: `check` loads and validates the text
// under it and prints the messages; `check header` puts header above the text.
func TestProblems(t *testing.T) {
	datadriven.RunTest(t, "testdata/problems", func(t *testing.T, d *datadriven.TestData) string {
		text := d.Input + "\n"
		if d.HasArg("header") {
			text = header + text
		}
		return strings.Join(append(check(text), ""), "\n")
	})
}

// TestVariables: a number is given to mysqld as it was meant. mysqld takes the e of 1e+06 for a unit. Of a variable that
// has two values nobody knows which is meant.
func TestVariables(t *testing.T) {
	read := func(text string) (map[string]string, error) {
		c, err := Parse("node.toml", []byte("[mysql.variables]\n"+text))
		return c.MySQL.Variables, err
	}
	got, err := read("a = 1000000.0\nb = 1e6\nc = 75.5\nd = 0.00001\nmaximum_a = 1\n")
	want := map[string]string{"a": "1000000", "b": "1000000", "c": "75.5", "d": "0.00001", "maximum_a": "1"}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, text := range []string{"max-connections = 5\nmax_connections = 6\n", "max_connections = 6\nMax_Connections = 6\n", "loose-max_connections = 5\nmax_connections = 6\n"} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), "are the same variable: keep one of them") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTooManyMembers(t *testing.T) {
	text := header
	for _, name := range strings.Split("bcdefgh", "") {
		text += "[[member]]\nname = \"" + name + "\"\npeer = \"h:" + "1" + string(name[0]-'a'+'0') + "\"\n"
	}
	want := []string{`config node.toml:4: 8 members are too many: at most 7`}
	if d := cmp.Diff(want, check(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestWarnings(t *testing.T) {
	c := Config{Members: []Member{{Name: "a"}, {Name: "b"}}}
	want := []string{"2 members survive no more failures than 1 would: an odd number is better"}
	if d := cmp.Diff(want, c.Warnings()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	c.Members = c.Members[:1]
	if got := c.Warnings(); got != nil {
		t.Errorf("one member: %q", got)
	}
	c.Members = []Member{{Name: "a", Weight: 1}, {Name: "b", Kind: cluster.KindLogger, Weight: 5}, {Name: "c"}}
	want = []string{"only one of 3 members can become the primary; while it is down, the cluster has no primary"}
	if d := cmp.Diff(want, c.Warnings()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestValidateWithoutFile(t *testing.T) {
	c := Default()
	c.Cluster, c.Node, c.Members = "c", "a", []Member{{"a", "h:1", cluster.KindFull, cluster.WeightDefault, ""}}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.LogLevel, c.DataDir = 3, ""
	want := []string{
		`config: data_dir "" is not an absolute path: write a path that starts with /`,
		`config: log_level INFO+3 is unknown: use debug, info, warn or error`,
	}
	if d := cmp.Diff(want, lines(c.Validate())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestRecipientsAreNotPrinted: a key that is no public one may be a private one, and messages go to logs.
func TestRecipientsAreNotPrinted(t *testing.T) {
	c := Default()
	c.Cluster, c.Node, c.Members = "c", "a", []Member{{"a", "h:1", cluster.KindFull, cluster.WeightDefault, ""}}
	c.Backup.Recipients = []string{"age1x", "AGE-SECRET-KEY-1ABC", "secret"}
	want := []string{
		"config: backup.recipients: key 2 is a private key of age, which must be on no host of the cluster: write the public key, which begins with age1",
		"config: backup.recipients: key 3 is no public key of age: age-keygen prints one, which begins with age1",
	}
	if d := cmp.Diff(want, lines(c.Validate())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestLoadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "node.toml")
	if _, err := Load(path); err == nil || err.Error() != "config "+path+": cannot read it: no such file or directory" {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(header), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil || c.Cluster != "orders" {
		t.Errorf("Load: %q, %v", c.Cluster, err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("#\n", fileBytesMax)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || err.Error() != "config "+path+": cannot read it: it is larger than 1MiB" {
		t.Errorf("huge file: %v", err)
	}
}

func TestIDs(t *testing.T) {
	// Part of the format: a change here makes every running cluster refuse its
	// own members. sha256("quorate-node\0orders\0a") and
	// sha256("quorate-cluster\0orders\0a\0b\0c"), computed with sha256sum.
	c := Config{Cluster: "orders", Node: "b", Members: []Member{{Name: "c"}, {Name: "a"}, {Name: "b", Peer: "h:1", Kind: cluster.KindFull}}}
	if got, want := MemberID("orders", "a"), cluster.NodeID(0xc438446843f63ad2); got != want {
		t.Errorf("MemberID = %#x, want %#x", got, want)
	}
	if got, want := c.ClusterID(), uint64(0xae5cad350b359116); got != want {
		t.Errorf("ClusterID = %#x, want %#x", got, want)
	}
	self := cluster.Member{ID: MemberID("orders", "b"), Name: "b", Peer: "h:1", Kind: cluster.KindFull}
	if d := cmp.Diff(self, c.Self()); d != "" {
		t.Errorf("Self (-want +got):\n%s", d)
	}
	moved := Config{Cluster: "orders", Members: []Member{{Name: "a", Peer: "x:1"}, {Name: "b"}, {Name: "c"}}}
	if c.ClusterID() != moved.ClusterID() {
		t.Error("the cluster id depends on addresses or on the order of the members")
	}
	moved.Members[0].Name = "d"
	if c.ClusterID() == moved.ClusterID() {
		t.Error("the cluster id does not depend on the members' names")
	}
}

// FuzzParse: no text makes Parse or Validate panic, and every problem is one line.
func FuzzParse(f *testing.F) {
	f.Add(Example())
	f.Add(header + "[raft]\nheartbeat = 1\n[mysql.variables]\na = 1\n")
	f.Add("member = [{name=\"a\"}, {}]\n[[x]]\ny.z = 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, line := range check(text) {
			if strings.ContainsAny(line, "\n\r") {
				t.Errorf("more than one line: %q", line)
			}
		}
	})
}
