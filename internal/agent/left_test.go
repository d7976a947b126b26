package agent

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/founding"
	"github.com/quorate/quorate/internal/config"
)

// TestLeftByRoot: an agent of another account than root says what to do if a command of root's was killed. It only
// said "permission denied".
func TestLeftByRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root leaves what others may not read")
	}
	for name, want := range map[string]string{
		founding.File:     `As root, run the same "quorate adopt DATADIR" again, or "quorate adopt --undo"`,
		founding.DoneFile: `As root, run the same "quorate adopt DATADIR" again`,
		datadir.Restoring: `As root, run the same "quorate restore" again`,
		datadir.LockFile:  "chown ",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
			t.Fatal(err)
		}
		said := make(chan error)
		go func() {
			runtime.LockOSThread()   // to the end of this goroutine, and of its thread
			_ = unix.Setfsuid(65534) // it never fails
			d, err := prepareDataDir(config.Config{DataDir: dir})
			if err == nil {
				err = d.TakeLock()
			}
			said <- err
		}()
		if err := <-said; err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "permission denied") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
