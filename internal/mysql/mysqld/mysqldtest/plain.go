package mysqldtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver

	"github.com/quorate/quorate/internal/mysql/install"
)

// Plain is a server without quorate, with a binlog and GTIDs. Its root account has no password.
// It dies with this process.
type Plain struct {
	in      *install.Installation
	dir     string
	options []string

	mu   sync.Mutex
	cmd  *exec.Cmd     // nil while it does not run
	done chan struct{} // closed once cmd has ended
}

// pollPlain is how often Start tries whether the server answers.
const pollPlain = 50 * time.Millisecond

// NewPlain makes a server in dir, which it creates. options are lines of its option file. The
// server has a network only if they name a port.
func NewPlain(in *install.Installation, dir string, options ...string) (*Plain, error) {
	p, err := configured(in, dir, options)
	if err != nil {
		return nil, err
	}
	// The data do not depend on a server's socket and address. Without those options Prefix can copy the data
	// here, too.
	lines := slices.DeleteFunc(strings.Split(p.render(), "\n"), func(l string) bool {
		name, _, _ := strings.Cut(l, "=")
		return slices.Contains([]string{"socket", "pid_file", "port", "bind_address"}, name)
	})
	first := filepath.Join(p.dir, "initialise.cnf")
	if err := os.WriteFile(first, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return nil, fmt.Errorf("initialise server: %w", err)
	}
	argv := append(in.MysqldArgv(), "--defaults-file="+first, "--initialize-insecure")
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initialise server: %w\n%s", err, out)
	}
	return p, p.asNew()
}

// asNew makes a server whose data are a copy take a UUID of its own.
func (p *Plain) asNew() error {
	if err := os.Remove(filepath.Join(p.Data(), "auto.cnf")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("copy server: %w", err)
	}
	return nil
}

// Copy makes another server in dir, with a copy of this server's data. This server must not run.
// The new one has a UUID of its own, and only the options given here.
func (p *Plain) Copy(dir string, options ...string) (*Plain, error) {
	c, err := configured(p.in, dir, options)
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command("cp", "-a", "--reflink=auto", "--sparse=always", p.Data(), c.Data()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy server: %w\n%s", err, out)
	}
	return c, c.asNew()
}

// configured returns a server that has its option file, and no data yet.
func configured(in *install.Installation, dir string, options []string) (*Plain, error) {
	p := &Plain{in: in, dir: dir, options: options}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make server: %w", err)
	}
	if err := os.WriteFile(p.config(), []byte(p.render()), 0o644); err != nil {
		return nil, fmt.Errorf("make server: %w", err)
	}
	return p, nil
}

// Data returns its data directory.
func (p *Plain) Data() string { return filepath.Join(p.dir, "data") }

// Socket returns the path of its Unix socket.
func (p *Plain) Socket() string { return filepath.Join(p.dir, "s.sock") }

// DSN returns the data source name for root.
func (p *Plain) DSN() string {
	return "root@unix(" + p.Socket() + ")/?multiStatements=true&interpolateParams=true"
}

func (p *Plain) config() string { return filepath.Join(p.dir, "my.cnf") }

func (p *Plain) render() string {
	lines := []string{
		"[mysqld]", "datadir=" + p.Data(), "socket=" + p.Socket(), "pid_file=" + filepath.Join(p.dir, "pid"),
		"plugin_dir=" + p.in.PluginDir, "secure_file_priv=NULL", "loose_mysqlx=OFF", "server_id=1001",
		"gtid_mode=ON", "enforce_gtid_consistency=ON", "log_bin=binlog", "relay_log=relay",
		"innodb_buffer_pool_size=32M", "innodb_redo_log_capacity=16M",
	}
	if p.in.ShareDir != "" {
		lines = append(lines, "lc_messages_dir="+p.in.ShareDir)
	}
	if p.in.CharsetsDir != "" {
		lines = append(lines, "character_sets_dir="+p.in.CharsetsDir)
	}
	if os.Geteuid() == 0 {
		lines = append(lines, "user=root")
	}
	if !slices.ContainsFunc(p.options, func(o string) bool { return strings.HasPrefix(o, "port=") }) {
		lines = append(lines, "skip_networking")
	}
	return strings.Join(append(lines, p.options...), "\n") + "\n"
}

// Start starts the server and waits until it answers.
func (p *Plain) Start(ctx context.Context) error {
	argv := append(p.in.MysqldArgv(), "--defaults-file="+p.config())
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := os.OpenFile(filepath.Join(p.dir, "error.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	defer out.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the parent-death signal depends on the thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	db, err := sql.Open("mysql", p.DSN())
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	defer db.Close() // it only asks
	tick := time.NewTicker(pollPlain)
	defer tick.Stop()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-done:
			return fmt.Errorf("start server: it has ended; see %s", out.Name())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("start server: %w", err), p.Kill())
		}
	}
}

// Stop shuts the server down in order, and waits until it is gone.
func (p *Plain) Stop() error { return p.end(syscall.SIGTERM) }

// Kill kills the server, if it runs, and waits until it is gone.
func (p *Plain) Kill() error { return p.end(syscall.SIGKILL) }

func (p *Plain) end(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end server: %w", err)
	}
	<-p.done
	p.cmd = nil
	return nil
}
