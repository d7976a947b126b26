package mysqlrouter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/quorate/quorate/internal/sys/subprocess"
)

// rivalsVariable names the directory that scripts/get-rivals.sh has filled.
const rivalsVariable = "QUORATE_RIVALS"

// ErrNone is returned if there is no Router: make rivals gets it.
var ErrNone = errors.New("no mysqlrouter in .rivals or QUORATE_RIVALS: run make rivals")

// Program returns the path of mysqlrouter, for a test that runs two directories below the repository's root.
func Program() (string, error) {
	program, err := Rival("router", "mysqlrouter")
	if err != nil {
		return "", ErrNone
	}
	return program, nil
}

// Rival returns the path of another program that make rivals gets.
func Rival(prefix, program string) (string, error) {
	rivals := os.Getenv(rivalsVariable)
	if rivals == "" {
		rivals = "../../.rivals"
	}
	path, err := filepath.Abs(filepath.Join(rivals, prefix, "bin", program))
	if err == nil {
		_, err = os.Stat(path)
	}
	return path, err
}

// Config has the settings with which a Router is bootstrapped.
type Config struct {
	Program string
	// Dir gets Router's configuration, keys and log. It must not exist.
	Dir string
	// Against is the host:port of a node's mysqld. User is an account there, with the role quorate_dba.
	Against, User, Password string
	// Host is the address on which Router listens, with the ports of its manual; "" = loopback, with free ports.
	Host string
	// Start starts Router's processes, for example in the network namespace of Host; nil = as children of this process.
	Start func(*exec.Cmd) (*subprocess.Process, error)
}

func (c Config) start(cmd *exec.Cmd) (*subprocess.Process, error) {
	if c.Start != nil {
		return c.Start(cmd)
	}
	return subprocess.Start(cmd)
}

// run runs a command to its end, and returns its output.
func (c Config) run(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := c.start(cmd)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return "", errors.Join(ctx.Err(), p.Kill())
	}
	if !cmd.ProcessState.Success() {
		return out.String(), errors.New(cmd.ProcessState.String())
	}
	return out.String(), nil
}

// The address on which Router listens without Config.Host, and the first of its ports with one.
const (
	loopback = "127.0.0.1"
	basePort = 6446
)

// Router is a stock MySQL Router. Make one with Bootstrap.
type Router struct {
	config Config
	// RW, RO and Split are the host:port of its ports: for the primary, for replicas, and the one that splits reads from writes.
	RW, RO, Split string
	host          string
	process       *subprocess.Process
}

// What Router is told wherever it runs, in front of quorate or of Group Replication: seconds, seconds, threads.
const (
	ConnectTimeout = "1"
	ReadTimeout    = "2"
	IOThreads      = "16"
)

// Bootstrap runs "mysqlrouter --bootstrap". It starts no Router.
func Bootstrap(ctx context.Context, c Config) (*Router, error) {
	host, port, err := net.SplitHostPort(c.Against)
	if err != nil {
		return nil, fmt.Errorf("read mysqld's address: %w", err)
	}
	bind, base := c.Host, basePort
	if bind == "" {
		bind = loopback
		if base, err = freeBasePort(); err != nil {
			return nil, err
		}
	}
	plugins := filepath.Join(filepath.Dir(filepath.Dir(c.Program)), "usr/lib/mysqlrouter/plugin")
	cmd := exec.Command(c.Program, "--bootstrap", fmt.Sprintf("%s:%s@%s:%s", c.User, c.Password, host, port),
		"--directory", c.Dir, "--conf-base-port", strconv.Itoa(base), "--conf-bind-address", bind,
		"--conf-skip-x-protocol", "--disable-rest", "--name", "test", "--user", "root", "--report-host", bind,
		"--conf-set-option=DEFAULT.plugin_folder="+plugins, "--conf-set-option=DEFAULT.connect_timeout="+ConnectTimeout,
		"--conf-set-option=DEFAULT.read_timeout="+ReadTimeout,
		"--conf-set-option=DEFAULT.max_idle_server_connections=0", "--conf-set-option=routing:bootstrap_rw_split.wait_for_my_writes_timeout=60",
		"--conf-set-option=io.threads="+IOThreads)
	if out, err := c.run(ctx, cmd); err != nil {
		return nil, fmt.Errorf("bootstrap mysqlrouter: %w: %s", err, out)
	}
	r := &Router{config: c, host: bind}
	return r, r.readPorts()
}

// freeBasePort returns a port that is free together with the next four.
func freeBasePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		base := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		free := base+5 < 65536
		for p := base; free && p < base+5; p++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if free = err == nil; free {
				_ = l.Close()
			}
		}
		if free {
			return base, nil
		}
	}
	return 0, errors.New("there are no five free ports in a row")
}

func (r *Router) path(name string) string { return filepath.Join(r.config.Dir, name) }

// readPorts reads the ports from the configuration that the bootstrap has written.
func (r *Router) readPorts() error {
	text, err := os.ReadFile(r.path("mysqlrouter.conf"))
	if err != nil {
		return fmt.Errorf("read what the bootstrap has written: %w", err)
	}
	section := ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "[") {
			section = line
		}
		if port, ok := strings.CutPrefix(line, "bind_port="); ok {
			addr := net.JoinHostPort(r.host, port)
			switch section {
			case "[routing:bootstrap_rw]":
				r.RW = addr
			case "[routing:bootstrap_ro]":
				r.RO = addr
			case "[routing:bootstrap_rw_split]":
				r.Split = addr
			}
		}
	}
	if r.RW == "" || r.RO == "" || r.Split == "" {
		return fmt.Errorf("the bootstrap has made ports %q, %q and %q: %s", r.RW, r.RO, r.Split, text)
	}
	return nil
}

// Command is the command that Start starts, for callers that start it in another way.
func (r *Router) Command() *exec.Cmd {
	return exec.Command(r.config.Program, "--config", r.path("mysqlrouter.conf"))
}

// Start starts the Router. It does not wait until it serves.
func (r *Router) Start() error {
	log, err := os.Create(r.path("test.log"))
	if err != nil {
		return fmt.Errorf("make mysqlrouter's log: %w", err)
	}
	defer log.Close()
	cmd := r.Command()
	cmd.Stdout, cmd.Stderr = log, log
	r.process, err = r.config.start(cmd)
	if err != nil {
		return fmt.Errorf("start mysqlrouter: %w", err)
	}
	return nil
}

// Stop kills a Router that was started.
func (r *Router) Stop() error {
	_ = r.process.Signal(syscall.SIGKILL)
	return r.process.WaitGone()
}

// Log returns the end of the Router's log.
func (r *Router) Log() string {
	const most = 4000
	text, _ := os.ReadFile(r.path("test.log"))
	return string(text[max(0, len(text)-most):])
}
