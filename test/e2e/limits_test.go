package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestLimits runs on one cluster the scenarios that need no failure.
func TestLimits(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "GTIDFunctions", f.gtidFunctions)
	f.scenario(t, "Strangers", f.strangers)
	f.scenario(t, "Drift", f.drift)
}

// gtidFunctions compares package gtid with the server's own functions.
func (f *fixture) gtidFunctions(t *testing.T, ctx context.Context) {
	db := f.local(t, f.heal(t, ctx))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		a, b := randomSet(r), randomSet(r)
		var subset bool
		var minus, union string
		err := db.QueryRowContext(ctx, "SELECT GTID_SUBSET(?, ?), GTID_SUBTRACT(?, ?), GTID_SUBTRACT(CONCAT(?, ',', ?), '')",
			a.String(), b.String(), a.String(), b.String(), a.String(), b.String()).Scan(&subset, &minus, &union)
		if err != nil {
			t.Fatalf("%s and %s: %v", a, b, err)
		}
		if got := b.ContainsSet(a); got != subset {
			t.Fatalf("GTID_SUBSET(%s, %s) is %t, ours %t", a, b, subset, got)
		}
		ours, both := a.Clone(), a.Clone()
		ours.Subtract(b)
		both.Union(b)
		for what, pair := range map[string][2]string{"GTID_SUBTRACT": {minus, ours.String()}, "union": {union, both.String()}} {
			server, err := gtid.ParseSet(pair[0])
			if err != nil {
				t.Fatalf("the server's %s %q: %v", what, pair[0], err)
			}
			if text := strings.ReplaceAll(pair[0], ",\n", ","); server.String() != pair[1] || text != pair[1] {
				t.Fatalf("%s of %s and %s: the server says %q, we say %q", what, a, b, pair[0], pair[1])
			}
		}
	}
}

// randomSet has few sources and small numbers, so that sets meet.
func randomSet(r *rand.Rand) *gtid.Set {
	s := &gtid.Set{}
	for range 1 + r.IntN(8) {
		u := gtid.UUID{15: byte(r.IntN(3))}
		tag := gtid.Tag([]string{"", "", "blue"}[r.IntN(3)])
		start := 1 + r.Uint64N(30)
		if err := s.AddInterval(u, tag, start, start+r.Uint64N(12)); err != nil {
			panic(err)
		}
	}
	return s
}

// strangers: the agents of three nodes end with one line, and leave no file: a node of another cluster, a node whose
// name is taken, and a node that has lost its data.
func (f *fixture) strangers(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	b, err := os.ReadFile(f.ConfigPath(2))
	if err != nil {
		t.Fatal(err)
	}
	own := string(b)
	// The same members, but this node's ports are free ones elsewhere.
	moved := strings.NewReplacer(f.RouterAddr(2), "127.9.9.9:6446", f.ReadAddr(2), "127.9.9.9:6447", f.APIAddr(2), "127.9.9.9:7401", f.MysqldAddr(2), "127.9.9.9:3306")
	for name, c := range map[string]struct{ from, to, want string }{
		"another cluster": {`cluster = "dev"`, `cluster = "other"`, `belongs to cluster "other"`},
		"name taken":      {"", "", "two agents run under that name"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		text := moved.Replace(own)
		if c.from != "" {
			text = strings.Replace(text, c.from, c.to, 1)
		}
		text = fmt.Sprintf("key_file = %q\n%s", f.keyFile(2), elsewhere(text, f.DataDir(2), dir))
		path := filepath.Join(t.TempDir(), "node.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(ctx, os.Getenv(binaryVariable), "run", "--config", path).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		var lines []string
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "quorate: ") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 || !strings.Contains(lines[0], c.want) {
			t.Errorf("%s: got %q, want one line with %q", name, lines, c.want)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: the data directory was touched: %v", name, err)
		}
	}
}

// drift: if somebody changes a guarded variable, the server is ended. It comes back with the right value, and the cluster
// goes on.
func (f *fixture) drift(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	before, err := f.NodeStatus(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin(t, primary).ExecContext(ctx, "SET GLOBAL rpl_semi_sync_source_timeout = 1000"); err != nil {
		t.Fatal(err)
	}
	err = f.WaitNode(ctx, primary, "fenced and started again", func(s status.Node) bool {
		return s.Mysqld == status.MysqldRunning && s.MysqldPID != before.MysqldPID
	})
	if err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	var timeout uint64
	err = f.admin(t, primary).QueryRowContext(ctx, "SELECT @@GLOBAL.rpl_semi_sync_source_timeout").Scan(&timeout)
	if err != nil || timeout != math.MaxUint64 {
		t.Fatalf("the timeout is %d, %v", timeout, err)
	}
}

// elsewhere moves a node to another data directory and to a peer address and
// ports that nobody has.
func elsewhere(text, from, to string) string {
	text = strings.Replace(text, fmt.Sprintf("data_dir = %q", from), fmt.Sprintf("data_dir = %q", to), 1)
	var lines []string
	self := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, `name = "c"`):
			self = true
		case self && strings.HasPrefix(line, "peer = "):
			line, self = "peer = \"127.9.9.9:7400\"\n", false
		case strings.HasPrefix(line, "bind = "):
			line = "bind = \"127.9.9.9\"\n"
		case strings.HasPrefix(line, "listen = ") && !strings.Contains(line, "127.9.9.9"):
			line = "listen = \"127.9.9.9:7402\"\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}
