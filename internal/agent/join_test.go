package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

func writeTestFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNoSpace: which failures of a copy come from a lack of space.
func TestNoSpace(t *testing.T) {
	for err, want := range map[error]bool{
		mysqld.ErrNoSpace: true, seglog.ErrFull: true, unix.ENOSPC: true,
		seglog.ErrFailed: false, context.DeadlineExceeded: false,
	} {
		if got := noSpace(fmt.Errorf("copy the data of node b: %w", errors.Join(err, errors.New("close")))); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
