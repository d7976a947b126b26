package peers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// The ports of a node of quorate, as in its documentation.
const (
	peerPort   = 7400
	apiPort    = 7401
	feedPort   = 7402
	routerPort = 6446
	readPort   = 6447
)

// statusBytesMax bounds how much of a status is read: a few nodes, a few KiB each.
const statusBytesMax = 1 << 20

// agents is quorate: an agent on each node, which runs the node's mysqld.
type agents struct {
	d        *Deployment
	nodes    []*node // those with an agent
	settings []Setting
	between  *node              // the program between clients and nodes, beside the clients; nil = none
	roots    map[string]*server // the nodes with a mysqld, for questions over the socket
	clients  map[string]*http.Client
	locks    map[string]*sql.Conn
}

func newQuorate(d *Deployment) *agents {
	a := &agents{d: d, roots: map[string]*server{}, clients: map[string]*http.Client{}, locks: map[string]*sql.Conn{}}
	names := nodeNames()
	if d.opts.Sites > 1 {
		names = []string{"a", "b", "d", "c", "e", "f"}
	}
	for i, name := range append(names, []string{"d", "e"}[:d.opts.Learners]...) {
		kind := cluster.KindFull
		switch {
		case i >= len(names):
			kind = cluster.KindLearner
		case i >= len(names)-d.opts.Loggers:
			kind = cluster.KindLogger
		}
		n := newNode(d.opts, name, string(kind))
		a.nodes = append(a.nodes, n)
		if kind != cluster.KindLogger {
			a.roots[name] = &server{node: n}
		}
		a.clients[name] = &http.Client{Transport: &http.Transport{
			DialContext: d.opts.Network.DialContext(name), DisableKeepAlives: true,
		}}
	}
	d.nodes = slices.Clone(a.nodes)
	a.settings = append(d.opts.sharedVariables(), []Setting{
		d.opts.instruments(),
		{"innodb_redo_log_capacity", strconv.Itoa(redoBytes), "the same for all"},
		{"replica_parallel_workers", strconv.Itoa(d.opts.Workers), "the option --workers, the same for all"},
		{"binlog_transaction_compression", onOff(d.opts.Compress), "the option --compress, the same for all"},
		remark("%s", clientsRemark(d.opts)),
		remark("sync_binlog 0 and innodb_flush_log_at_trx_commit 2 are quorate's own: its log is fsynced by a majority before the OK"),
		remark("a replica fsyncs nothing of what it applies (sync_binlog 0, innodb_flush_log_at_trx_commit 2, sync_relay_log 0) and writes no binary log of it (log_replica_updates OFF): after a crash its agent has it; other systems have --replica-durability relaxed for that"),
		remark("replication_optimize_for_static_plugin_config, binlog_transaction_dependency_history_size and max_binlog_size are what quorate sets, and the other systems have them, too"),
		remark("%s", citiesRemark(d.opts)),
		remark("all else is the product's default: election timeout 1 s, max_apply_lag 10 s (it slows writers down before replicas are further behind)"),
	}...)
	return a
}

func clientsRemark(o Options) string {
	switch o.Clients {
	case clientsKernel:
		return "the option --clients: clients connect to port 6446 of the primary's node, which the kernel redirects to mysqld and fences"
	case clientsPort:
		return "the option --clients: clients connect to mysqld's own port, fenced by the kernel"
	case clientsReplicas:
		return "the option --clients: clients write at port 6446 of the primary's node, and read at port 6447 of all nodes"
	case clientsSplit:
		return "the option --clients: clients connect to the port of MySQL Router that splits reads from writes, beside them"
	case clientsHAProxy:
		return "the option --clients: clients connect to HAProxy beside them, which goes to 6446, and for reads to 6447"
	}
	return "clients connect to port 6446 of the primary's node: the agent passes the bytes to mysqld"
}

func citiesRemark(o Options) string {
	switch {
	case o.Sites > 1:
		return "the option --sites: a, b and d are a cluster, and c, e and f another one, which follows the first; TLS between them by a certificate of the lab"
	case o.Durability != "":
		return "the option --durability: " + o.Durability + ", with a and b in one site and c in another"
	}
	return "durability is majority: an OK waits for the nearest replica"
}

func (a *agents) configOf(n *node) string { return filepath.Join(n.dir, "node.toml") }

// agentDir is a node's data_dir.
func (n *node) agentDir() string { return n.dataDir }

// render returns a node's configuration: what quorate's documentation asks for, and the
// addresses of the lab's network.
func (a *agents) render(n *node) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	here, local := n.addr.String(), localAddress(n)
	bind := local
	if a.d.opts.ownPort() {
		bind = here
	}
	line("cluster = %q\nnode = %q\ndata_dir = %q", a.clusterOf(n), n.name, n.agentDir())
	for _, m := range a.nodes {
		if m.kind != string(cluster.KindLearner) && a.clusterOf(m) == a.clusterOf(n) {
			line("[[member]]\nname = %q\npeer = %q\nkind = %q", m.name, address(m.addr.String(), peerPort), m.kind)
			if m.key != "" {
				line("key = %q", m.key)
			}
		}
	}
	if n.kind == string(cluster.KindLearner) {
		line("[join]\npeer = %q\nkind = %q", address(here, peerPort), n.kind)
	}
	line("[mysql]\nbase_dir = %q\nbind = %q\nport = %d", a.d.opts.Install.MySQL.BaseDir, bind, serverPort)
	line("[mysql.variables]")
	vars := variables(a.settings)
	for _, guarded := range []string{"performance_schema", "skip_name_resolve", "secure_file_priv"} {
		delete(vars, guarded) // quorate sets the same value itself, and refuses the setting
	}
	delete(vars, instrumentOption)
	if value, told := a.d.opts.ownInstruments(); told {
		vars[instrumentOption] = value
	}
	two := a.d.opts.Sites > 1
	if two {
		vars["ssl_ca"], vars["ssl_cert"], vars["ssl_key"] = a.siteFile("cert"), a.siteFile("cert"), a.siteFile("key")
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		line("%s = %q", name, vars[name])
	}
	line("[feed]\nlisten = %q", address(local, feedPort))
	if two {
		line("readers_listen = %q\n%s", address(here, readersPort), a.renderSite(n))
	}
	line("[router]\nread_write = %q", address(here, routerPort))
	if a.d.opts.readPort() {
		line("read_only = %q", address(here, readPort))
	}
	line("[api]\nlisten = %q", address(here, apiPort))
	return b.String()
}

// localAddress is where the feed listens, and mysqld unless its own port is for clients: with quorate both are only on
// loopback, and a node of Loopback has an address of its own there.
func localAddress(n *node) string {
	if n.addr.IsLoopback() {
		return n.addr.String()
	}
	return "127.0.0.1"
}

// makeKey makes a node's key, in the file where its agent looks for it.
func (a *agents) makeKey(n *node) error {
	if a.d.opts.PlainPeers {
		return nil
	}
	k, _, err := nodekey.LoadOrMake(filepath.Join(n.dir, "node.key"), nil)
	if err != nil {
		return err
	}
	n.key = k.Name()
	return nil
}

func (a *agents) up(ctx context.Context) error {
	for _, n := range a.nodes {
		for _, dir := range []string{n.dir, filepath.Dir(n.dataDir)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("create node directory: %w", err)
			}
		}
		if err := a.makeKey(n); err != nil {
			return err
		}
	}
	if err := a.makeSiteFiles(); err != nil {
		return err
	}
	for _, n := range a.nodes {
		if err := os.WriteFile(a.configOf(n), []byte(a.render(n)), 0o644); err != nil {
			return fmt.Errorf("write configuration of node %s: %w", n.name, err)
		}
		if err := a.start(n); err != nil {
			return err
		}
	}
	ready, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	if err := poll(ready, "there is a primary", a.opening); err != nil {
		return err
	}
	for _, n := range a.nodes {
		if n.kind == string(cluster.KindLearner) {
			if err := a.ask(ctx, "node", "add", n.name, "--kind", n.kind, "--peer", address(n.addr.String(), peerPort), "--key", string(n.key)); err != nil {
				return err
			}
		}
	}
	if err := poll(ready, "quorate is whole", a.ready); err != nil {
		return err
	}
	// The clients are in a's site.
	node, err := a.primary(ctx)
	if err == nil && node != "a" {
		err = a.ask(ctx, "switchover", "--to", "a")
	}
	if err == nil {
		err = a.span(ctx)
	}
	if err != nil {
		return err
	}
	return a.startBetween(ctx)
}

// opening is like serving, but returns an error as soon as an agent has ended.
func (a *agents) opening(ctx context.Context) error {
	for _, n := range a.nodes {
		if n.running() == nil {
			return fatal{fmt.Errorf("the agent of node %s has ended; %s", n.name, n.logTail())}
		}
	}
	return a.serving(ctx)
}

// start starts a node's agent.
func (a *agents) start(n *node) error {
	return n.start(componentAgent, exec.Command(a.d.opts.Install.Quorate, "run", "--config", a.configOf(n)))
}

// ask runs one of quorate's own commands on the primary's node. The others may not know yet
// that the cluster has begun.
func (a *agents) ask(ctx context.Context, args ...string) error {
	name, err := a.primary(ctx)
	if err != nil {
		return err
	}
	return a.askOn(ctx, name, args...)
}

func (a *agents) askOn(ctx context.Context, node string, args ...string) error {
	n, err := a.d.node(node)
	if err != nil {
		return fmt.Errorf("ask a node: %w", err)
	}
	args = append(args, "--config", a.configOf(n))
	return a.d.run(ctx, n.name, exec.Command(a.d.opts.Install.Quorate, args...), n.log())
}

// status returns the cluster as a node's agent sees it.
func (a *agents) status(ctx context.Context, n *node) (st status.Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address(n.addr.String(), apiPort)+"/status", nil)
	if err != nil {
		return st, fmt.Errorf("ask node %s: %w", n.name, err)
	}
	resp, err := a.clients[n.name].Do(req)
	if err != nil {
		return st, fmt.Errorf("ask node %s: %w", n.name, err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, statusBytesMax)).Decode(&st); err != nil {
		return st, fmt.Errorf("read status of node %s: %w", n.name, err)
	}
	return st, nil
}

// self returns a node's status of itself, and of its cluster.
func (a *agents) self(ctx context.Context, n *node) (status.Node, status.Cluster, error) {
	st, err := a.status(ctx, n)
	if err != nil {
		return status.Node{}, st, err
	}
	for _, s := range st.Nodes {
		if s.Name == n.name {
			return s, st, nil
		}
	}
	return status.Node{}, st, fmt.Errorf("the status of node %s does not name it", n.name)
}

func (a *agents) serving(ctx context.Context) error {
	node, err := a.primary(ctx)
	if err == nil && node == "" {
		err = errors.New("no node is the primary")
	}
	return err
}

// primary is the primary of the cluster that takes writes: a cluster that follows another site has a primary, too.
func (a *agents) primary(ctx context.Context) (string, error) {
	for _, n := range a.nodes {
		if n.running() == nil {
			continue
		}
		if s, of, err := a.self(ctx, n); err == nil && s.Role == status.RolePrimary && of.Follow == nil {
			return n.name, nil
		}
	}
	return "", ctx.Err()
}

// ready returns an error unless every running node is in and there is a primary.
func (a *agents) ready(ctx context.Context) error {
	for _, n := range a.nodes {
		if n.running() == nil {
			continue
		}
		s, _, err := a.self(ctx, n)
		if err != nil {
			return err
		}
		in := s.Role == status.RolePrimary || s.Role == status.RoleReplica || s.Role == status.RoleLogger && s.Leader != 0
		if !in {
			return fmt.Errorf("node %s is %s: %s", n.name, s.Role, s.Reason)
		}
		if server := a.roots[n.name]; server != nil {
			if a.d.opts.ownPort() && s.MysqldPort == "" {
				return fatal{fmt.Errorf("the kernel does not fence mysqld's port on node %s: %s", n.name, s.Reason)}
			}
			if err := a.openRoot(server); err != nil {
				return err
			}
		}
	}
	return a.serving(ctx)
}

// openRoot connects to a node's mysqld as the agent's own account, once the node's
// first start has made it.
func (a *agents) openRoot(s *server) error {
	if s.root != nil {
		return nil
	}
	secrets, err := mysqld.LoadSecrets(filepath.Join(s.agentDir(), "secrets.toml"))
	if err != nil {
		return fmt.Errorf("connect to node %s: %w", s.name, err)
	}
	if s.root, err = openSocket(a.socketOf(s.name), mysqld.AdminUser, secrets.Admin); err != nil {
		return fmt.Errorf("connect to node %s: %w", s.name, err)
	}
	return nil
}

func (a *agents) socketOf(node string) string {
	s := a.roots[node]
	if s == nil {
		return ""
	}
	return mysqld.New(mysqld.Config{DataDir: filepath.Join(s.agentDir(), "mysql")}).Socket()
}

// living are the servers of the running nodes that have been whole.
func (a *agents) living() []*server {
	var all []*server
	for _, n := range a.nodes {
		if s := a.roots[n.name]; s != nil && s.root != nil && n.processes()[componentMysqld] != 0 {
			all = append(all, s)
		}
	}
	return all
}

// places are the router ports of all nodes: each leads to the primary. Or the servers' own ports.
func (a *agents) places() []place {
	if a.between != nil {
		return []place{{clientNode, a.betweenPort()}}
	}
	var all []place
	for _, n := range a.nodes {
		switch {
		case a.d.opts.Clients != clientsPort:
			all = append(all, place{n.name, routerPort})
		case a.roots[n.name] != nil:
			all = append(all, place{n.name, serverPort})
		}
	}
	return all
}

// writers begins with the primary's node; at the servers' own ports it is the only one. Nodes of a cluster that follows
// are left out.
func (a *agents) writers(ctx context.Context) ([]place, error) {
	node, err := a.primary(ctx)
	if err != nil || node == "" {
		return nil, err
	}
	primary, err := a.d.node(node)
	if err != nil {
		return nil, err
	}
	all := a.places()
	if a.between != nil {
		return all, nil
	}
	if a.d.opts.Clients == clientsPort {
		return slices.DeleteFunc(all, func(p place) bool { return p.node != node }), nil
	}
	slices.SortStableFunc(all, func(x, y place) int {
		switch node {
		case x.node:
			return -1
		case y.node:
			return 1
		}
		return 0
	})
	return slices.DeleteFunc(all, func(p place) bool {
		n, err := a.d.node(p.node)
		return err != nil || n.running() == nil || a.clusterOf(n) != a.clusterOf(primary)
	}), nil
}

// restart starts the agent and waits until it answers.
func (a *agents) restart(ctx context.Context, node string) error {
	n, err := a.d.node(node)
	if err != nil {
		return err
	}
	if err := a.start(n); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	return poll(ctx, "node "+node+" answers", func(ctx context.Context) error {
		if n.running() == nil {
			return fatal{fmt.Errorf("the agent has ended; %s", n.logTail())}
		}
		_, _, err := a.self(ctx, n)
		return err
	})
}

func (a *agents) stop(_ context.Context, node string) error {
	n, err := a.d.node(node)
	if err != nil {
		return err
	}
	return n.stop(stopWait)
}

// lag asks the servers; the bytes come from the agents.
func (a *agents) lag(ctx context.Context) (map[string]Lag, error) {
	lags, err := lagOf(ctx, a.living())
	if err != nil {
		return nil, err
	}
	for _, n := range a.nodes {
		lag, ok := lags[n.name]
		if !ok {
			continue
		}
		if s, _, err := a.self(ctx, n); err == nil && !s.LagUnknown {
			lags[n.name] = Lag{Transactions: lag.Transactions, Bytes: s.LagBytes}
		}
	}
	return lags, nil
}

func (a *agents) catchUp(ctx context.Context) error { return catchUpOf(ctx, a.living()) }

func (a *agents) stopApply(ctx context.Context, node string) error {
	s := a.roots[node]
	if s == nil || s.root == nil {
		return fmt.Errorf("peers: node %q has no server", node)
	}
	var err error
	a.locks[node], err = s.lockApply(ctx)
	return err
}

func (a *agents) startApply(ctx context.Context, node string) error {
	conn := a.locks[node]
	if conn == nil {
		return fmt.Errorf("peers: the appliers of node %s are not held", node)
	}
	delete(a.locks, node)
	return unlockApply(ctx, conn)
}

func (a *agents) recover(context.Context) ([]string, error) { return nil, nil }

func (a *agents) admin(_ context.Context, node string) (*sql.DB, error) {
	s := a.roots[node]
	if s == nil || s.root == nil {
		return nil, fmt.Errorf("peers: node %q has no server", node)
	}
	return s.root, nil
}

func (a *agents) facts() Facts {
	versions := map[string]string{"mysqld": a.d.opts.Install.MySQL.Version.String()}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if s, _, err := a.self(ctx, a.nodes[0]); err == nil {
		versions["quorate"] = s.AgentVersion
	}
	return Facts{Versions: versions, Settings: a.settings}
}

func (a *agents) close() {
	for _, conn := range a.locks {
		_ = conn.Close() // the server goes anyway
	}
	for _, s := range a.roots {
		s.closeRoot()
	}
}
