package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestLoggerNeedsNoMySQL: a logger is built on a host without MySQL. It refuses the directory of a node that has run
// a mysqld.
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
	if own := a.board.Own(); own.Role != status.RoleLogger || own.Mysqld != status.MysqldNone || a.runsMysqld() {
		t.Errorf("the logger says of itself: %+v", own)
	}
	d := openTestDir(t, cfg)
	if err := os.Mkdir(d.Join("mysql"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, quiet, "v"); err == nil || !strings.Contains(err.Error(), "is a logger") {
		t.Errorf("a logger over a mysqld's data: %v", err)
	}
	// The data may lie on a disk that is not mounted now.
	if err := errors.Join(os.Remove(d.Join("mysql")), os.Symlink("/nonexistent", d.Join("mysql"))); err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, quiet, "v"); err == nil || !strings.Contains(err.Error(), "is a logger") {
		t.Errorf("a logger over a link to a mysqld's data: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
