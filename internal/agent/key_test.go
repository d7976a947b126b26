package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/keys"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/install"
)

// TestOutdatedKeys: what a configuration says of keys is compared with the cluster state on the disk.
func TestOutdatedKeys(t *testing.T) {
	cfg := loneConfig(t)
	if text := OutdatedKeys(cfg); text != "" {
		t.Errorf("nothing is known: %s", text)
	}
	s := cluster.NewState(cfg.ClusterMembers())
	s.PeerSecurity, s.Version, s.Members[0].Key = cluster.PeersRequire, 3, "q1:x"
	if err := os.MkdirAll(cfg.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := datadir.New(vfs.OS{}, cfg.DataDir).WriteState(cluster.StatePoint{Index: 7, Through: 7, State: s}); err != nil {
		t.Fatal(err)
	}
	if text := OutdatedKeys(cfg); !strings.Contains(text, `key = "q1:x"`) {
		t.Errorf("%q", text)
	}
}

// TestAgentWithoutItsKey: an agent with a key that others may read does not start.
func TestAgentWithoutItsKey(t *testing.T) {
	there := filepath.Join(t.TempDir(), "node.key")
	if err := os.WriteFile(there, []byte("no key"), 0o640); err != nil {
		t.Fatal(err)
	}
	cfg := loneConfig(t)
	cfg.KeyFile, cfg.Members[0].Key = there, cluster.KeyOf([]byte("a"))
	if _, err := newAgent(cfg, &install.Installation{}, slog.New(slog.DiscardHandler), "test"); !errors.Is(err, keys.ErrKey) {
		t.Errorf("an agent with a key that others may read: %v", err)
	}
}
