package mysqld

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/sys/invariant"
)

const (
	// readyPollInterval is how often Ready tries to log in.
	readyPollInterval = 20 * time.Millisecond
	// canarySleep is how long one statement of the canary session lasts, in seconds. The
	// session is in a statement all the time.
	canarySleep = 60
	// refusedLoginsMax is how many logins in a row the server may refuse before Ready gives up. A
	// server that answers has run its init file, so it will refuse the login for ever, except where
	// clients have all connections.
	refusedLoginsMax = 100
	// silenceTick and silentTicksMax bound how long a mysqld that says that it is ready may leave the agent without an
	// answer. Ticks are counted, so that a time in which the agent itself stood still counts as one tick.
	silenceTick    = time.Second
	silentTicksMax = 30
)

var (
	// ErrExited: mysqld has ended.
	ErrExited = errors.New("mysqld has ended")
	// ErrUnusable: mysqld runs, but the agent cannot use it.
	ErrUnusable = errors.New("mysqld runs and cannot be used")
)

// Process is one incarnation of mysqld. Its methods are safe for concurrent
// use.
type Process struct {
	server      *Server
	incarnation uint64
	options     StartOptions
	pid         int
	proc        *os.Process
	admin       *Admin
	log         *errorLog
	logger      *slog.Logger

	// semiSync says that commits wait for an ACK, from the start or since EnableSemiSync.
	semiSync atomic.Bool
	// guarded says that the last full CheckGuarded found no drift.
	guarded atomic.Bool
	// ordered says that StopGracefully or Kill has ordered the end of mysqld.
	ordered atomic.Bool
	// xaBefore counts the XA statements before this server became a replica; nil = none.
	xaBefore atomic.Pointer[xaStatements]
	// xaNoneOf is the server's count of XA COMMIT when the last check found none of a client's
	// since xaBefore. While the count stays the same, there is nothing new. nil = not known.
	xaNoneOf atomic.Pointer[int64]
	// canary hands the canary session from Ready to its goroutine, once.
	canary chan *sql.Conn
	ready  sync.Once

	// exited is closed when the child is reaped, done when every goroutine of
	// this Process has ended too. exitErr is set before exited is closed.
	exited, done chan struct{}
	exitErr      error
	// saysReady is closed when mysqld writes that it is ready for connections.
	saysReady  chan struct{}
	goroutines sync.WaitGroup

	shutdownOnce sync.Once
	shutdownSeen chan struct{}
	diskFull     chan string
}

// spawn starts mysqld and the goroutines that belong to it. lock is inherited.
func (s *Server) spawn(id osIdentity, n uint64, lock *os.File, o StartOptions) (*Process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe for error log: %w", err)
	}
	argv := append(s.cfg.Installation.MysqldArgv(), "--defaults-file="+s.paths.config)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = s.paths.data
	cmd.Env = childEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = w, w
	cmd.ExtraFiles = append([]*os.File{lock}, s.cfg.Inherit...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
		Credential: id.credential,
	}
	p := &Process{
		server:       s,
		incarnation:  n,
		options:      o,
		admin:        openAdmin(s.cfg.Socket, s.cfg.Secrets.Admin),
		logger:       s.cfg.Logger.With("incarnation", n),
		canary:       make(chan *sql.Conn),
		exited:       make(chan struct{}),
		done:         make(chan struct{}),
		saysReady:    make(chan struct{}),
		shutdownSeen: make(chan struct{}),
		diskFull:     make(chan string, 1),
	}
	p.semiSync.Store(!o.ReplicaBinlog)
	p.log = &errorLog{logger: p.logger, shutdown: p.unorderedShutdown, diskFull: p.noteDiskFull, ready: sync.OnceFunc(func() { close(p.saysReady) })}
	p.goroutines.Add(2) // those started below; supervise waits for them
	started := make(chan error)
	go p.supervise(cmd, started)
	err = <-started
	_ = w.Close() // The child has its own copy; nothing is lost in ours.
	if err != nil {
		_ = r.Close()
		p.admin.close()
		return nil, fmt.Errorf("start mysqld: %w", err)
	}
	go func() {
		defer p.goroutines.Done()
		p.log.run(r)
		_ = r.Close()
	}()
	go func() {
		defer p.goroutines.Done()
		p.sitInCanary()
	}()
	p.logger.Info("mysqld started", "pid", p.pid, "replica_binlog", o.ReplicaBinlog)
	return p, nil
}

// supervise spawns the child and reaps it, on a thread that lives as long as
// the child does: the parent-death signal is sent when the spawning *thread*
// ends.
func (p *Process) supervise(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := install.WithoutNetCapabilities(cmd.Start); err != nil {
		started <- err
		return
	}
	p.proc, p.pid = cmd.Process, cmd.Process.Pid
	started <- nil
	err := cmd.Wait()
	p.exitErr = fmt.Errorf("%w: %s", ErrExited, cmd.ProcessState)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.exitErr = fmt.Errorf("%w: %w", ErrExited, err)
	}
	close(p.exited)
	p.goroutines.Wait()
	p.admin.close()
	_ = os.Remove(p.server.paths.initSQL) // Ready has removed it already, as a rule,
	p.server.holdRoom()                   // and has done this.
	p.logger.Info("mysqld ended", "state", cmd.ProcessState.String())
	close(p.done)
}

// Incarnation is this process's number: 1 for the first on a directory.
func (p *Process) Incarnation() uint64 { return p.incarnation }

// Options returns the options that this incarnation was started with.
func (p *Process) Options() StartOptions { return p.options }

// PID is mysqld's process id.
func (p *Process) PID() int { return p.pid }

// Done is closed when mysqld and every goroutine of the Process have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ShutdownSeen is closed when mysqld has begun a shutdown that was not ordered here, or has
// crashed. SIGKILL was sent before.
func (p *Process) ShutdownSeen() <-chan struct{} { return p.shutdownSeen }

// DiskFull yields the message of a mysqld that waits for space on its disk. It waits for ever,
// and all commits wait with it, but it still accepts logins and answers queries.
func (p *Process) DiskFull() <-chan string { return p.diskFull }

// noteDiskFull ignores temporary files: a session that waits for space for one has not
// committed yet, and keeps no other session waiting.
func (p *Process) noteDiskFull(text string) {
	if strings.Contains(text, "'"+p.server.paths.tmp+string(filepath.Separator)) {
		return
	}
	select {
	case p.diskFull <- text:
	default: // the message before it was not read yet
	}
}

// RemoveOldBinlogs removes the binlog directories of earlier incarnations. mysqld does not use
// them, but they are the only copy of what an errant server has committed on its own. So the
// caller must judge the server first.
func (p *Process) RemoveOldBinlogs() error { return p.server.removeOldBinlogs(p.incarnation) }

// Admin returns the administrative sessions. They fail before Ready returned and
// after the process has ended.
func (p *Process) Admin() *Admin { return p.admin }

// ExitError says how mysqld ended, wrapping ErrExited; nil while it runs.
func (p *Process) ExitError() error {
	select {
	case <-p.exited:
		return p.exitErr
	default:
		return nil
	}
}

// Ready waits until mysqld accepts the admin login and has run its init file to the end, and starts
// the canary session. It fails when mysqld ends, with its complaint; when mysqld refuses something that the agent
// needs, or says that it is ready and does not answer (ErrUnusable); or when ctx ends.
func (p *Process) Ready(ctx context.Context) error {
	answering, answered, end := p.whileItAnswers(ctx)
	defer end()
	err := p.takeUp(answering, answered)
	if err != nil && ctx.Err() == nil && answering.Err() != nil {
		return context.Cause(answering)
	}
	return err
}

// whileItAnswers returns a context that ends when mysqld has said that it is ready and has then not answered for
// silentTicksMax. Each call of answered begins that time again. Call end.
func (p *Process) whileItAnswers(ctx context.Context) (answering context.Context, answered, end func()) {
	answering, cancel := context.WithCancelCause(ctx)
	var silent atomic.Int64
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-p.saysReady:
		case <-answering.Done():
			return
		}
		tick := time.NewTicker(p.server.silenceTick)
		defer tick.Stop()
		for silent.Add(1) <= silentTicksMax {
			select {
			case <-tick.C:
			case <-answering.Done():
				return
			}
		}
		cancel(fmt.Errorf("%w: it says that it is ready, and has not let the agent log in for %v", ErrUnusable, silentTicksMax*p.server.silenceTick))
	})
	return answering, func() { silent.Store(0) }, func() {
		cancel(nil)
		watcher.Wait()
	}
}

// takeUp is Ready without its bound.
func (p *Process) takeUp(ctx context.Context, answered func()) error {
	if err := p.awaitLogin(ctx, answered); err != nil {
		return err
	}
	n, err := p.admin.initializedBy(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	if n != p.incarnation {
		return fmt.Errorf("%w: its init file stopped half way: %s", ErrUnusable, p.log.complaint())
	}
	p.ready.Do(func() {
		if err = p.admin.warm(ctx); err == nil {
			err = p.startCanary(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	if err := os.Remove(p.server.paths.initSQL); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove init file: %w", err)
	}
	p.server.holdRoom()
	return nil
}

// awaitLogin waits until mysqld accepts the admin login. It calls answered each time that mysqld answers.
func (p *Process) awaitLogin(ctx context.Context, answered func()) error {
	tick := time.NewTicker(readyPollInterval)
	defer tick.Stop()
	refused := 0
	for {
		err := p.admin.ping(ctx)
		server := (*mysql.MySQLError)(nil)
		answers := errors.As(err, &server)
		if err == nil || answers {
			answered()
		}
		switch {
		case err == nil:
			return nil
		case answers && server.Number != errTooManySessions:
			refused++
		default:
			refused = 0
		}
		if refused == refusedLoginsMax {
			return fmt.Errorf("%w: it refuses the agent's login: %w", ErrUnusable, err)
		}
		select {
		case <-p.done: // not exited: when done is closed, the error log was read to its end
			return fmt.Errorf("mysqld does not start: %s (%w; the agent's log has all that it wrote)", p.log.complaint(), p.exitErr)
		case <-ctx.Done():
			return fmt.Errorf("wait for mysqld: %w (last try: %w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// EnableSemiSync makes every commit wait for an ACK, where the process was
// started with ReplicaBinlog. From then on CheckGuarded demands it. The replica
// must be stopped, and must not be started again in this incarnation.
func (p *Process) EnableSemiSync(ctx context.Context) error {
	if err := p.admin.exec(ctx, "enable semi-sync", "SET GLOBAL rpl_semi_sync_source_enabled = ON"); err != nil {
		return err
	}
	p.semiSync.Store(true)
	return nil
}

// startCanary opens the canary session and hands it to its goroutine.
func (p *Process) startCanary(ctx context.Context) error {
	conn, err := p.admin.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open canary session: %w", err)
	}
	select {
	case p.canary <- conn:
		return nil
	case <-p.exited:
		return errors.Join(p.exitErr, conn.Close())
	}
}

// sitInCanary keeps the canary session in a statement until the server ends it,
// which is one of the first things that a shutdown does.
func (p *Process) sitInCanary() {
	var conn *sql.Conn
	select {
	case conn = <-p.canary:
	case <-p.exited:
		return
	}
	defer func() { _ = conn.Close() }()
	for {
		var interrupted int
		err := conn.QueryRowContext(context.Background(), "SELECT SLEEP(?)", canarySleep).Scan(&interrupted)
		if err != nil || interrupted != 0 {
			p.unorderedShutdown(fmt.Sprintf("canary session ended: %v", err))
			return
		}
	}
}

// unorderedShutdown kills mysqld unless this process has ordered its end (I6). The kill comes
// before anything else: from the moment a shutdown begins, sessions that wait for an ACK are
// about to get OK.
func (p *Process) unorderedShutdown(why string) {
	if p.ordered.Load() {
		return
	}
	p.sigkill()
	p.shutdownOnce.Do(func() {
		close(p.shutdownSeen)
		p.logger.Error("mysqld shut down without an order and was killed", "seen", why)
	})
}

// sigkill sends SIGKILL. If that fails it panics: a mysqld that cannot be killed cannot be
// fenced, but it dies with this process.
func (p *Process) sigkill() {
	err := p.proc.Signal(syscall.SIGKILL)
	invariant.Check(err == nil || errors.Is(err, os.ErrProcessDone), "I6", "cannot kill mysqld %d: %v", p.pid, err)
}

// Kill kills mysqld and waits until it is gone and every goroutine of the
// Process has ended. It is always safe.
func (p *Process) Kill() {
	p.ordered.Store(true)
	p.sigkill()
	<-p.done
}

// StopGracefully lets mysqld shut down and waits until it is gone. SetSuperReadOnly must have succeeded before, and
// the caller must not open writes any more. StopGracefully first shuts clients out, because a write after the check
// (FLUSH TABLES) would stay in mysqld and be in no log. It asks the server again, and kills it if it is not read-only
// or does not answer. It also kills mysqld after Config.StopTimeout, or when ctx ends.
func (p *Process) StopGracefully(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.server.cfg.StopTimeout)
	defer cancel()
	shutCtx, cancelShut := context.WithTimeout(ctx, shutOutTimeout)
	defer cancelShut()
	if _, err := p.admin.ShutOut(shutCtx); err != nil {
		p.logger.Warn("mysqld is killed, not stopped", "error", err)
		p.Kill()
		return
	}
	p.ordered.Store(true)
	if err := p.proc.Signal(syscall.SIGTERM); err != nil {
		p.Kill()
		return
	}
	// mysqld waits seconds for sessions that do not end by themselves.
	p.admin.close()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.logger.Warn("mysqld is killed: it did not end in time", "timeout", p.server.cfg.StopTimeout)
		p.Kill()
	}
}

// NewUUID returns a random UUID (RFC 9562, version 4).
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // Never fails (Go 1.24).
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
