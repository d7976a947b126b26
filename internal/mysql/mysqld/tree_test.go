package mysqld

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// treeFixture is a server of an agent that is root; its mysqld runs as nobody. It has run once,
// and its tree is as an older quorate left it: mysqld's account owns all directories.
type treeFixture struct {
	*Server
	id osIdentity
	// outside is a directory of root, with a file in it.
	outside, file string
}

func newTreeFixture(t *testing.T) *treeFixture {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run mysqld as another account")
	}
	s := newServer(t, runAs(t, "nobody"))
	start(t, s).Kill()
	id, err := s.cfg.identity()
	if err != nil {
		t.Fatal(err)
	}
	f := &treeFixture{Server: s, id: id, outside: filepath.Join(filepath.Dir(s.cfg.DataDir), "outside")}
	f.file = filepath.Join(f.outside, "file")
	f.asOlder(t)
	return f
}

// asOlder gives the tree its first owners again.
func (f *treeFixture) asOlder(t *testing.T) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(f.outside), os.Mkdir(f.outside, 0o700), os.WriteFile(f.file, []byte("7\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{f.cfg.DataDir, f.paths.binlogs} {
		if err := os.Chown(path, f.id.uid, f.id.gid); err != nil {
			t.Fatal(err)
		}
	}
}

// outsideNow describes the directory outside: names, owners, modes, content.
func (f *treeFixture) outsideNow(t *testing.T) (said []string) {
	t.Helper()
	if err := filepath.WalkDir(f.outside, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		said = append(said, strings.TrimPrefix(path, f.outside), fs.FileMode(st.Mode).String(), time.Unix(st.Mtim.Unix()).String(), string(rune('0'+st.Uid)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		t.Error(err)
	}
	return append(said, string(text))
}

// asMysqld runs a command as mysqld's account.
func (f *treeFixture) asMysqld(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.id.credential}
	return cmd.CombinedOutput()
}

// TestRootFollowsNoLink: mysqld's account puts links to files of root, and FIFOs, where an
// agent that is root works. The agent follows no link, and waits for no FIFO.
func TestRootFollowsNoLink(t *testing.T) {
	t.Parallel()
	f := newTreeFixture(t)
	for _, link := range [][2]string{
		{f.paths.binlogDir(2), f.outside}, // the next incarnation's
		{f.paths.binlogs, f.outside}, {f.paths.relay, f.outside}, {f.paths.run, f.outside}, {f.paths.tmp, f.outside},
		{f.paths.counter + ".tmp", f.file}, {f.paths.counter, f.file}, {f.paths.lock, f.file},
		{f.paths.config, f.file}, {f.paths.initSQL, f.file}, {f.paths.foreignXA + ".tmp", f.file},
	} {
		path, target := link[0], link[1]
		t.Run(strings.TrimPrefix(path, f.cfg.DataDir), func(t *testing.T) {
			f.asOlder(t)
			saved := path + ".saved"
			if err := os.Rename(path, saved); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if out, err := f.asMysqld("ln", "-s", target, path); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			before := f.outsideNow(t)
			_, _ = f.Incarnation()
			_ = f.NoteForeignXA()
			if p, err := f.Start(ctx(t), StartOptions{}); err != nil {
				t.Logf("start: %v", err)
			} else {
				p.Kill()
				_, _ = f.BinlogFiles()
				_ = p.RemoveOldBinlogs()
			}
			if diff := cmp.Diff(before, f.outsideNow(t)); diff != "" {
				t.Errorf("what is outside has changed (-before +now):\n%s", diff)
			}
			_ = os.RemoveAll(path)
			_ = os.Rename(saved, path)
		})
	}
	f.asOlder(t)
	if out, err := f.asMysqld("mkfifo", filepath.Join(f.paths.run, "fifo")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := OpenFile(filepath.Join(f.paths.run, "fifo")); err == nil {
		t.Error("a FIFO was opened")
	}
	// A new agent takes over the older one's tree, and then nothing can be put there.
	start(t, f.Server)
	for _, dir := range []string{f.cfg.DataDir, f.paths.binlogs} {
		if out, err := f.asMysqld("ln", "-s", f.file, filepath.Join(dir, "x")); err == nil {
			t.Errorf("mysqld's account may write in %s: %s", dir, out)
		}
	}
}

// TestPlaceOfRoot: mysqld's account must not be able to write in any directory above.
func TestPlaceOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run mysqld as another account")
	}
	above := filepath.Join(t.TempDir(), "above")
	dir := filepath.Join(above, "node")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(filepath.Dir(filepath.Dir(above)), 0o755)); err != nil {
		t.Fatal(err)
	}
	c := Config{DataDir: filepath.Join(dir, "data", "mysql"), OSUser: "nobody"}
	id, err := c.identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		gid  int
		mode fs.FileMode
		uid  int
		want bool
	}{
		{above, 0, 0o755, 0, true},
		{above, id.gid, 0o750, 0, true},
		{above, 0, 0o700, 0, false},
		{dir, 0, 0o750, 0, false},
		{above, id.gid, 0o770, 0, false},
		{above, 0, 0o771, 0, true},
		{above, 0, 0o777, 0, false},
		{above, 0, 0o777 | fs.ModeSticky, 0, true},
		{above, 0, 0o700, id.uid, false},
		{dir, 0, 0o700, id.uid, false},
		{filepath.Join(dir, "data"), 0, 0o777 | fs.ModeSticky, 0, false},
		{filepath.Join(dir, "data"), 0, 0o751, 0, true},
	} {
		if err := errors.Join(os.MkdirAll(tc.path, 0o755), os.Chown(tc.path, tc.uid, tc.gid), os.Chmod(tc.path, tc.mode)); err != nil {
			t.Fatal(err)
		}
		if err := c.CheckPlace(); (err == nil) != tc.want {
			t.Errorf("%+v: %v", tc, err)
		}
		if err := errors.Join(os.Chown(tc.path, 0, 0), os.Chmod(tc.path, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(above, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.CheckPlace(); !errors.Is(err, ErrConfig) || !strings.HasSuffix(err.Error(), "may not enter "+above+": chmod o+x "+above) {
		t.Errorf("a directory that it may not enter: %v", err)
	}
	if err := os.Chmod(above, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(dir, link), os.Chown(above, id.uid, 0)); err != nil {
		t.Fatal(err)
	}
	c.DataDir = filepath.Join(link, "mysql")
	if err := c.CheckPlace(); !errors.Is(err, ErrConfig) {
		t.Errorf("through a link: %v", err)
	}
	c.OSUser = ""
	if err := c.CheckPlace(); err != nil {
		t.Errorf("mysqld is root's: %v", err)
	}
}

// TestScratchIsHandedOverLast: while a file in the survey's directory waits to be given to mysqld's account, the account
// cannot replace it, and a link is not followed.
func TestScratchIsHandedOverLast(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run mysqld as another account")
	}
	const nobody = 65534
	owner := func(path string) uint32 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	link, tmp := filepath.Join(dir, "my.cnf"), filepath.Join(dir, "tmp")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	id := osIdentity{uid: nobody, gid: nobody}
	if err := handOver(id, dir, link, tmp); !errors.Is(err, fs.ErrNotExist) || owner(dir) != 0 {
		t.Errorf("the directory belongs to %d before its content is handed over: %v", owner(dir), err)
	}
	if err := errors.Join(os.Mkdir(tmp, 0o700), handOver(id, dir, link, tmp)); err != nil {
		t.Fatal(err)
	}
	if owner(file) != 0 || owner(tmp) != nobody || owner(dir) != nobody {
		t.Errorf("the owners are %d of a file of root, %d of tmp, %d of the directory", owner(file), owner(tmp), owner(dir))
	}
}
