package agent

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGiveAwayFollowsNoLink: root gives a data directory to an account, which meanwhile replaces a directory in it by
// a link. The target of the link stays root's.
func TestGiveAwayFollowsNoLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, outside := t.TempDir(), t.TempDir()
	for _, d := range []string{filepath.Join(dir, "log"), outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"1", "2", "3", "4"} {
			if err := os.WriteFile(filepath.Join(d, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	link, log := filepath.Join(dir, "link"), filepath.Join(dir, "log")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	const account = 12345
	stop := make(chan struct{})
	var exchanges sync.WaitGroup
	exchanges.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, log, unix.RENAME_EXCHANGE)
			}
		}
	})
	for range 500 {
		_ = giveTo(dir, account, account) // it may fail: a link is there now
	}
	close(stop)
	exchanges.Wait()
	for _, path := range []string{outside, filepath.Join(outside, "1"), filepath.Join(outside, "4")} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 {
			t.Errorf("%s was given to %d", path, owner)
		}
	}
	_ = os.Remove(link)
	if err := giveTo(dir, account, account); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != account {
		t.Errorf("the directory was not given away: %v", err)
	}
}
