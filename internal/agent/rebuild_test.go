package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/quorumloss"
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
