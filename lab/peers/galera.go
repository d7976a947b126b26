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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/mysql/rows"
)

const (
	// galeraPort is where the nodes talk to each other. At istPort and sstPort they hand over state: increments,
	// or everything.
	galeraPort = 4567
	istPort    = 4568
	sstPort    = 4444
)

// galera is MariaDB with galera-4.
type galera struct {
	servers
	locks map[string]*sql.Conn
}

func newGalera(d *Deployment) *galera {
	g := &galera{locks: map[string]*sql.Conn{}}
	g.d = d
	g.settings = append(g.shared(d.opts), g.own(d.opts)...)
	prefix := d.opts.Install.MariaDB
	for _, name := range nodeNames() {
		n := newNode(d.opts, name, "full")
		d.nodes = append(d.nodes, n)
		vars := variables(g.settings)
		host := n.addr.String()
		vars["wsrep_node_address"], vars["wsrep_node_name"] = host, name
		vars["wsrep_sst_receive_address"] = address(host, sstPort)
		vars[providerVariable] += fmt.Sprintf(";gmcast.listen_addr=tcp://%s;ist.recv_addr=%s",
			address(host, galeraPort), address(host, istPort))
		g.all = append(g.all, &server{
			node: n, component: componentMariadbd, argv: []string{filepath.Join(prefix, "bin", "mariadbd")}, vars: vars,
		})
	}
	return g
}

// shared are the shared variables as MariaDB names them.
func (g *galera) shared(o Options) []Setting {
	var all []Setting
	for _, s := range o.sharedVariables() {
		switch s.Name {
		case "secure_file_priv": // MariaDB has no value for "nowhere"
			continue
		case "performance_schema":
			s.Value, s.Why = "OFF", "MariaDB's default, and the makers' advice; nothing here needs it"
		}
		all = append(all, s)
	}
	return append(all, []Setting{
		{"innodb_log_file_size", strconv.Itoa(redoBytes), "the same for all"},
		{"innodb_flush_log_at_trx_commit", "1", "durable"},
		{"character_sets_dir", filepath.Join(g.share(o), "charsets"), "needed"},
		{"lc_messages_dir", g.share(o), "needed"},
		{"plugin_dir", filepath.Join(o.Install.MariaDB, "usr/lib/mysql/plugin"), "needed"},
	}...)
}

func (g *galera) share(o Options) string { return filepath.Join(o.Install.MariaDB, "usr/share/mysql") }

func (g *galera) own(o Options) []Setting {
	var all []string
	for _, name := range nodeNames() {
		all = append(all, address(o.Network.Addr(name).String(), galeraPort))
	}
	settings := []Setting{
		{"wsrep_on", "ON", "needed"},
		{"wsrep_provider", filepath.Join(o.Install.MariaDB, "usr/lib/galera/libgalera_smm.so"), "needed"},
		{"wsrep_cluster_name", "lab", "needed"},
		{"wsrep_cluster_address", "gcomm://" + strings.Join(all, ","), "needed"},
		{"binlog_format", "ROW", "needed"},
		{"default_storage_engine", "InnoDB", "needed"},
		{"innodb_autoinc_lock_mode", "2", "needed"},
		{"wsrep_sst_method", "rsync", "the default; used for new nodes, and where one lacks more than a donor's gcache has"},
		{"wsrep_slave_threads", strconv.Itoa(o.Workers), "the option --workers, the same for all"},
		{providerVariable, providerOptions(o),
			"the makers' advice for one writer and slow links: writers wait later for a slow node; flow control cannot be switched off; a restarted node finds what it missed; greater send windows on networks with delays, and only there"},
		remark("without a binary log, the default: on each node InnoDB alone is made durable"),
		remark("a restarted node is told where it was (--wsrep-recover), as the distribution's service unit does"),
		remark("%s", "writers: "+o.Writers),
	}
	if o.Compress {
		settings = append(settings, remark("galera does not compress what it replicates: --compress changes nothing"))
	}
	return settings
}

// sendWindows are the windows of the group communication, in packets, as the makers advise for WANs; the defaults are 4
// and 2.
const sendWindows = ";evs.send_window=1024;evs.user_send_window=512"

func providerOptions(o Options) string {
	text := "gcache.size=512M;gcs.fc_limit=256;gcs.fc_factor=0.99;gcs.fc_master_slave=" + yesNo(o.Writers == WritersOne)
	if o.WAN {
		text += sendWindows
	}
	if o.Suspect != 0 {
		// Both intervals have to be less than a third of the timeout (galera's gcomm/src/evs_proto.cpp).
		third := o.Suspect / 3 / time.Millisecond * time.Millisecond
		text += fmt.Sprintf(";evs.suspect_timeout=PT%gS;evs.keepalive_period=PT%gS;evs.join_retrans_period=PT%gS",
			o.Suspect.Seconds(), third.Seconds(), third.Seconds())
	}
	return text
}

func yesNo(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}

func (g *galera) up(ctx context.Context) error {
	template, err := g.template(ctx)
	if err == nil {
		err = g.makeTools()
	}
	if err != nil {
		return err
	}
	for i, s := range g.all {
		if err := s.openRoot(); err != nil {
			return err
		}
		if err := s.prepare(ctx, template); err != nil {
			return err
		}
		var args []string
		if i == 0 {
			args = []string{"--wsrep-new-cluster"}
		}
		if err := g.start(ctx, s, args...); err != nil {
			return err
		}
	}
	return nil
}

// start starts a server so that the state transfer's script finds its programs.
func (g *galera) start(ctx context.Context, s *server, args ...string) error {
	cmd := s.command(args...)
	cmd.Env = g.environment()
	if err := s.node.start(s.component, cmd); err != nil {
		return err
	}
	return s.waitUp(ctx)
}

func (g *galera) environment() []string {
	return append(os.Environ(), "PATH="+g.tools()+":"+g.programs()+":"+os.Getenv("PATH"))
}

// programs is the directory of MariaDB's programs. tools is the directory that comes before it on PATH.
func (g *galera) programs() string { return filepath.Join(g.d.opts.Install.MariaDB, "bin") }
func (g *galera) tools() string    { return filepath.Join(g.d.opts.Dir, "tools") }

// makeTools puts a script before rsync on PATH. A joining node starts rsync's daemon to get
// its state. If root starts the daemon, it changes to the account nobody, and the lab's servers run as root.
func (g *galera) makeTools() error {
	if err := os.MkdirAll(g.tools(), 0o755); err != nil {
		return fmt.Errorf("create tools directory: %w", err)
	}
	rsync := filepath.Join(g.programs(), "rsync")
	script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = --daemon ] && [ \"$(id -u)\" = 0 ]; then\n\tshift\n\texec %s --daemon --dparam=uid=root --dparam=gid=root \"$@\"\nfi\nexec %s \"$@\"\n", rsync, rsync)
	if err := os.WriteFile(filepath.Join(g.tools(), "rsync"), []byte(script), 0o755); err != nil {
		return fmt.Errorf("write tool: %w", err)
	}
	return nil
}

// template is a data directory that was bootstrapped with the server's own SQL files.
func (g *galera) template(ctx context.Context) (string, error) {
	prefix := g.d.opts.Install.MariaDB
	stamp, err := os.ReadFile(filepath.Join(prefix, ".quorate-rival"))
	if err != nil {
		return "", fmt.Errorf("read version of MariaDB: %w", err)
	}
	return g.d.template(ctx, "mariadb", prefix+" "+string(stamp), g.initialize)
}

func (g *galera) initialize(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	config, sql := dir+".cnf", dir+".sql"
	vars := map[string]string{"datadir": dir, "innodb_log_file_size": strconv.Itoa(redoBytes)}
	for _, name := range []string{"plugin_dir", "lc_messages_dir", "character_sets_dir"} {
		vars[name] = g.all[0].vars[name]
	}
	if err := os.WriteFile(config, []byte(renderOptions(vars)), 0o644); err != nil {
		return fmt.Errorf("write template configuration: %w", err)
	}
	// mariadb-install-db runs the same. Without an authentication plugin in these
	// variables root has no password.
	text := []byte("CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL, @current_hostname=NULL, @skip_auth_anonymous='skip';\n")
	for _, name := range []string{"mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"} {
		file, err := os.ReadFile(filepath.Join(g.share(g.d.opts), name))
		if err != nil {
			return fmt.Errorf("read system tables: %w", err)
		}
		text = append(append(text, file...), '\n')
	}
	if err := os.WriteFile(sql, text, 0o644); err != nil {
		return fmt.Errorf("write system tables: %w", err)
	}
	in, err := os.Open(sql)
	if err != nil {
		return fmt.Errorf("read system tables: %w", err)
	}
	defer in.Close() // the child has its own descriptor
	cmd := exec.Command(g.all[0].argv[0], "--defaults-file="+config, "--bootstrap", "--wsrep-on=OFF")
	cmd.Stdin = in
	return g.d.run(ctx, g.all[0].name, cmd, dir+".log")
}

// restart finds out the server's position, as the distribution's galera_recovery does,
// and starts it from there.
func (g *galera) restart(ctx context.Context, node string) error {
	s, err := g.named(node)
	if err != nil {
		return err
	}
	at, err := g.position(ctx, s)
	if err != nil {
		return err
	}
	cmd := s.command("--wsrep_start_position=" + at)
	cmd.Env = g.environment()
	if err := s.node.start(s.component, cmd); err != nil {
		return err
	}
	return s.waitUp(ctx)
}

// position returns the position, uuid:seqno, of a server that does not run.
func (g *galera) position(ctx context.Context, s *server) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	log := filepath.Join(s.dir, "recover.log")
	if err := os.RemoveAll(log); err != nil {
		return "", fmt.Errorf("remove old log: %w", err)
	}
	cmd := s.command("--wsrep-recover", "--log-error="+log)
	if err := g.d.run(ctx, s.name, cmd, log+".out"); err != nil {
		return "", err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return "", fmt.Errorf("read position of node %s: %w", s.name, err)
	}
	found := regexp.MustCompile(`WSREP: Recovered position:? *([0-9a-f-]{36}:-?[0-9]+)`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("read position of node %s: there is none; %s", s.name, tail(log))
	}
	return string(found[1]), nil
}

// state returns a server's wsrep status.
func (g *galera) state(ctx context.Context, s *server) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all, err := rows.Map[string](ctx, s.root, "SHOW GLOBAL STATUS LIKE 'wsrep_%'")
	if err != nil {
		return nil, fmt.Errorf("ask node %s for its state: %w", s.name, err)
	}
	return all, nil
}

// serves says whether a server with that state takes reads and writes.
func serves(state map[string]string) bool {
	return state["wsrep_ready"] == "ON" && state["wsrep_cluster_status"] == "Primary" && state["wsrep_local_state_comment"] == "Synced"
}

// find returns the servers that serve, in the order of their names.
func (g *galera) find(ctx context.Context) (names []string, err error) {
	for _, s := range g.living() {
		if state, err := g.state(ctx, s); err == nil && serves(state) {
			names = append(names, s.name)
		}
	}
	return names, ctx.Err()
}

// primary is the node to which clients are sent: galera itself has no primary. It is the first
// node that serves, and stays it.
func (g *galera) primary(ctx context.Context) (string, error) {
	if g.d.opts.Writers == WritersAll {
		return "", nil
	}
	names, err := g.find(ctx)
	if err != nil || len(names) == 0 {
		return "", err
	}
	return names[0], nil
}

func (g *galera) writers(ctx context.Context) ([]place, error) {
	names, err := g.find(ctx)
	if err != nil {
		return nil, err
	}
	if g.d.opts.Writers == WritersOne && len(names) > 1 {
		names = names[:1]
	}
	var all []place
	for _, name := range names {
		all = append(all, place{name, serverPort})
	}
	return all, nil
}

func (g *galera) ready(ctx context.Context) error {
	living := g.living()
	if len(living) == 0 {
		return errors.New("no server runs")
	}
	for _, s := range living {
		state, err := g.state(ctx, s)
		if err != nil {
			return err
		}
		if !serves(state) || state["wsrep_cluster_size"] != strconv.Itoa(len(living)) {
			return fmt.Errorf("node %s is %s in a %s cluster of %s", s.name, state["wsrep_local_state_comment"],
				state["wsrep_cluster_status"], state["wsrep_cluster_size"])
		}
	}
	return nil
}

// committed returns how far each living server is, and the furthest.
func (g *galera) committed(ctx context.Context) (map[string]int64, int64, error) {
	each, most := map[string]int64{}, int64(0)
	for _, s := range g.living() {
		state, err := g.state(ctx, s)
		if err != nil {
			return nil, 0, err
		}
		n, err := strconv.ParseInt(state["wsrep_last_committed"], 10, 64)
		if err != nil {
			return nil, 0, fmt.Errorf("read state of node %s: %w", s.name, err)
		}
		each[s.name] = n
		most = max(most, n)
	}
	return each, most, nil
}

func (g *galera) lag(ctx context.Context) (map[string]Lag, error) {
	each, most, err := g.committed(ctx)
	if err != nil {
		return nil, err
	}
	lags := map[string]Lag{}
	for name, n := range each {
		lags[name] = Lag{Transactions: most - n, Bytes: -1}
	}
	return lags, nil
}

func (g *galera) catchUp(ctx context.Context) error {
	_, most, err := g.committed(ctx)
	if err != nil {
		return err
	}
	return poll(ctx, "every node has applied all", func(ctx context.Context) error {
		each, _, err := g.committed(ctx)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(each)) {
			if each[name] < most {
				return fmt.Errorf("node %s is at %d of %d", name, each[name], most)
			}
		}
		return nil
	})
}

// stopApply first takes the node out of flow control: else the node would stop the writers.
func (g *galera) stopApply(ctx context.Context, node string) error {
	s, err := g.named(node)
	if err != nil {
		return err
	}
	if err := s.exec(ctx, "SET GLOBAL wsrep_desync = ON"); err != nil {
		return err
	}
	g.locks[node], err = s.lockApply(ctx)
	return err
}

func (g *galera) startApply(ctx context.Context, node string) error {
	s, err := g.named(node)
	if err != nil {
		return err
	}
	conn := g.locks[node]
	if conn == nil {
		return fmt.Errorf("peers: the appliers of node %s are not held", node)
	}
	delete(g.locks, node)
	if err := unlockApply(ctx, conn); err != nil {
		return err
	}
	return s.exec(ctx, "SET GLOBAL wsrep_desync = OFF")
}

// recover makes the cluster again from the node that is furthest. After a full outage
// the servers are not up: each waits for the others.
func (g *galera) recover(ctx context.Context) ([]string, error) {
	if names, err := g.find(ctx); err != nil || len(names) > 0 {
		return nil, err // the cluster is there
	}
	var steps []string
	var best *server
	most := int64(-1)
	left := slices.DeleteFunc(slices.Clone(g.all), func(s *server) bool { return s.abandoned() })
	for _, s := range left {
		if err := s.kill(); err != nil {
			return steps, err
		}
		at, err := g.position(ctx, s)
		if err != nil {
			return steps, err
		}
		_, text, _ := strings.Cut(at, ":")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return steps, fmt.Errorf("read position of node %s: %w", s.name, err)
		}
		steps = append(steps, "mariadbd --wsrep-recover on "+s.name)
		if best == nil || n > most {
			best, most = s, n
		}
	}
	if best == nil {
		return steps, errors.New("recover: no node is left")
	}
	if err := markSafe(filepath.Join(best.dataDir, "grastate.dat")); err != nil {
		return steps, err
	}
	steps = append(steps, "set safe_to_bootstrap: 1 in grastate.dat of "+best.name+", which is furthest")
	at, err := g.position(ctx, best)
	if err != nil {
		return steps, err
	}
	if err := g.start(ctx, best, "--wsrep-new-cluster", "--wsrep_start_position="+at); err != nil {
		return steps, err
	}
	steps = append(steps, "galera_new_cluster on "+best.name)
	starting, ctx := errgroup.WithContext(ctx)
	for _, s := range left {
		if s != best {
			steps = append(steps, "start "+s.name)
			starting.Go(func() error { return g.restart(ctx, s.name) })
		}
	}
	return steps, starting.Wait()
}

// markSafe writes into a node's state file that the node may make the cluster.
func markSafe(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read state file: %w", err)
	}
	text = regexp.MustCompile(`(?m)^safe_to_bootstrap:.*$`).ReplaceAll(text, []byte("safe_to_bootstrap: 1"))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write state file: %w", err)
	}
	return nil
}

func (g *galera) facts() Facts {
	versions := map[string]string{}
	stamp, err := os.ReadFile(filepath.Join(g.d.opts.Install.MariaDB, ".quorate-rival"))
	if _, version, ok := strings.Cut(strings.TrimSpace(string(stamp)), " "); err == nil && ok {
		versions["mariadbd"] = version
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if state, err := g.state(ctx, g.all[0]); err == nil {
		versions["galera"] = state["wsrep_provider_version"]
	}
	return Facts{Versions: versions, Settings: g.settings}
}

func (g *galera) close() {
	for _, conn := range g.locks {
		_ = conn.Close() // the server goes anyway
	}
	g.servers.close()
}
