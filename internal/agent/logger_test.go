package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/core"
)

// TestLoggerNeedsNoMySQL: a logger is built where no MySQL is, and refuses the
// directory of a node that has run one.
func TestLoggerNeedsNoMySQL(t *testing.T) {
	cfg := testConfig(t, filepath.Join(t.TempDir(), "data"))
	cfg.MySQL.BaseDir = "/nonexistent"
	quiet := slog.New(slog.DiscardHandler)
	if _, err := New(cfg, quiet, "v"); err == nil {
		t.Error("a full node was built without a MySQL")
	}
	cfg.Members[0].Kind = cluster.KindLogger
	a, err := New(cfg, quiet, "v")
	if err != nil {
		t.Fatal(err)
	}
	if own := a.board.own(); own.Role != cluster.RoleLogger || own.Mysqld != cluster.MysqldNone || a.runsMysqld() {
		t.Errorf("the logger says of itself: %+v", own)
	}
	d := openTestDir(t, cfg)
	if err := os.Mkdir(d.Join("mysql"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, quiet, "v"); err == nil || !strings.Contains(err.Error(), "is a logger") {
		t.Errorf("a logger over a mysqld's data: %v", err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
}

// TestBoardForCore: core hears of every member, what it is by the configuration
// and how it stands by its own word.
func TestBoardForCore(t *testing.T) {
	cfg := testConfig(t, "")
	cfg.Members[0].Weight, cfg.Members[1].Weight, cfg.Members[2].Kind = 3, 9, cluster.KindLogger
	members := cfg.ClusterMembers()
	var b board
	b.init(cfg, members[0], "v")
	b.peers[members[1].ID] = peerReport{up: true, at: time.Now(), status: cluster.NodeStatus{
		ID: members[1].ID, Role: cluster.RoleReplica, Applied: 7, LogLast: 9, LagSeconds: 1.5, LogState: cluster.LogFull,
	}}
	got := b.forCore(cluster.NodeStatus{Role: cluster.RoleReplica, LogLast: 12, Applied: 11})
	want := core.Peers{
		Own: core.Peer{ID: members[0].ID, Name: "a", Kind: cluster.KindFull, Weight: 3, Live: true, Role: cluster.RoleReplica, Applied: 11, LogLast: 12},
		Peers: []core.Peer{
			{ID: members[1].ID, Name: "b", Kind: cluster.KindFull, Weight: 9, Live: true, LogBad: true, Role: cluster.RoleReplica,
				Applied: 7, LogLast: 9, Lag: 1500 * time.Millisecond},
			{ID: members[2].ID, Name: "c", Kind: cluster.KindLogger},
		},
	}
	byName := cmpopts.SortSlices(func(a, b core.Peer) bool { return a.Name < b.Name })
	if d := cmp.Diff(want, got, byName); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
