package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/transport"
)

// TestRebuildForgetsItsPeersLast: a node that crashes on its way to a rebuild is either the former node, which knows
// its peers, or a node that joins.
func TestRebuildForgetsItsPeersLast(t *testing.T) {
	cfg := testConfig(t, filepath.Join(t.TempDir(), "data"))
	d := openTestDir(t, cfg)
	peer := transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{1}}
	if err := d.known.Check(peer); err != nil {
		t.Fatal(err)
	}
	known := func() membership.Known {
		pins, _, err := d.Known()
		if err != nil {
			t.Fatal(err)
		}
		return pins
	}
	const instance = "02000000000000000000000000000000"
	blocked := d.Join(datadir.IdentityFile + ".tmp")
	if err := os.Mkdir(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Rebuild(instance, time.Now()); err == nil {
		t.Fatal("its identity could not be written, and it is to be rebuilt")
	}
	if len(known()) != 1 {
		t.Error("it is the node of before, and knows its peers no more")
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if err := d.Rebuild(instance, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openTestDir(t, cfg)
	if !d.Own().Joining || d.Own().Instance != instance {
		t.Errorf("it is %+v", d.Own())
	}
	if err := d.known.Forget(); err != nil || len(known()) != 0 || d.known.Pinned(2) != "" {
		t.Errorf("who joins knows its peers: %v, %v", known(), err)
	}
	peer.Instance = [16]byte{9}
	if err := d.known.Check(peer); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRecoveryIsItsOwners: files that another user writes would be of no use to the agent.
func TestRecoveryIsItsOwners(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	if err := checkOwner(cfg.DataDir, os.Geteuid()); err != nil {
		t.Error(err)
	}
	if err := checkOwner(cfg.DataDir, os.Geteuid()+1); err == nil || !strings.Contains(err.Error(), "run this as that user") {
		t.Errorf("another user's: %v", err)
	}
	if os.Geteuid() != 0 {
		return // only root can give a directory away
	}
	path := filepath.Join(cfg.DataDir, quorumloss.File)
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(cfg.DataDir, 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := FinishRecovery(cfg); err == nil || !strings.Contains(err.Error(), "belongs to uid 1") {
		t.Errorf("root finishes it: %v", err)
	}
}

// TestRunIsTheOwners: root does not run once the agent of another account, which could then not read its own files.
// An account that finds root's files is told so. Root's directory is root's, and with mysql.user the agent is root.
func TestRunIsTheOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	for _, c := range []struct {
		dir, identity, state, uid int
		want                      string
	}{
		{1, 1, 1, 0, "identity.json belongs to uid 1: run this as that user"},
		{1, 1, 1, 1, ""},
		{1, 1, 0, 1, "cluster.json belongs to uid 0"},
		{1, 0, 0, 0, ""},
		{0, 1, 1, 0, ""},
		{0, 0, 0, 0, ""},
		{1, 0, 0, 1, "identity.json belongs to uid 0: run this as that user, or, if uid 1 is to run the agent from now on, chown -R 1 "},
	} {
		dir := t.TempDir()
		for name, uid := range map[string]int{"": c.dir, datadir.IdentityFile: c.identity, datadir.ClusterState: c.state} {
			path := filepath.Join(dir, name)
			if name != "" {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chown(path, uid, uid); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkOwner(dir, c.uid); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	cfg := loneConfig(t)
	cfg.MySQL.BaseDir, cfg.Members[0].Kind = "/nonexistent", cluster.KindLogger
	oneEntry(t, cfg)
	for _, path := range []string{cfg.DataDir, filepath.Join(cfg.DataDir, datadir.IdentityFile)} {
		if err := os.Chown(path, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := Run(t.Context(), cfg, slog.New(slog.DiscardHandler), "test"); err == nil || !strings.Contains(err.Error(), "belongs to uid 1") {
		t.Errorf("root runs it: %v", err)
	}
}
