package peers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// serverPort is every server's port, on its node's own address.
	serverPort = 3306
	// startWait bounds the start of a server, crash recovery included.
	startWait = 3 * time.Minute
	// stopWait bounds a server's clean end.
	stopWait = 2 * time.Minute
	// pollInterval is the pause between looks at a condition.
	pollInterval = 50 * time.Millisecond
	// askTimeout bounds one question to a server, which may be frozen.
	askTimeout = 2 * time.Second
)

// server is a mysqld or mariadbd of a node: a node that has an option file and a
// root account on its socket.
type server struct {
	*node
	component string
	argv      []string // the program, without options
	vars      map[string]string
	root      *sql.DB
}

// openRoot makes the pool of root's connections over the socket. The pool connects when
// it is used, and again after a restart.
func (s *server) openRoot() error {
	var err error
	s.root, err = openSocket(s.socket(), "root", "")
	if err != nil {
		return fmt.Errorf("connect to node %s: %w", s.name, err)
	}
	return nil
}

func openSocket(socket, user, password string) (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.Passwd, cfg.Logger = "unix", socket, user, password, &mysql.NopLogger{}
	cfg.InterpolateParams = true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("describe connection: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// prepare makes the directories and gets the data directory from the template.
func (s *server) prepare(ctx context.Context, template string) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("create node directory: %w", err)
	}
	if err := copyTree(ctx, template, s.dataDir); err != nil {
		return err
	}
	return s.writeConfig()
}

// writeConfig writes the option file.
func (s *server) writeConfig() error {
	vars := map[string]string{
		"datadir": s.dataDir, "socket": s.socket(), "pid_file": s.socket() + ".pid",
		"port": fmt.Sprint(serverPort), "bind_address": s.addr.String(), "report_host": s.addr.String(),
		"server_id": fmt.Sprint(s.name[0] - 'a' + 1),
	}
	maps.Copy(vars, s.vars)
	if err := os.WriteFile(s.config(), []byte(renderOptions(vars)), 0o644); err != nil {
		return fmt.Errorf("write configuration of node %s: %w", s.name, err)
	}
	return nil
}

func renderOptions(vars map[string]string) string {
	if os.Geteuid() == 0 {
		vars = maps.Clone(vars)
		vars["user"] = "root" // the servers refuse to run as root unless told
	}
	var b strings.Builder
	b.WriteString("[mysqld]\n")
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		values := []string{vars[name]}
		if name == instrumentOption {
			values = strings.Split(vars[name], ",")
		}
		for _, value := range values {
			fmt.Fprintf(&b, "%s=%s\n", name, value)
		}
	}
	return b.String()
}

func (s *server) command(args ...string) *exec.Cmd {
	argv := slices.Concat(s.argv, []string{"--defaults-file=" + s.config()}, args)
	return exec.Command(argv[0], argv[1:]...)
}

// up starts the server and waits until it takes connections.
func (s *server) up(ctx context.Context, args ...string) error {
	if err := s.node.start(s.component, s.command(args...)); err != nil {
		return err
	}
	return s.waitUp(ctx)
}

func (s *server) waitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	ended := s.done()
	err := poll(ctx, "node "+s.name+" takes connections", func(ctx context.Context) error {
		select {
		case <-ended:
			return fatal{errors.New("the server has ended")}
		default:
			return s.root.PingContext(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, s.logTail())
	}
	return nil
}

// exec runs statements as root, in one session. Their text is not in errors,
// because some contain a password.
func (s *server) exec(ctx context.Context, statements ...string) error {
	conn, err := s.root.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to node %s: %w", s.name, err)
	}
	defer conn.Close()
	for _, stmt := range statements {
		if _, err := conn.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("run %s on node %s: %w", firstWords(stmt), s.name, err)
		}
	}
	return nil
}

// createReplicator makes the account by which servers replicate from each other, only on this
// server, and without writing its binary log: else the accounts would make the servers
// differ.
func (s *server) createReplicator(ctx context.Context, password string) error {
	return s.exec(ctx, "SET sql_log_bin = 0", "SET GLOBAL super_read_only = OFF",
		fmt.Sprintf("CREATE USER IF NOT EXISTS %s@'%%' IDENTIFIED BY '%s'", replicationUser, password),
		fmt.Sprintf("GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN ON *.* TO %s@'%%'", replicationUser),
		"SET GLOBAL super_read_only = ON", "SET sql_log_bin = 1")
}

func firstWords(stmt string) string {
	words := strings.Fields(stmt)
	return strings.Join(words[:min(len(words), 3)], " ")
}

// text asks for one value as root.
func (s *server) text(ctx context.Context, query string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var v sql.NullString
	if err := s.root.QueryRowContext(ctx, query, args...).Scan(&v); err != nil {
		return "", fmt.Errorf("ask node %s for %s: %w", s.name, firstWords(query), err)
	}
	return v.String, nil
}

// closeRoot closes root's connections.
func (s *server) closeRoot() {
	if s.root != nil {
		_ = s.root.Close() // the server goes anyway
	}
}

// fatal is an error that ends a poll at once.
type fatal struct{ error }

// poll calls cond until it returns nil. It gives up when ctx is done, with cond's last
// reason, or when the reason is fatal.
func poll(ctx context.Context, what string, cond func(context.Context) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := cond(ctx)
		if err == nil {
			return nil
		}
		if f, ok := errors.AsType[fatal](err); ok {
			return fmt.Errorf("wait until %s: %w", what, f.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s (%w): %w", what, err, ctx.Err())
		case <-tick.C:
		}
	}
}
