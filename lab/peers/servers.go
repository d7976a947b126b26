package peers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// replicationUser is the account by which servers replicate from each other.
const replicationUser = "replication"

// nodeNames are the names of the nodes in systems of three servers.
func nodeNames() []string { return []string{"a", "b", "c"} }

// servers are the MySQL servers of a system: what drivers have in common.
type servers struct {
	d        *Deployment
	all      []*server
	settings []Setting
}

// newServers makes the servers, with the system's own settings, which override the shared ones.
func newServers(d *Deployment, names []string, own []Setting) servers {
	shared := slices.DeleteFunc(d.opts.mysqlVariables(), func(s Setting) bool {
		return slices.ContainsFunc(own, func(o Setting) bool { return o.Name == s.Name })
	})
	g := servers{d: d, settings: slices.Concat(shared, own)}
	in := d.opts.Install.MySQL
	vars := variables(g.settings)
	for name, dir := range map[string]string{
		"plugin_dir": in.PluginDir, "lc_messages_dir": in.ShareDir, "character_sets_dir": in.CharsetsDir,
	} {
		if dir != "" {
			vars[name] = dir
		}
	}
	for _, name := range names {
		n := newNode(d.opts, name, "full")
		d.nodes = append(d.nodes, n)
		g.all = append(g.all, &server{node: n, component: componentMysqld, argv: in.MysqldArgv(), vars: maps.Clone(vars)})
	}
	return g
}

// begin initialises and starts the servers.
func (g *servers) begin(ctx context.Context) error {
	template, err := g.template(ctx)
	if err != nil {
		return err
	}
	starting, ctx := errgroup.WithContext(ctx)
	for _, s := range g.all {
		if err := s.openRoot(); err != nil {
			return err
		}
		starting.Go(func() error {
			if err := s.prepare(ctx, template); err != nil {
				return err
			}
			return s.up(ctx)
		})
	}
	return starting.Wait()
}

// template is a data directory as --initialize-insecure leaves it. Settings that differ between
// deployments do not matter for that.
func (g *servers) template(ctx context.Context) (string, error) {
	in := g.d.opts.Install.MySQL
	return g.d.template(ctx, "mysql", in.Mysqld+" "+in.Version.String(), func(ctx context.Context, dir string) error {
		config := dir + ".cnf"
		vars := map[string]string{"datadir": dir}
		for _, name := range []string{"plugin_dir", "lc_messages_dir", "character_sets_dir"} {
			if v, ok := g.all[0].vars[name]; ok {
				vars[name] = v
			}
		}
		if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
			return fmt.Errorf("create template directory: %w", err)
		}
		if err := os.WriteFile(config, []byte(renderOptions(vars)), 0o644); err != nil {
			return fmt.Errorf("write template configuration: %w", err)
		}
		argv := append(in.MysqldArgv(), "--defaults-file="+config, "--initialize-insecure", "--skip-log-bin")
		return g.d.run(ctx, g.all[0].name, exec.Command(argv[0], argv[1:]...), dir+".log")
	})
}

func (g *servers) named(node string) (*server, error) {
	i := slices.IndexFunc(g.all, func(s *server) bool { return s.name == node })
	if i < 0 {
		return nil, fmt.Errorf("peers: node %q has no server", node)
	}
	return g.all[i], nil
}

// living are the servers whose process runs; it may be frozen.
func (g *servers) living() []*server {
	return slices.DeleteFunc(slices.Clone(g.all), func(s *server) bool { return s.running() == nil })
}

func (g *servers) socketOf(node string) string {
	if s, err := g.named(node); err == nil {
		return s.socket()
	}
	return ""
}

func (g *servers) admin(_ context.Context, node string) (*sql.DB, error) {
	s, err := g.named(node)
	if err != nil {
		return nil, err
	}
	return s.root, nil
}

func (g *servers) places() []place {
	var all []place
	for _, s := range g.all {
		all = append(all, place{s.name, serverPort})
	}
	return all
}

func (g *servers) stop(_ context.Context, node string) error {
	s, err := g.named(node)
	if err != nil {
		return err
	}
	return s.node.stop(stopWait)
}

func (g *servers) restart(ctx context.Context, node string) error {
	s, err := g.named(node)
	if err != nil {
		return err
	}
	return s.up(ctx)
}

func (g *servers) close() {
	for _, s := range g.all {
		s.closeRoot()
	}
}

func (g *servers) failover(context.Context, string) ([]string, error) { return nil, nil }
func (g *servers) recover(context.Context) ([]string, error)          { return nil, nil }

func (g *servers) facts() Facts {
	return Facts{Versions: map[string]string{"mysqld": g.d.opts.Install.MySQL.Version.String()}, Settings: g.settings}
}

// executed returns a server's gtid_executed.
func (s *server) executed(ctx context.Context) (*gtid.Set, error) {
	return s.gtids(ctx, "SELECT @@GLOBAL.gtid_executed")
}

func (s *server) gtids(ctx context.Context, query string) (*gtid.Set, error) {
	text, err := s.text(ctx, query)
	if err != nil {
		return nil, err
	}
	set, err := gtid.ParseSet(strings.ReplaceAll(text, "\n", ""))
	if err != nil {
		return nil, fmt.Errorf("read GTIDs of node %s: %w", s.name, err)
	}
	return set, nil
}

// union returns what each living server has executed, and all of it together.
func union(ctx context.Context, living []*server) (map[string]*gtid.Set, *gtid.Set, error) {
	each, all := map[string]*gtid.Set{}, &gtid.Set{}
	for _, s := range living {
		set, err := s.executed(ctx)
		if err != nil {
			return nil, nil, err
		}
		each[s.name] = set
		all.Union(set)
	}
	return each, all, nil
}

func (g *servers) lag(ctx context.Context) (map[string]Lag, error) { return lagOf(ctx, g.living()) }

// lagOf is what each server lacks of all that any server has executed.
func lagOf(ctx context.Context, living []*server) (map[string]Lag, error) {
	each, all, err := union(ctx, living)
	if err != nil {
		return nil, err
	}
	lags := map[string]Lag{}
	for name, set := range each {
		lacks := all.Clone()
		lacks.Subtract(set)
		lags[name] = Lag{Transactions: int64(lacks.Count()), Bytes: -1}
	}
	return lags, nil
}

func (g *servers) catchUp(ctx context.Context) error { return catchUpOf(ctx, g.living()) }

// catchUpOf waits until each server has all that any server has now.
func catchUpOf(ctx context.Context, living []*server) error {
	_, all, err := union(ctx, living)
	if err != nil {
		return err
	}
	waiting, ctx := errgroup.WithContext(ctx)
	for _, s := range living {
		waiting.Go(func() error { return s.waitExecuted(ctx, all.String()) })
	}
	return waiting.Wait()
}

// waitExecuted waits until the server has executed set.
func (s *server) waitExecuted(ctx context.Context, set string) error {
	return poll(ctx, "node "+s.name+" has applied all", func(ctx context.Context) error {
		// The server waits a second at a time, so that a killed one is noticed.
		late, err := s.text(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 1)", set)
		switch {
		case s.running() == nil:
			return fatal{errors.New("it has ended")}
		case err != nil:
			return err
		case late != "0":
			return errors.New("it lags behind")
		}
		return nil
	})
}

// writable returns an error for a server that takes no writes.
func (s *server) writable(ctx context.Context) error {
	v, err := s.text(ctx, "SELECT @@GLOBAL.super_read_only OR @@GLOBAL.read_only")
	if err == nil && v != "0" {
		err = fmt.Errorf("node %s is read-only", s.name)
	}
	return err
}

// lockApply blocks a server's appliers by a read lock. A separate session, which it returns, holds
// the lock.
func (s *server) lockApply(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.root.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to node %s: %w", s.name, err)
	}
	if _, err := conn.ExecContext(ctx, "FLUSH TABLES WITH READ LOCK"); err != nil {
		return nil, errors.Join(fmt.Errorf("lock tables of node %s: %w", s.name, err), conn.Close())
	}
	return conn, nil
}

// unlockApply ends the lock of lockApply.
func unlockApply(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "UNLOCK TABLES"); err != nil {
		return errors.Join(fmt.Errorf("unlock tables: %w", err), conn.Close())
	}
	if err := conn.Close(); err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}
