package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
)

// TestEndsWithoutItsLog: an agent whose log was replaced while it ran, here by a copy of its state file, ends. Each
// fsync would go on to succeed, and raft reads no state file.
func TestEndsWithoutItsLog(t *testing.T) {
	cfg := loneConfig(t)
	cfg.MySQL.BaseDir, cfg.Members[0].Kind = "/nonexistent", cluster.KindLogger
	oneEntry(t, cfg)
	a, err := New(cfg, slog.New(slog.DiscardHandler), "v")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for a.fail.Load() == nil { // it does not run yet
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		case <-tick.C:
		}
	}
	state := filepath.Join(a.data.Join("log"), "state")
	b, err := os.ReadFile(state)
	if err := errors.Join(err, os.WriteFile(state+".new", b, 0o600), os.Rename(state+".new", state)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, seglog.ErrReplaced) {
		t.Errorf("it ends with %v", err)
	}
}
