package mysqld

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/log/vfs"
)

// An agent that is root does not trust the account that mysqld runs as. What that account may
// write it may exchange, for a symbolic link to a file of root's for example. So DataDir and
// binlogs belong to the agent, and with them the names in them: mysqld's account owns only the
// directories in which mysqld itself makes files. There the agent follows no link.

// numberBytesMax bounds what is read of a file that holds one number.
const numberBytesMax = 32

// makeDirs makes the directory tree. An older quorate gave DataDir and binlogs to mysqld's
// account: they are taken back, with whatever is in them by now.
func (s *Server) makeDirs(id osIdentity) error {
	if err := os.MkdirAll(s.cfg.DataDir, 0o750); err != nil {
		return fmt.Errorf("make mysql directory: %w", err)
	}
	// The directory above is the agent's, so a link from there to another disk is an operator's.
	for _, path := range []string{s.cfg.DataDir + "/.", s.paths.binlogs} {
		if err := makeDir(path, id.keeper()); err != nil {
			return err
		}
	}
	for _, path := range []string{s.paths.relay, s.paths.tmp, s.paths.run} {
		if err := makeDir(path, id); err != nil {
			return err
		}
	}
	return nil
}

// keeper is the owner of what mysqld's account may only read.
func (id osIdentity) keeper() osIdentity {
	id.uid = os.Geteuid()
	return id
}

// makeDir makes a directory, unless it is there, and gives it to its owner. An agent that is
// root lets mysqld's group in, whatever its umask.
func makeDir(path string, owner osIdentity) error {
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	err = d.Chown(owner.uid, owner.gid)
	if owner.credential != nil && err == nil {
		err = d.Chmod(0o750)
	}
	if err = errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}

// emptyDir makes a directory anew. Its name is in a directory of the agent's.
func emptyDir(path string, owner osIdentity) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("clear directory: %w", err)
	}
	return makeDir(path, owner)
}

// writeFor writes a file that mysqld's account may read. It is written again at
// every start, so it need not be durable.
func (s *Server) writeFor(id osIdentity, path, text string, mode os.FileMode) error {
	f, err := vfs.As(s.fs, mode, id.owner()).Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), 0)
	return errors.Join(err, f.Close())
}

// owner is whose a file is.
func (id osIdentity) owner() *vfs.Owner { return &vfs.Owner{UID: id.uid, GID: id.gid} }

// ErrNotFile: what is in a file's place was put there by somebody else than mysqld.
var ErrNotFile = errors.New("not a regular file")

// OpenFile opens a file for reading that mysqld's account has made: no link, and nothing that
// would keep the reader waiting, such as a FIFO (ErrNotFile).
func OpenFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("open %s: %w", path, ErrNotFile)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w", path, ErrNotFile)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OldPID is what the pid file says, for a message.
func (s *Server) OldPID() string {
	f, err := OpenFile(s.paths.pid)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, numberBytesMax))
	pid := strings.TrimSpace(string(text))
	if err != nil || pid == "" || strings.Trim(pid, "0123456789") != "" {
		return "unknown"
	}
	return pid
}

// CheckPlace refuses a DataDir above which mysqld's account may exchange a directory for
// another, if the agent is root: the agent would write there. It needs DataDir and OSUser. An
// account that is not there is no matter here.
func (c Config) CheckPlace() error {
	id, err := c.identity()
	if err != nil || id.credential == nil {
		return nil
	}
	dataDir := filepath.Dir(c.DataDir)
	given := dataDir
	dir, err := filepath.EvalSymlinks(given)
	for errors.Is(err, fs.ErrNotExist) { // what is not there the agent makes
		given = filepath.Dir(given)
		dir, err = filepath.EvalSymlinks(given)
	}
	if err != nil {
		return fmt.Errorf("look at the directories above mysqld's: %w", err)
	}
	for _, at := range []string{given, dir} {
		for ; ; at = filepath.Dir(at) {
			// In a sticky directory only the owner of a name exchanges it.
			if id.mayWrite(at, at != dataDir) {
				return fmt.Errorf("%w: %s may write in %s, and an agent that is root writes there, too: "+
					"run the agent as %s (systemd: User=), or give that directory to root alone", ErrConfig, c.OSUser, at, c.OSUser)
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return nil
}

// mayWrite tells whether the account may exchange what is in a directory.
func (id osIdentity) mayWrite(dir string, unlessSticky bool) bool {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return false
	}
	writable := st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && int(st.Gid) == id.gid
	return int(st.Uid) == id.uid || writable && !(unlessSticky && st.Mode&unix.S_ISVTX != 0)
}
