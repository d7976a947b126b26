package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
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
