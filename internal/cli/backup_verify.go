package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/rows"
	"github.com/quorate/quorate/internal/sys/clock"
)

// verifyPoll is the pause between looks whether the restored node has opened.
const verifyPoll = 500 * time.Millisecond

const (
	// verifyAskTimeout bounds such a look.
	verifyAskTimeout = 10 * time.Second
	// verifyStill is how long the restored node may apply nothing: one statement may take long.
	verifyStill = time.Hour
)

// verifyOptions is what the command line says.
type verifyOptions struct {
	place            backupPlace
	scratch, keyFile string
	deps             Deps
}

func newBackupVerifyCommand(deps Deps) *cobra.Command {
	o := verifyOptions{deps: deps}
	cmd := &cobra.Command{
		Use:   "verify --scratch DIR",
		Short: "Restore the newest full backup in a scratch directory and check it",
		Long: `Restores the newest full backup, with all of the log behind it, into a new directory below
--scratch, and starts a node there that listens on loopback alone. Then it compares the
transactions of that node with those of the backup and its log, and checks every table
(CHECK TABLE). It removes that directory at the end, and those of verifications that were
killed, and nothing else.

It needs MySQL, room for the data, and as much time as a restore. Run it on a host that has
nothing else to do, as the account that runs agents, or as root. It gives up if the node
applies nothing for an hour.

Exit code 0: the backup is whole. 1: it is not, or that could not be found out.`,
		Example: `  quorate backup verify --scratch /srv/scratch --identity backup.key`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.scratch == "" {
				return usage(errors.New("--scratch is missing: it says where there is room for the data"))
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	configFlag(cmd, &o.place.control.path)
	o.place.placeFlag(cmd)
	cmd.Flags().StringVar(&o.scratch, "scratch", "", "an existing `directory` with room for the data")
	cmd.Flags().StringVar(&o.keyFile, "identity", "", "the `file` with age's private key, if the backup is encrypted")
	cmd.Flags().BoolVar(&o.place.control.asJSON, "json", false, "print the result in JSON")
	_ = cmd.MarkFlagDirname("scratch") // the flag exists
	return cmd
}

// verified is what "quorate backup verify --json" prints.
type verified struct {
	restored
	Tables int `json:"tables"`
	// Problems are sentences; none = the backup is whole.
	Problems []string `json:"problems"`
}

func (o *verifyOptions) run(ctx context.Context, out, errOut io.Writer) (err error) {
	store, _, err := o.place.open()
	if err != nil {
		return err
	}
	identities, err := repository.Identities(o.keyFile)
	if err != nil {
		return err
	}
	dir, remove, err := scratchDir(o.scratch, errOut)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	cfg, err := o.scratchConfig(filepath.Join(dir, scratchData))
	if err != nil {
		return err
	}
	began := time.Now()
	quiet := slog.New(slog.DiscardHandler)
	v := verified{Problems: []string{}}
	if v.restored, err = restoreInto(ctx, restoring{store, identities, cfg, archive.Target{}, quiet, o.deps.Version, errOut, "", false, true}); err != nil {
		return err
	}
	v.Problems = append(v.Problems, v.unread...)
	if err := o.look(ctx, cfg, quiet, &v); err != nil {
		return err
	}
	v.Seconds = time.Since(began).Seconds()
	if err = show(out, o.place.control.asJSON, v, v.text(time.Since(began))); err == nil && len(v.Problems) > 0 {
		err = &exitError{code: exitFailure}
	}
	return err
}

// scratchData is the restored data, in a directory of a verification. Such a directory is known by it.
const scratchData = "quorate-verify"

// scratchDir makes a directory below scratch. First it removes the directories of verifications that were killed:
// each has all of a database, not encrypted. The new directory is locked until remove is called, or this process
// ends.
func scratchDir(scratch string, errOut io.Writer) (dir string, remove func() error, err error) {
	left, err := filepath.Glob(filepath.Join(scratch, "qv-*", scratchData))
	if err != nil {
		return "", nil, fmt.Errorf("look below --scratch: %w", err)
	}
	for _, data := range left {
		old := filepath.Dir(data)
		if info, err := os.Lstat(old); err != nil || !info.IsDir() {
			continue // it has just ended, or is a link
		}
		lock, err := vfs.OS{}.Lock(old)
		if errors.Is(err, vfs.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
			continue // it is under way, or has just ended
		}
		if err == nil {
			fmt.Fprintf(errOut, "%s was left by a verification that was killed, and is removed\n", old)
			err = errors.Join(os.RemoveAll(old), lock.Close())
		}
		if err != nil {
			return "", nil, fmt.Errorf("remove what a verification has left: %w", err)
		}
	}
	if dir, err = os.MkdirTemp(scratch, "qv-"); err != nil { // a socket's path in it must not be long
		return "", nil, fmt.Errorf("make a directory below --scratch: %w", err)
	}
	lock, err := vfs.OS{}.Lock(dir)
	if err == nil {
		err = os.Chmod(dir, 0o751) // mysqld may be another account
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), lock.Close()) }, nil
}

func (v verified) text(took time.Duration) string {
	if len(v.Problems) == 0 {
		return fmt.Sprintf("%s is whole: restored to entry %d, %s, with all transactions, and %s without damage, in %s\n",
			v.Full, v.Index, orNoTime(v.Time), units.Count(v.Tables, "table", "tables"), shortDuration(took))
	}
	return fmt.Sprintf("%s is NOT whole:\n  %s\n", v.Full, strings.Join(v.Problems, "\n  "))
}

// scratchConfig is the configuration of a single node on loopback, with the MySQL of this host's configuration.
func (o *verifyOptions) scratchConfig(dataDir string) (config.Config, error) {
	cfg := config.Default()
	if path := configPath(o.place.control.path); path != "" {
		own, err := loadConfig(path)
		if err != nil {
			return cfg, err
		}
		if err := mayExecute(own.File()); err != nil {
			return cfg, err
		}
		cfg.MySQL.BaseDir, cfg.MySQL.User, cfg.MySQL.Variables = own.MySQL.BaseDir, own.MySQL.User, maps.Clone(own.MySQL.Variables)
	}
	if cfg.MySQL.Variables == nil {
		cfg.MySQL.Variables = map[string]string{}
	}
	cfg.MySQL.Variables["innodb_buffer_pool_size"] = "256M" // other programs may run on this host
	ports, err := freePorts(6)
	if err != nil {
		return cfg, err
	}
	const node = "verify"
	cfg.Cluster, cfg.Node, cfg.DataDir = "quorate-verify", node, dataDir
	cfg.Members = []config.Member{{Name: node, Peer: ports[0], Kind: cluster.KindFull, Weight: cluster.WeightDefault}}
	cfg.Feed.Listen, cfg.Router.ReadWrite, cfg.API.Listen = ports[1], ports[2], ports[3]
	_, port, _ := net.SplitHostPort(ports[4]) // no error: net made the address
	_, err = fmt.Sscan(port, &cfg.MySQL.Port)
	return cfg, err
}

// freePorts are addresses on loopback where nobody listens now.
func freePorts(count int) (addrs []string, err error) {
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// opened waits until a restored node has opened, as long as it makes progress. ended receives the error with which
// the node ends; opened puts nil there again for the caller, who waits for the end, too.
func opened(ctx context.Context, node string, ask func(context.Context) (status.Cluster, error), ended chan error) error {
	has, moved := "", time.Now()
	var own status.Node // from its last answer
	for {
		one, cancel := context.WithTimeout(ctx, verifyAskTimeout)
		st, asked := ask(one)
		cancel()
		if asked == nil {
			own = st.Own()
		}
		switch now := fmt.Sprint(own.Mysqld, own.LogCommit, own.Applied, own.GTIDExecuted); {
		case asked == nil && st.Primary == node:
			return nil
		case own.Role == status.RoleFenced || own.Role == status.RoleErrant:
			return fmt.Errorf("the restored node does not open: it is %s: %s", own.Role, own.Reason)
		case now != has:
			has, moved = now, time.Now()
		case time.Since(moved) >= verifyStill:
			return fmt.Errorf("the restored node does not open, and has applied nothing for %s: it is %s: %s", units.Duration(verifyStill), own.Role, own.Reason)
		}
		select {
		case err := <-ended:
			ended <- nil
			return fmt.Errorf("the restored node has ended: %w", err)
		default:
		}
		if err := clock.Sleep(ctx, clock.Machine{}, verifyPoll); err != nil {
			return fmt.Errorf("the restored node has not opened: it is %s: %s: %w", own.Role, own.Reason, errors.Join(err, asked))
		}
	}
}

// look runs the restored node, and checks its data.
func (o *verifyOptions) look(ctx context.Context, cfg config.Config, logger *slog.Logger, v *verified) (err error) {
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- o.deps.RunAgent(run, cfg, logger, o.deps.Version) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	ask := func(ctx context.Context) (status.Cluster, error) { return api.FetchStatus(ctx, cfg.API.Listen, "") }
	if err := opened(ctx, cfg.Node, ask, ended); err != nil {
		return err
	}
	secrets, err := mysqld.LoadSecrets(filepath.Join(cfg.DataDir, "secrets.toml"))
	if err != nil {
		return err
	}
	install, err := mysqld.Discover(cfg.MySQL.BaseDir, cfg.MySQL.User)
	if err != nil {
		return err
	}
	dsn := mysql.NewConfig()
	dsn.Net, dsn.Addr = "unix", mysqld.New(mysqld.Config{Installation: install, DataDir: filepath.Join(cfg.DataDir, "mysql")}).Socket()
	dsn.User, dsn.Passwd, dsn.Logger = mysqld.DBAUser, secrets.DBA, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	return v.look(ctx, db)
}

func (v *verified) look(ctx context.Context, db *sql.DB) error {
	var text string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&text); err != nil {
		return fmt.Errorf("read gtid_executed: %w", err)
	}
	has, err := gtid.ParseSet(text)
	want, err2 := gtid.ParseSet(v.GTIDs)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	lacks := want.Clone()
	if lacks.Subtract(has); !lacks.IsEmpty() {
		v.Problems = append(v.Problems, "transactions are missing: "+lacks.String())
	}
	var own string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid").Scan(&own); err != nil {
		return fmt.Errorf("read server_uuid: %w", err)
	}
	has.Subtract(want)
	for source := range has.Intervals() {
		if source.UUID.String() != own { // the node may have made transactions of its own since
			v.Problems = append(v.Problems, "there are transactions that the log does not have: "+has.String())
			break
		}
	}
	tables, err := baseTables(ctx, db)
	if err != nil {
		return err
	}
	for _, table := range tables {
		v.Tables++
		if err := v.check(ctx, db, table); err != nil {
			return err
		}
	}
	return nil
}

// baseTables are all tables of users, quoted.
func baseTables(ctx context.Context, db *sql.DB) (tables []string, err error) {
	type name struct{ schema, table string }
	names, err := rows.All(ctx, db, func(n *name) []any { return []any{&n.schema, &n.table} },
		`SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'
		AND table_schema NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') ORDER BY 1, 2`)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	for _, n := range names {
		tables = append(tables, binlog.QuoteName(n.schema)+"."+binlog.QuoteName(n.table))
	}
	return tables, nil
}

// check checks one table.
func (v *verified) check(ctx context.Context, db *sql.DB, table string) error {
	type message struct{ table, op, kind, text string }
	all, err := rows.All(ctx, db, func(m *message) []any { return []any{&m.table, &m.op, &m.kind, &m.text} }, "CHECK TABLE "+table)
	if err != nil {
		return fmt.Errorf("check table %s: %w", table, err)
	}
	for _, m := range all {
		if m.kind == "error" || m.kind == "status" && m.text != "OK" {
			v.Problems = append(v.Problems, fmt.Sprintf("table %s: %s", table, m.text))
		}
	}
	return nil
}
