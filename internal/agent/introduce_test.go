package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/transport"
)

// newcomers are the nodes of a cluster that has not begun; their directories are empty.
func newcomers(t *testing.T, bootstrap bool) (agents []*Agent) {
	t.Helper()
	var all []config.Config
	var members []config.Member
	for _, name := range []string{"a", "b", "c"} {
		cfg := loneConfig(t)
		cfg.Node, cfg.Bootstrap = name, bootstrap
		members = append(members, config.Member{Name: name, Peer: cfg.Members[0].Peer, Kind: cluster.KindFull})
		all = append(all, cfg)
	}
	for _, cfg := range all {
		cfg.Members = members
		agents = append(agents, loneAgent(t, cfg))
	}
	return agents
}

// introducing has a node introduce itself; the result comes at the end.
func introducing(t *testing.T, ctx context.Context, a *Agent) <-chan error {
	t.Helper()
	if err := a.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.unlisten)
	ended := make(chan error, 1)
	go func() { ended <- a.introduce(ctx) }()
	return ended
}

// awaitForming waits until a node says that it waits for another one that does not answer.
func awaitForming(t *testing.T, a *Agent, silent string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		changed := a.board.Changes()
		own := a.board.Own()
		if own.Role == status.RoleForming && strings.Contains(own.Reason, "and "+silent+" not answered") {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			t.Fatalf("node %s is %s: %s", a.self.Name, own.Role, own.Reason)
		}
	}
}

// TestNobodyBeginsAlone: two of three nodes have no data. They wait for the third, which may have some.
func TestNobodyBeginsAlone(t *testing.T) {
	nodes := newcomers(t, false)
	ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	var ended []<-chan error
	for _, a := range nodes[:2] {
		ended = append(ended, introducing(t, ctx, a))
	}
	for _, a := range nodes[:2] {
		awaitForming(t, a, "node c has")
	}
	ended = append(ended, introducing(t, ctx, nodes[2]))
	var all, begun sync.WaitGroup
	begun.Add(len(nodes))
	for i, a := range nodes {
		all.Go(func() {
			err := <-ended[i]
			if empty := datadir.New(vfs.OS{}, a.cfg.DataDir).CheckEmpty(); err != nil || empty != nil || a.board.Own().Reason != "" {
				t.Errorf("node %s: %v, it has written something: %v, it says %q", a.self.Name, err, empty, a.board.Own().Reason)
			}
			begun.Done()
			_ = a.peers.Run(ctx) // it answers as a node with data from now on
		})
	}
	begun.Wait()
	end()
	all.Wait()
}

// TestKnockWithoutAName: the name that a stranger shows is shown to people only if a node can have that name.
func TestKnockWithoutAName(t *testing.T) {
	i := introduced{Knocks: &join.Knocks{Self: "a"}}
	for _, name := range []string{"", "b\n2026 all is well", "b; run this", strings.Repeat("b", 1000)} {
		err := i.CheckUnknown(transport.Identity{NodeName: name, Instance: [16]byte{1}})
		if r, ok := errors.AsType[*transport.RejectedError](err); !ok || r.Code != transport.CodeMalformed || i.By() != "" {
			t.Errorf("%q: %v, kept %q", name, err, i.By())
		}
	}
	if err := i.CheckUnknown(transport.Identity{NodeName: "b", Instance: [16]byte{1}}); err == nil || i.By() != "b" {
		t.Errorf("%v, kept %q", err, i.By())
	}
}

// TestMountedWhileItWaits: the disk of a node that waits is mounted. The node starts again, and changes nothing of
// what is there.
func TestMountedWhileItWaits(t *testing.T) {
	a := newcomers(t, false)[0]
	ended := introducing(t, t.Context(), a)
	awaitForming(t, a, "nodes b, c have")
	path := filepath.Join(a.cfg.DataDir, datadir.IdentityFile)
	writeTestFile(t, path, "of before")
	if err := <-ended; err == nil || !a.again || !strings.Contains(err.Error(), "starts again") {
		t.Errorf("it ends with %v, exit noted %t", err, a.again)
	}
	if err := a.data.open(); err == nil || !strings.Contains(err.Error(), "was empty a moment ago") {
		t.Errorf("mounted a moment later: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "of before" {
		t.Errorf("it is %q now, %v", b, err)
	}
}

// TestUnusableDataDir: for example, nobody can write in a mount point. The node ends before it tells anybody that it
// is empty: that would cost it what is on its disk.
func TestUnusableDataDir(t *testing.T) {
	inUse := func(t *testing.T, cfg config.Config) string {
		d, err := prepareDataDir(cfg)
		if err == nil {
			err = d.Reserve()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return cfg.DataDir
	}
	for name, c := range map[string]struct {
		dir  func(*testing.T, config.Config) string
		want string
	}{
		"cannot be made": {func(*testing.T, config.Config) string { return "/proc/quorate/data" }, "create data directory"},
		"cannot be written": {func(t *testing.T, cfg config.Config) string {
			if err := os.MkdirAll(filepath.Join(cfg.DataDir, datadir.LockFile), 0o755); err != nil { // it is no file
				t.Fatal(err)
			}
			return cfg.DataDir
		}, "write in data directory"},
		"another agent forms there": {inUse, "in use by another quorate agent"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newcomers(t, false)[0]
			a.data.Dir = datadir.New(vfs.OS{}, c.dir(t, a.cfg))
			peer, err := net.Listen("tcp", a.cfg.Members[1].Peer)
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			ctx, end := context.WithTimeout(t.Context(), 5*time.Second)
			defer end()
			if err := <-introducing(t, ctx, a); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it ends with %v, want %q", err, c.want)
			}
			if err := peer.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if conn, err := peer.Accept(); err == nil {
				t.Errorf("it has asked a peer: %v", conn.RemoteAddr())
			}
		})
	}
}

// TestNothingStaysOfAStranger: what was made for the lock is removed with it, unless this node has begun there;
// nothing else is removed.
func TestNothingStaysOfAStranger(t *testing.T) {
	top := t.TempDir()
	cfg := testConfig(t, filepath.Join(top, "quorate", "data"))
	reserved := func() *dataDir {
		d, err := prepareDataDir(cfg)
		if err == nil {
			err = d.Reserve()
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	gone := func(d *dataDir, path string, want bool) {
		t.Helper()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); (err != nil) != want {
			t.Errorf("%s: %v, want it gone: %t", path, err, want)
		}
	}
	gone(reserved(), filepath.Join(top, "quorate"), true)
	if _, err := os.Stat(top); err != nil {
		t.Error("a directory that was there is gone")
	}
	d := reserved()
	if err := os.Rename(cfg.DataDir, cfg.DataDir+".point"); err != nil { // a disk is mounted there
		t.Fatal(err)
	}
	writeTestFile(t, d.Join(datadir.LockFile), "")
	gone(d, filepath.Join(cfg.DataDir, datadir.LockFile), false)
	gone(reserved(), filepath.Join(cfg.DataDir, datadir.LockFile), false) // it was there before
	d = reserved()
	if err := os.Rename(cfg.DataDir, cfg.DataDir+".other"); err != nil { // it is mounted, and empty
		t.Fatal(err)
	}
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	if !d.Held() {
		t.Error("the lock is not of the directory that is there now")
	}
	gone(d, filepath.Join(cfg.DataDir, datadir.LockFile), false) // it has begun
}

// removing refuses every peer as one that was removed.
type removing struct{ stranger }

func (removing) CheckPeer(transport.Identity) error {
	return &transport.RejectedError{Code: transport.CodeRemoved, Text: "it was removed"}
}

// TestRemovedWithoutDataDir: a node whose directory was moved away notes in a new one that it was removed.
func TestRemovedWithoutDataDir(t *testing.T) {
	nodes := newcomers(t, false)
	a, b := nodes[0], nodes[1]
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	peer := transport.New(transport.Config{
		Identity: b.transportIdentity(), Listen: b.self.Peer, Peers: b.transportPeers(), Handler: removing{}, Logger: b.logger,
	})
	if err := peer.Listen(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- peer.Run(ctx) }()
	if err := a.Run(ctx); err == nil || !a.again {
		t.Errorf("it ends with %v, exit noted %t", err, a.again)
	}
	end()
	<-ended
	if d, err := prepareDataDir(a.cfg); err != nil || d.Fresh() || !d.Own().Removed {
		t.Errorf("started again: %+v, %v", d.Own(), err)
	}
}

// TestBootstrap: a person's word is enough, for a node that has no data.
func TestBootstrap(t *testing.T) {
	a := newcomers(t, true)[0]
	if err := <-introducing(t, t.Context(), a); err != nil {
		t.Error(err)
	}
	if err := errors.Join(a.data.open(), a.data.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := newAgent(a.cfg, a.local.Installed.Load(), a.logger, ""); !errors.Is(err, ErrNoBootstrap) {
		t.Errorf("over data: %v", err)
	}
	joins := loneConfig(t)
	joins.Bootstrap, joins.Node, joins.Join = true, "d", config.Join{Peer: "10.0.0.9:7400", Kind: cluster.KindFull}
	if _, err := newAgent(joins, a.local.Installed.Load(), a.logger, ""); !errors.Is(err, ErrNoBootstrap) {
		t.Errorf("of a node that joins: %v", err)
	}
}

// TestFirstStartThatWasCut: after a crash between the lock and the identity the directory still counts as empty.
func TestFirstStartThatWasCut(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{datadir.LockFile, datadir.IdentityFile + ".tmp"} {
		writeTestFile(t, filepath.Join(dir, name), "")
	}
	if err := datadir.New(vfs.OS{}, dir).CheckEmpty(); err != nil {
		t.Error(err)
	}
	writeTestFile(t, filepath.Join(dir, "log"), "")
	if err := datadir.New(vfs.OS{}, dir).CheckEmpty(); err == nil {
		t.Error("a directory with a log is empty")
	}
}
