package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/commits"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/founding"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/transport"
)

func testConfig(t *testing.T, dir string) config.Config {
	cfg := config.Default()
	cfg.Cluster, cfg.Node, cfg.DataDir = "orders", "a", dir
	for _, name := range []string{"a", "b", "c"} {
		cfg.Members = append(cfg.Members, config.Member{Name: name, Peer: name + ":7400", Kind: cluster.KindFull})
	}
	return cfg
}

// openBoard gives an agent a new status table, where nobody is dialled. The board's clock is the machine's; later
// moves it on.
func openBoard(a *Agent) (later func(time.Duration)) {
	if a.data == nil {
		a.data = newDataDir("", a.self)
	}
	if a.records == nil {
		a.records = history.New(vfs.NewMem(), ".", a.self.Name, slog.New(slog.DiscardHandler))
	}
	if a.logger == nil {
		a.logger = slog.New(slog.DiscardHandler)
	}
	a.departing = a.newDeparting()
	c := a.boardConfig()
	if c.Known == nil {
		c.Known = membership.New(membership.Config{})
	}
	gone := time.Duration(0)
	c.DialError, c.Now = nil, func() time.Time { return time.Now().Add(gone) }
	a.board = board.New(c)
	a.buildRequests()
	a.commits = commits.New()
	a.local.Init(a.localConfig())
	a.stance = a.newStance()
	a.Init(a.memberConfig())
	return func(d time.Duration) { gone += d }
}

// hears has a peer connect, and send this status.
func hears(t *testing.T, a *Agent, s status.Node) {
	t.Helper()
	a.board.PeerUp(s.ID, true)
	if err := a.board.Received(s.ID, s); err != nil {
		t.Fatal(err)
	}
}

func openTestDir(t *testing.T, cfg config.Config) *dataDir {
	t.Helper()
	d, err := prepareDataDir(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDataDirRefusesStrangers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cfg := testConfig(t, dir)
	d := openTestDir(t, cfg)
	if other, err := prepareDataDir(cfg); err != nil {
		t.Fatal(err)
	} else if err := other.open(); err == nil || !strings.Contains(err.Error(), "in use by another quorate agent") {
		t.Fatalf("second agent: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*config.Config)
		want   string
	}{
		{func(c *config.Config) { c.Node = "b" }, `belongs to node "a", not to "b"`},
		{func(c *config.Config) { c.Cluster = "x" }, `of cluster "orders", not to cluster "x"`},
		{func(c *config.Config) { c.Members = c.Members[:2] }, "another list of [[member]]"},
	} {
		changed := cfg
		c.change(&changed)
		if _, err := prepareDataDir(changed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	id := filepath.Join(dir, datadir.IdentityFile)
	b, err := os.ReadFile(id)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(b), `"format": 1`, `"format": 3`, 1)
	if err := os.WriteFile(id, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := prepareDataDir(cfg); err == nil || !strings.Contains(err.Error(), "format 3, this quorate reads up to 2") {
		t.Errorf("newer format: %v", err)
	}
}

func TestDataDirRefusesForeignFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ibdata1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := prepareDataDir(testConfig(t, dir)); err == nil || !strings.Contains(err.Error(), "not quorate's") {
		t.Fatal(err)
	}
	if found, _ := os.ReadDir(dir); len(found) != 1 {
		t.Fatalf("something was written: %v", found)
	}
}

// TestPeerInstanceIsPinned: a node that lost its data directory may not come back under its old name, even after this
// node was restarted.
func TestPeerInstanceIsPinned(t *testing.T) {
	cfg := testConfig(t, filepath.Join(t.TempDir(), "data"))
	d := openTestDir(t, cfg)
	b := transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{1}}
	if err := d.known.Check(b); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openTestDir(t, cfg)
	defer d.Close()
	if err := d.known.Check(b); err != nil {
		t.Fatal(err)
	}
	fresh := transport.Identity{Node: 2, NodeName: "b"}
	if err := d.known.Check(fresh); err == nil || !strings.Contains(err.Error(), `node "b" has an empty data directory`) {
		t.Fatal(err)
	} else if !strings.Contains(err.Error(), `run "quorate node rebuild b" on another node, and start this agent again`) {
		t.Errorf("it says nothing of a rebuild: %v", err)
	}
	d.lives = func(cluster.NodeID) bool { return true }
	if err := d.known.Check(fresh); err == nil || strings.Contains(err.Error(), "rebuild") || !strings.Contains(err.Error(), "two agents run under that name") {
		t.Errorf("beside one that lives: %v", err)
	}
	c := transport.Identity{Node: 3, NodeName: "c"}
	if err := d.known.Check(c); err != nil {
		t.Fatalf("a new node that asks: %v", err)
	}
	c.Instance = [16]byte{3}
	if err := d.known.Check(c); err != nil {
		t.Fatalf("asking pinned something: %v", err)
	}
	e := transport.Identity{Node: 5, NodeName: "e", Instance: [16]byte{5}}
	other := e
	other.Instance[0]++
	if err := d.known.Compare(e); err != nil {
		t.Fatal(err)
	}
	if err := d.known.Check(other); err != nil {
		t.Fatalf("a question pinned something: %v", err)
	}
	if err := d.known.Compare(e); err == nil || !strings.Contains(err.Error(), `node "e" comes with another data directory`) {
		t.Errorf("a question by another one: %v", err)
	}
	b.Instance = [16]byte{2}
	if err := d.known.Check(b); err == nil || !strings.Contains(err.Error(), `node "b" comes with another data directory`) {
		t.Fatal(err)
	}
}

// TestLostLogIsRefused: a directory that has had a log and has none any more is not taken for the directory of a new
// node: it would vote as if it had promised nothing.
func TestLostLogIsRefused(t *testing.T) {
	d := &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, t.TempDir()), datadir.Identity{}, false))}
	if err := d.CheckLog(); err != nil {
		t.Fatalf("a new directory: %v", err)
	}
	if err := errors.Join(d.WriteIdentity(d.Own()), d.HasLog()); err != nil {
		t.Fatal(err)
	}
	if err := d.CheckLog(); err == nil || !strings.Contains(err.Error(), d.Join("log")) {
		t.Fatalf("the log is gone: %v", err)
	}
	if err := os.MkdirAll(d.Join("log"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Join("log", "state"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.CheckLog(); err != nil {
		t.Fatalf("the log is there: %v", err)
	}
}

// TestNoAgentWhileAdopting: an interrupted adoption is finished, or undone, before anything starts.
func TestNoAgentWhileAdopting(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(t, dir)
	for text, want := range map[string]string{
		`{"format": 1, "from": "/srv/db"}`:               `the adoption of /srv/db was interrupted: run "quorate adopt /srv/db" again`,
		`{"format": 1, "from": "/srv/db", "undo": true}`: "undoing the adoption of /srv/db was interrupted",
		`{"format": 2}`: "has format 2, this quorate reads up to 1",
		`{`:             filepath.Join(cfg.DataDir, founding.File) + " is damaged: there is no other copy of it",
	} {
		if err := errors.Join(os.MkdirAll(cfg.DataDir, 0o755), os.WriteFile(filepath.Join(cfg.DataDir, founding.File), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := prepareDataDir(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestDataDirIsNotWritableForOthers: the agent believes what it reads there.
func TestDataDirIsNotWritableForOthers(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o755: true, 0o700: true, 0o775: false, 0o757: false} {
		cfg := testConfig(t, t.TempDir())
		if err := errors.Join(os.MkdirAll(cfg.DataDir, 0o700), os.Chmod(cfg.DataDir, mode)); err != nil {
			t.Fatal(err)
		}
		d, err := prepareDataDir(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = d.open()
		if (err == nil) != want {
			t.Errorf("%v: %v", mode, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
