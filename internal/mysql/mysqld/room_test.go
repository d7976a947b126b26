package mysqld

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// fill writes a file until its disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for b := make([]byte, 64<<10); len(b) > 0; {
		if _, err := f.Write(b); errors.Is(err, unix.ENOSPC) {
			b = b[:len(b)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStartOnFullDisk: a mysqld that was killed has left nothing of its disk, and its start frees what that mysqld had
// there.
func TestStartOnFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.Mkdir(disk, 0o755), unix.Mount("tmpfs", disk, "tmpfs", 0, "size=400m,mode=755")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, 0) })
	s := newServer(t, func(c *Config) { c.DataDir = filepath.Join(disk, "mysql") })
	start(t, s).Kill()
	temporary := filepath.Join(s.paths.data, "#innodb_temp", "temp_10.ibt") // a session's temporary table
	for _, c := range []struct {
		left     string
		withRoom bool
	}{
		{temporary, true},
		{filepath.Join(s.paths.tmp, "MLfd=35"), false},
		{temporary, true},
	} {
		if !c.withRoom {
			if err := os.Remove(s.paths.room); err != nil {
				t.Fatal(err)
			}
		}
		fill(t, c.left)
		p, err := s.Start(ctx(t), StartOptions{})
		if err != nil {
			t.Fatalf("%s fills the disk: %v", c.left, err)
		}
		t.Cleanup(p.Kill)
		if err := p.Ready(ctx(t)); err != nil {
			t.Fatalf("%s fills the disk: %v", c.left, err)
		}
		p.Kill()
	}
}
