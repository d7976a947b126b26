package mysqld

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/log/vfs"
)

// An agent that is root does not trust the account that mysqld runs as. In a directory that it
// may write, the account can replace a file, for example by a symbolic link to a file of root.
// So DataDir and binlogs belong to the agent, and so do the names in them. mysqld's account
// owns only the directories in which mysqld itself makes files. There the agent follows no
// link.

// numberBytesMax is how many bytes are read of a file that holds one number.
const numberBytesMax = 32

// makeDirs makes the directory tree. An older quorate gave DataDir and binlogs to mysqld's
// account: makeDirs takes them back, with their present content.
func (s *Server) makeDirs(id osIdentity) error {
	if err := os.MkdirAll(s.cfg.DataDir, 0o750); err != nil {
		return fmt.Errorf("make mysql directory: %w", err)
	}
	// The directory above belongs to the agent, so a link there to another disk was made by the
	// operator.
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

// keeper is the owner of files that mysqld's account may only read.
func (id osIdentity) keeper() osIdentity {
	id.uid = os.Geteuid()
	return id
}

// makeDir makes a directory, unless it exists, and gives it to its owner. An agent that is root
// gives mysqld's group access, whatever the umask is.
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

// emptyDir removes a directory and makes it again, empty. The directory above it must belong to
// the agent.
func emptyDir(path string, owner osIdentity) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("clear directory: %w", err)
	}
	return makeDir(path, owner)
}

// writeFor writes a file that mysqld's account may read. Every start writes it again, so it
// need not be durable.
func (s *Server) writeFor(id osIdentity, path, text string, mode os.FileMode) error {
	f, err := vfs.As(s.fs, mode, id.owner()).Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), 0)
	return errors.Join(err, f.Close())
}

// owner returns the account as the owner of a file.
func (id osIdentity) owner() *vfs.Owner { return &vfs.Owner{UID: id.uid, GID: id.gid} }

// ErrNotFile: a file's place has something that mysqld does not put there.
var ErrNotFile = errors.New("not a regular file")

// OpenFile opens a file of mysqld's account for reading. It returns ErrNotFile for a link, or
// where a read could wait, as in a FIFO.
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

// OldPID returns the content of the pid file, for a message.
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

// CheckPlace refuses a DataDir if the agent is root and mysqld's account can replace a
// directory above DataDir: the agent would write there as root. It also refuses it if that account may not enter one of them. It needs DataDir and OSUser. It
// ignores an account that does not exist, which is reported elsewhere.
func (c Config) CheckPlace() error {
	id, err := c.identity()
	if err != nil || id.credential == nil {
		return nil
	}
	dataDir := filepath.Dir(c.DataDir)
	given := dataDir
	dir, err := filepath.EvalSymlinks(given)
	for errors.Is(err, fs.ErrNotExist) { // the agent makes missing directories
		given = filepath.Dir(given)
		dir, err = filepath.EvalSymlinks(given)
	}
	if err != nil {
		return fmt.Errorf("look at the directories above mysqld's: %w", err)
	}
	for _, at := range []string{given, dir} {
		for ; ; at = filepath.Dir(at) {
			// In a sticky directory only the owner of a file can replace it.
			if id.mayWrite(at, at != dataDir) {
				return fmt.Errorf("%w: %s may write in %s, and an agent that is root writes there, too: "+
					"run the agent as %s (systemd: User=), or give that directory to root alone", ErrConfig, c.OSUser, at, c.OSUser)
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return c.checkWay(id, dir)
}

// checkWay refuses a directory that mysqld's account may not enter: mysqld would not start, and its error would name
// the program and not the directory.
func (c Config) checkWay(id osIdentity, dir string) error {
	if id.mayEnter(dir) {
		return nil
	}
	var above []string // top down
	for at := dir; ; at = filepath.Dir(at) {
		above = append([]string{at}, above...)
		if at == filepath.Dir(at) {
			break
		}
	}
	for _, at := range above {
		if !id.mayEnter(at) {
			return fmt.Errorf("%w: %s, as which mysqld runs (mysql.user), may not enter %s: chmod o+x %s", ErrConfig, c.OSUser, at, at)
		}
	}
	return nil
}

// mayEnter tells whether the account may work in a directory. It tries it, as a mode says nothing of access lists.
func (id osIdentity) mayEnter(dir string) bool {
	cmd := exec.Command("/bin/true")
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: id.credential}
	return !errors.Is(cmd.Run(), fs.ErrPermission)
}

// mayWrite tells whether the account may replace files in a directory.
func (id osIdentity) mayWrite(dir string, unlessSticky bool) bool {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return false
	}
	writable := st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && int(st.Gid) == id.gid
	return int(st.Uid) == id.uid || writable && !(unlessSticky && st.Mode&unix.S_ISVTX != 0)
}
