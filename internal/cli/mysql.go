package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// mysqlCommand is the name of the command that runs the mysql client, which has options of its own.
const mysqlCommand = "mysql"

func newMySQLCommand(deps Deps) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   mysqlCommand + " [--config FILE] [-- ARGUMENTS]",
		Short: "Open the mysql client on this node's server",
		Long: `Runs the mysql client of this node's MySQL, on this node's own server, as the account "dba".
It must read the node's secrets: run it as the agent's account, or as root. What follows --
goes to the client.

On a replica the server is read-only; "quorate status" says which node is the primary. Where
the data are old or may be old, a line on stderr says so: the node still applies the log, as
after a restore, has no leader, or its agent does not answer. The exit code is the client's.`,
		Example: `  quorate mysql --config node.toml
  quorate mysql --config node.toml -- -e "CREATE USER app IDENTIFIED BY '…'"
  quorate mysql --config node.toml -- --table orders < query.sql`,
		DisableFlagsInUseLine: true, // the client's arguments come last
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := namedConfig(path)
			if err != nil {
				return err
			}
			cfg, err := agentConfig(name)
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.ErrOrStderr(), aboutData(cmd.Context(), cfg.ControlSocket()))
			return execClient(cmd.Context(), cfg, args, deps.Exec)
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// oldDataSeconds is the lag from which on a replica's data are called old.
const oldDataSeconds = 60

// aboutData is a line that says that the data of this node's mysqld may be old; "" = they are not, as far as its agent knows.
func aboutData(ctx context.Context, socket string) string {
	st, err := fetchStatus(ctx, socket)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return "" // there is no agent, so its mysqld has ended, too
	}
	if err != nil {
		return fmt.Sprintf("quorate: %v; the data may be old, and a write may get no OK: use another node\n", err)
	}
	return oldData(st.Own())
}

// oldData is a line that says that a node's mysqld, whose sessions are open already, may lack a part of the log; "" = it
// does not lack enough to be told.
func oldData(n status.Node) string {
	switch {
	case n.Role == status.RoleUnverified && n.Leader == 0:
		return fmt.Sprintf("quorate: node %s (%s) has no leader: nobody knows whether its data are the newest, and it takes no writes (quorate status)\n", n.Name, n.Role)
	case n.Role == status.RoleUnverified, n.Role == status.RolePromoting:
	case n.Role == status.RoleReplica && n.Lag() >= oldDataSeconds:
	default:
		return ""
	}
	left := ""
	if !n.LagUnknown && n.LagTransactions > 0 {
		left = ", " + units.Count(n.LagTransactions, "transaction", "transactions") + " left"
	}
	return fmt.Sprintf("quorate: node %s (%s) still applies the log%s: its data are old (quorate status)\n", n.Name, n.Role, left)
}

// execClient replaces this process with the mysql client, so that the client
// owns the terminal and its exit code is the command's.
func execClient(ctx context.Context, cfg config.Config, args []string, exec func(string, []string, []string) error) error {
	if cfg.Self().Kind == cluster.KindLogger {
		return usage(fmt.Errorf("node %s is a logger: it has no mysqld; use the configuration of another node", cfg.Node))
	}
	install, err := discover(cfg)
	if err != nil {
		return err
	}
	secrets, err := mysqld.LoadSecrets(filepath.Join(cfg.DataDir, "secrets.toml"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("node %s has no mysqld yet (%w): \"quorate status\" says why", cfg.Node, err)
	}
	if err != nil {
		return err
	}
	file, err := optionFile(fmt.Sprintf("[client]\nuser=%s\npassword=%s\n", mysqld.DBAUser, secrets.DBA))
	if err != nil {
		return err
	}
	client, err := install.ClientArgv()
	if err != nil {
		return err
	}
	server := mysqld.New(mysqld.Config{Installation: install, DataDir: filepath.Join(cfg.DataDir, "mysql")})
	if err := answers(server.Socket()); err != nil {
		return err
	}
	if err := server.RefusesDBA(ctx, secrets.DBA); err != nil {
		return fmt.Errorf("%w: a statement has changed, locked or dropped this account; \"quorate restart-mysqld %s\" makes it again (on every node, before any other statement about it)", err, cfg.Node)
	}
	argv := clientArgv(client, file, server.Socket(), args)
	// A login file would win over the option file. This is the only way to switch it
	// off.
	env := append(os.Environ(), "MYSQL_TEST_LOGIN_FILE=/nonexistent")
	return fmt.Errorf("start %s: %w", argv[0], exec(argv[0], argv, env))
}

// answers returns an error if no mysqld listens at a socket. It connects with a socket of another type: that always
// fails, but the error tells whether somebody listens, and mysqld does not see the attempt.
func answers(socket string) error {
	conn, err := net.Dial("unixgram", socket)
	if err == nil {
		_ = conn.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return errors.New("no mysqld runs on this node: \"quorate status\" says why")
	}
	return nil
}

// clientArgv returns the client's command line. The first option names our option file, or is --no-defaults: either
// keeps the user's own ~/.my.cnf from changing the account or the server. Both must come first, so only one is
// possible.
func clientArgv(client []string, file, socket string, args []string) []string {
	argv := slices.Clone(client)
	if i := slices.Index(argv, "--no-defaults"); i >= 0 {
		argv[i] = "--defaults-file=" + file
	}
	argv = append(argv, "--protocol=SOCKET", "--host=localhost", "--socket="+socket)
	return append(argv, args...)
}

// optionFile puts text where only a program that inherits our descriptors can
// read it: a file in memory that has no name and ends with the process. So the
// password appears in no file system and on no command line.
func optionFile(text string) (path string, err error) {
	fd, err := unix.MemfdCreate("quorate-client", 0) // without CLOEXEC: the client inherits it
	if err != nil {
		return "", fmt.Errorf("create option file: %w", err)
	}
	// The client ignores option files that others may write to.
	if err = unix.Fchmod(fd, 0o600); err == nil {
		_, err = unix.Write(fd, []byte(text))
	}
	if err != nil {
		unix.Close(fd)
		return "", fmt.Errorf("write option file: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
}
