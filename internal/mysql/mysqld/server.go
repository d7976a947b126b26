package mysqld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/install"
)

// Errors of a Server.
var (
	// ErrNotInitialized: there is no data directory; call Initialize.
	ErrNotInitialized = errors.New("no data directory")
	// ErrInitialized: there is a data directory already.
	ErrInitialized = errors.New("data directory exists")
	// ErrBusy: another mysqld still runs on the directory.
	ErrBusy = errors.New("another mysqld runs on the directory")
)

// lockPollInterval is how often Start looks whether an older mysqld is gone.
// A flock cannot be waited for with a deadline.
const lockPollInterval = 10 * time.Millisecond

// Server is a node's MySQL: its directory, and the means to start a Process on
// it. Its methods are not safe for concurrent use.
type Server struct {
	cfg   Config
	paths paths
	fs    vfs.FS
	// silenceTick is the constant; tests shorten it.
	silenceTick time.Duration
	// roomless: the last time, no room could be held back.
	roomless *atomic.Bool
}

// New returns the server of c. It starts nothing and touches no file. Initialize and Start
// report faults of c.
func New(c Config) *Server {
	c = c.withDefaults()
	return &Server{cfg: c, paths: c.paths(), fs: vfs.OS{}, silenceTick: silenceTick, roomless: new(atomic.Bool)}
}

// With returns the same server, to be started from another installation. A running Process
// keeps the installation that it was started from.
func (s *Server) With(in *install.Installation) *Server {
	with := *s
	with.cfg.Installation = in
	return &with
}

// DataVersion returns the version of the server that made the data or upgraded them last; zero
// = not known.
func (s *Server) DataVersion() (install.Version, error) { return versionOf(s.paths.data) }

// Upgrades tells whether a mysqld of a version upgrades the data when it starts, as far as is known.
func (s *Server) Upgrades(to install.Version) bool {
	data, err := s.DataVersion()
	if err == nil && data == (install.Version{}) && s.Initialized() && to.AtLeast(8, 4, 0) {
		// 8.0 notes its version only when it upgrades data; since 8.4 mysqld always does.
		_, err = s.fs.Stat(filepath.Join(s.paths.data, historyFile))
		return errors.Is(err, fs.ErrNotExist)
	}
	return err == nil && data != (install.Version{}) && data.Compare(to) < 0 // before 8.4 it may be unreadable
}

// Socket returns the path of the Unix socket.
func (s *Server) Socket() string { return s.cfg.Socket }

// Initialized reports whether there is a data directory. One rename publishes it, so it is
// complete.
func (s *Server) Initialized() bool {
	_, err := s.fs.Stat(filepath.Join(s.paths.data, "auto.cnf"))
	return err == nil
}

// Initialize makes a new data directory with no GTID and a random server UUID; the first Start
// makes the accounts. It is atomic: data.init is renamed to data once it is on disk. It returns
// ErrInitialized if there is a data directory already.
func (s *Server) Initialize(ctx context.Context) error {
	if err := s.cfg.validate(); err != nil {
		return err
	}
	if s.Initialized() {
		return fmt.Errorf("%w: %s", ErrInitialized, s.paths.data)
	}
	id, err := s.cfg.identity()
	if err != nil {
		return err
	}
	if err := s.makeDirs(id); err != nil {
		return err
	}
	lock, err := s.lockDirectory(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()                    // Only drops the lock.
	if err := emptyDir(s.paths.dataTemp, id); err != nil { // mysqld cannot: DataDir belongs to the agent
		return fmt.Errorf("begin a data directory: %w", err)
	}
	if err := s.runInitialize(ctx, id, lock); err != nil {
		return err
	}
	_, err = s.publish(id)
	return err
}

// publish makes data.init, which is complete, the data directory. It writes a random server
// UUID: mysqld would derive one from the time and a network address, which copies of one virtual
// machine share.
func (s *Server) publish(id osIdentity) (uuid string, err error) {
	uuid = NewUUID()
	auto := filepath.Join(s.paths.dataTemp, "auto.cnf")
	if err := vfs.Replace(vfs.As(s.fs, 0o640, id.owner()), auto, []byte("[auto]\nserver-uuid="+uuid+"\n")); err != nil {
		return "", fmt.Errorf("write server UUID: %w", err)
	}
	if err := vfs.Move(s.fs, s.paths.dataTemp, s.paths.data); err != nil {
		return "", fmt.Errorf("publish data directory: %w", err)
	}
	return uuid, nil
}

// runInitialize runs mysqld --initialize-insecure into data.init. That leaves a root account
// without a password; the init file locks it before the server takes its first connection.
func (s *Server) runInitialize(ctx context.Context, id osIdentity, lock *os.File) error {
	if err := s.writeFor(id, s.paths.config, s.cfg.renderInitialize(id.uid == 0), 0o640); err != nil {
		return fmt.Errorf("write option file: %w", err)
	}
	argv := append(s.cfg.Installation.MysqldArgv(), "--defaults-file="+s.paths.config, "--initialize-insecure")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = s.cfg.DataDir
	cmd.Env = childEnv(os.Environ())
	cmd.ExtraFiles = []*os.File{lock}
	// No parent-death signal, because that is bound to a thread. A mysqld that outlives its
	// agent here does no harm: it finishes a directory that nobody renames, and holds the lock
	// until then.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: id.credential}
	var out []byte
	err := install.WithoutNetCapabilities(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("initialise data directory: %w: %s", err, complaintOf(out, s.cfg.Logger))
	}
	return nil
}

// StartOptions say what differs in one incarnation.
type StartOptions struct {
	// ReplicaBinlog makes the applier binlog what it applies. If an applier without it prepares
	// an XA transaction, the server does not binlog the XA COMMIT either, so a primary must
	// have prepared it with ReplicaBinlog. Semi-sync is off until EnableSemiSync, because the
	// applier would wait for ACKs.
	ReplicaBinlog bool
	// Variables are further settings, which override those of Config. A server that does not
	// know one of them starts without it. Start refuses those that CheckGlobal refuses.
	Variables map[string]string
}

// Start starts a new incarnation of mysqld, read-only, and returns it once the process exists;
// Process.Ready waits until it can be used. It waits, as long as ctx allows, until an older
// mysqld on the directory has ended (else ErrBusy). ctx bounds the start only, not the life of
// the process.
func (s *Server) Start(ctx context.Context, o StartOptions) (*Process, error) {
	if err := s.cfg.validate(); err != nil {
		return nil, err
	}
	for name, value := range o.Variables {
		if err := CheckGlobal(name, value); err != nil {
			return nil, err
		}
	}
	if !s.Initialized() {
		return nil, fmt.Errorf("%w: %s", ErrNotInitialized, s.paths.data)
	}
	id, err := s.cfg.identity()
	if err != nil {
		return nil, err
	}
	if err := s.makeDirs(id); err != nil {
		return nil, err
	}
	lock, err := s.lockDirectory(ctx)
	if err != nil {
		return nil, err
	}
	// The child holds the lock from the spawn on.
	defer func() { _ = lock.Close() }()
	p, err := s.startLocked(id, lock, o)
	if err != nil {
		s.holdRoom()
	}
	return p, err
}

// startLocked is Start once it has the lock.
func (s *Server) startLocked(id osIdentity, lock *os.File, o StartOptions) (*Process, error) {
	if err := s.freeRoom(id); err != nil { // before anything is written
		return nil, err
	}
	n, err := s.nextIncarnation()
	if err != nil {
		return nil, err
	}
	if err := s.removeUnusedBinlogs(); err != nil {
		s.cfg.Logger.Warn("cannot remove the binlogs of starts that failed", "error", err)
	}
	if err := s.prepare(id, n, o); err != nil {
		return nil, err
	}
	return s.spawn(id, n, lock, o)
}

// Incarnation returns the number of the last incarnation that was started, 0
// before the first.
func (s *Server) Incarnation() (uint64, error) {
	f, err := s.fs.Open(s.paths.counter)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read incarnation: %w", err)
	}
	text := make([]byte, numberBytesMax)
	length, err := f.ReadAt(text, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("read incarnation: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text[:length])), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read incarnation from %s: %w", s.paths.counter, err)
	}
	return n, nil
}

const (
	// incarnationAheadMax is how far the directories may be ahead of the counter. The counter
	// is written first, so they are ahead only where a file system has lost that write.
	incarnationAheadMax = 1000
	// incarnationMax has ten digits, like the name of a directory: a start each second for 300
	// years.
	incarnationMax = 9_999_999_999
)

// nextIncarnation takes the next number, durably. A damaged counter stops the start: with an
// old number, the names of an old binlog would come back. A lost counter does not stop it,
// because the directories that are left tell the number. mysqld's account can make such
// directories, too, so a directory counts only if its number is plausible.
func (s *Server) nextIncarnation() (uint64, error) {
	n, err := s.Incarnation()
	if err != nil {
		return 0, err
	}
	old, err := s.fs.List(s.paths.binlogs)
	if err != nil {
		return 0, fmt.Errorf("list binlog directories: %w", err)
	}
	counted := n
	for _, name := range old {
		m, ok := binlog.ParseIncarnationDir(name)
		if ok && m < incarnationMax && (counted == 0 || m <= counted+incarnationAheadMax) {
			n = max(n, m)
		}
	}
	if n >= incarnationMax {
		return 0, fmt.Errorf("incarnation %d in %s: it was not reached by counting", n, s.paths.counter)
	}
	n++
	if err := vfs.Replace(vfs.As(s.fs, 0o640, nil), s.paths.counter, []byte(strconv.FormatUint(n, 10)+"\n")); err != nil {
		return 0, fmt.Errorf("write incarnation: %w", err)
	}
	return n, nil
}

// prepare makes the files and directories that incarnation n needs. The caller holds the lock.
func (s *Server) prepare(id osIdentity, n uint64, o StartOptions) error {
	// It can exist only if a number was lost.
	if err := emptyDir(s.paths.binlogDir(n), id); err != nil {
		return err
	}
	// mysqld refuses to start while the pid in its socket's lock file exists, even if that is a
	// zombie or another process. We hold the directory's lock, so no mysqld uses the socket.
	for _, stale := range []string{s.cfg.Socket, s.cfg.Socket + ".lock"} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove what a killed mysqld left: %w", err)
		}
	}
	if err := s.fs.SyncDir(s.paths.binlogs); err != nil {
		return fmt.Errorf("make binlog directory durable: %w", err)
	}
	if err := s.writeFor(id, s.paths.config, s.cfg.render(n, id.uid == 0, o), 0o640); err != nil {
		return fmt.Errorf("write option file: %w", err)
	}
	if err := s.writeFor(id, s.paths.initSQL, s.cfg.renderInit(n), 0o600); err != nil {
		return fmt.Errorf("write init file: %w", err)
	}
	return nil
}

// lockDirectory takes the flock that every mysqld of this directory holds for
// as long as it exists, waiting as long as ctx allows.
func (s *Server) lockDirectory(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(s.paths.lock, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	tick := time.NewTicker(lockPollInterval)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock mysql directory: %w", err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%w: %s (pid %s): %w", ErrBusy, s.cfg.DataDir, s.OldPID(), context.Cause(ctx)), f.Close())
		}
	}
}

// removeOldBinlogs removes the binlog directories of earlier incarnations.
func (s *Server) removeOldBinlogs(n uint64) error {
	entries, err := os.ReadDir(s.paths.binlogs)
	if err != nil {
		return fmt.Errorf("list binlog directories: %w", err)
	}
	keep := filepath.Base(s.paths.binlogDir(n))
	var errs []error
	for _, e := range entries {
		if e.Name() != keep {
			errs = append(errs, os.RemoveAll(filepath.Join(s.paths.binlogs, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// BinlogFiles returns the paths of the binlog files that are still there, of all
// incarnations, oldest first.
func (s *Server) BinlogFiles() (files []string, err error) {
	dirs, err := os.ReadDir(s.paths.binlogs) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("list binlog directories: %w", err)
	}
	for _, d := range dirs {
		n, ok := binlog.ParseIncarnationDir(d.Name())
		if !ok || !d.IsDir() {
			continue
		}
		found, err := os.ReadDir(s.paths.binlogDir(n))
		if err != nil {
			return nil, fmt.Errorf("list binlogs: %w", err)
		}
		// After 999999 the numbers have more digits.
		slices.SortStableFunc(found, func(a, b os.DirEntry) int { return cmp.Compare(len(a.Name()), len(b.Name())) })
		for _, f := range found {
			number, ok := strings.CutPrefix(f.Name(), binlog.IncarnationBase(n)+".")
			if ok && strings.Trim(number, "0123456789") == "" {
				files = append(files, filepath.Join(s.paths.binlogDir(n), f.Name()))
			}
		}
	}
	return files, nil
}

// childEnv is the agent's environment without the variables that would change what mysqld does:
// MYSQL* (home, ports, debugging), UMASK*, and those of systemd: on its notification socket
// mysqld would report itself ready in the agent's place. With MYSQLD_PARENT_PID the server ends
// with exit code 16 when it wants to be restarted (RESTART, the end of a CLONE).
func childEnv(environ []string) []string {
	var env []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "MYSQL") || strings.HasPrefix(name, "UMASK") ||
			name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "LISTEN_") {
			continue
		}
		env = append(env, kv)
	}
	return append(env, "MYSQLD_PARENT_PID="+strconv.Itoa(os.Getpid()))
}
