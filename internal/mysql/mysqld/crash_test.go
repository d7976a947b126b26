package mysqld

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/log/vfs/vfstest"
)

// onDisk is a server of which only the durable files are used.
func onDisk(fs vfs.FS) *Server {
	s := New(Config{DataDir: "mysql"})
	s.fs = fs
	return s
}

// disk has the directories that a server needs, and a data directory that is not published.
func disk(t *testing.T) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	s := onDisk(m)
	err := errors.Join(m.MkdirAll(s.paths.binlogs), m.MkdirAll(s.paths.dataTemp))
	if err = errors.Join(err, vfs.Replace(m, filepath.Join(s.paths.dataTemp, "ibdata1"), []byte("data"))); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestIncarnationCrashes: wherever a start ends, the next one has a number that no start had (I3).
func TestIncarnationCrashes(t *testing.T) {
	const starts = 3
	taken := uint64(0)
	start := func(fs vfs.FS) error {
		taken = 0
		for range starts {
			n, err := onDisk(fs).nextIncarnation()
			if err != nil {
				return err
			}
			taken = n
		}
		return nil
	}
	operations := vfstest.Interruptions(t, func() *vfs.Mem { return disk(t) }, start, func(t *testing.T, disk *vfs.Mem) {
		if n, err := onDisk(disk).nextIncarnation(); err != nil || n <= taken || n > taken+2 {
			t.Errorf("after incarnation %d comes %d, %v", taken, n, err)
		}
	})
	if operations < 5*starts {
		t.Errorf("%d operations alone have failed", operations)
	}
}

// TestForeignXACrashes: the note is there, whole, or not; once NoteForeignXA returned it is
// there.
func TestForeignXACrashes(t *testing.T) {
	vfstest.Interruptions(t, func() *vfs.Mem { return disk(t) }, func(fs vfs.FS) error { return onDisk(fs).NoteForeignXA() }, func(t *testing.T, disk *vfs.Mem) {
		if _, err := onDisk(disk).ForeignXANoted(); err != nil {
			t.Error(err)
		}
	})
	m := disk(t)
	if err := onDisk(m).NoteForeignXA(); err != nil {
		t.Fatal(err)
	}
	if noted, err := onDisk(m.CrashClone(0)).ForeignXANoted(); err != nil || !noted {
		t.Errorf("it has returned, and a loss of power leaves %t, %v", noted, err)
	}
}

// TestPublishCrashes: the data directory is there with its UUID, or still has its temporary
// name.
func TestPublishCrashes(t *testing.T) {
	published, not := 0, 0
	publish := func(fs vfs.FS) error {
		_, err := onDisk(fs).publish(osIdentity{})
		return err
	}
	check := func(t *testing.T, disk *vfs.Mem) {
		s := onDisk(disk)
		at := s.paths.dataTemp
		if s.Initialized() {
			published++
			at = s.paths.data
			if auto, err := vfs.ReadFile(disk, filepath.Join(at, "auto.cnf")); err != nil || !strings.HasPrefix(string(auto), "[auto]\nserver-uuid=") || len(auto) != len("[auto]\nserver-uuid=\n")+36 {
				t.Errorf("auto.cnf: %q, %v", auto, err)
			}
		} else {
			not++
		}
		if data, err := vfs.ReadFile(disk, filepath.Join(at, "ibdata1")); err != nil || string(data) != "data" {
			t.Errorf("the data: %q, %v", data, err)
		}
	}
	vfstest.Interruptions(t, func() *vfs.Mem { return disk(t) }, publish, check)
	if published == 0 || not == 0 {
		t.Errorf("it was published %d times, and not %d times: the test has tested nothing", published, not)
	}
	m := disk(t)
	if err := publish(m); err != nil {
		t.Fatal(err)
	}
	if !onDisk(m.CrashClone(0)).Initialized() {
		t.Error("it has returned, and a loss of power undoes it")
	}
}

// TestSecretsCrashes: wherever a step ends, the file has all of the present passwords, or all of the next ones.
func TestSecretsCrashes(t *testing.T) {
	const file = "secrets.toml"
	read := func(t *testing.T, fs vfs.FS, path string) string {
		t.Helper()
		text, err := vfs.ReadFile(fs, path)
		if err != nil {
			return ""
		}
		s, err := parseSecrets(path, text)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return s.Admin
	}
	// had are the passwords of the file after each step.
	var had []string
	life := func(fs vfs.FS) error {
		had = []string{""}
		for _, step := range []func() error{
			func() error { _, err := GenerateSecrets(fs, file); return err },
			func() error { return RotateSecrets(fs, file) },
			func() error { return RotateSecrets(fs, file) }, // nobody has adopted the first ones
			func() error { return AdoptSecrets(fs, file) },
			func() error { return AdoptSecrets(fs, file) },
		} {
			if err := step(); err != nil {
				return err
			}
			had = append(had, read(t, fs, file))
		}
		return nil
	}
	adopted := 0
	operations := vfstest.Interruptions(t, vfs.NewMem, life, func(t *testing.T, disk *vfs.Mem) {
		now, next := read(t, disk, file), read(t, disk, nextSecrets(file))
		done, before := len(had)-1, had[len(had)-1]
		switch {
		case now == before, done == 0 && next == "":
		case done == 3 && next == "": // they are adopted
			adopted++
		default:
			t.Errorf("after %d steps it has other passwords", done)
		}
		if err := AdoptSecrets(disk, file); err != nil {
			t.Error(err)
		}
		if then := read(t, disk, file); next != "" && then != next {
			t.Error("the next passwords were not adopted")
		}
	})
	if operations < 15 || adopted == 0 {
		t.Errorf("%d operations have failed, and the next passwords were adopted %d times", operations, adopted)
	}
}
