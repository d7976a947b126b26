package devcluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/sys/subprocess"
)

// NodesMax bounds a development cluster: a small machine cannot carry more than five
// servers.
const NodesMax = 5

// ErrAgentExited says that an agent that should run has ended.
var ErrAgentExited = errors.New("devcluster: the agent has exited")

// Options of a Cluster.
type Options struct {
	// Binary is the quorate executable.
	Binary string
	// Dir is the directory to use. It must not exist or be empty. Unix socket
	// paths are inside, so it should be short.
	Dir string
	// Name is the cluster's name; "" = dev.
	Name string
	// Nodes is 1, 3 or 5.
	Nodes int
	// Loggers is how many of the nodes are loggers: the last ones, a minority.
	Loggers int
	// Weights are the first nodes' weights; the others have the product's default.
	Weights []int
	// MySQLBase is the MySQL installation's prefix; "" = as the agent finds it.
	MySQLBase string
	// MySQLUser is the OS user that mysqld runs as; "" = the agent's own.
	MySQLUser string
	// AgentUser is another account as which the agents run (only root can set it).
	AgentUser *syscall.Credential
	// AgentEnv are environment variables of the agents, NAME=VALUE, beyond this
	// process's own.
	AgentEnv []string
	// NodeEnv returns the environment variables of one node's agent, and so of its mysqld.
	NodeEnv func(node string) []string
	// Host is the address on which everything except the feeds listens, also mysqld with its own
	// port, fenced by the kernel; "" = a loopback address. No other cluster may use the
	// address, so it must be in a network namespace of its own.
	Host string
	// Network puts proxies between the nodes' agents, so that Cut and Isolate
	// can break their connections.
	Network bool
	// Wire, if not nil, is called with each piece of bytes that passes these proxies, from many goroutines.
	Wire func(piece []byte)
	// Variables are server variables. They override the settings for small machines that
	// the cluster always uses.
	Variables map[string]string
	// PlainPeers: the agents have no keys, and talk without TLS.
	PlainPeers bool
	// Heartbeat and ElectionTimeout are the Raft timings; 0 = the product's default.
	Heartbeat       time.Duration
	ElectionTimeout time.Duration
	// MaxApplyLag is mysql.max_apply_lag; 0 = the product's.
	MaxApplyLag time.Duration
	// XAPreparedMaxAge is mysql.xa_prepared_max_age; 0 = the product's.
	XAPreparedMaxAge time.Duration
	// PromotionTimeout is mysql.promotion_timeout; 0 = the product's.
	PromotionTimeout time.Duration
	// Router are further settings of [router], as TOML.
	Router map[string]string
	// Tokens is the content of the API's tokens file on each node; "" = there is no file. The file belongs to
	// this account, so it does not work with AgentUser.
	Tokens string
	// OnChange is the agents' hook; nil = they have none.
	OnChange []string
	Logger   *slog.Logger
}

// Cluster is the nodes of one directory. Nodes are addressed by their index,
// 0 to Len()-1, and named a, b, c, …
type Cluster struct {
	opts        Options
	host        string // the loopback address on which everything listens
	nodes       []*node
	appPassword string
	network     *network // nil without Options.Network
}

// node is one agent with its mysqld.
type node struct {
	name string
	// binary is the program that it runs; "" = Options.Binary.
	binary string
	kind   cluster.Kind
	joins  bool // it is not one of the initial members
	key    cluster.Key
	dir    string
	ports  ports
	// heartbeat and electionTimeout are the node's own timings; 0 = those of Options.
	heartbeat, electionTimeout time.Duration

	mu           sync.Mutex
	agent        *subprocess.Process // nil before the first start
	bootstrapped bool                // the node was started with --bootstrap, as the only one of a cluster
}

// ports are the TCP ports of one node.
type ports struct{ peer, mysql, feed, router, reads, api int }

const portsOfNode = 6

func portsOf(p []int) ports {
	return ports{peer: p[0], mysql: p[1], feed: p[2], router: p[3], reads: p[4], api: p[5]}
}

// New chooses ports and writes the directory. It starts nothing.
func New(opts Options) (*Cluster, error) {
	if !slices.Contains([]int{1, 3, 5}, opts.Nodes) {
		return nil, fmt.Errorf("devcluster: %d nodes; it can be 1, 3 or 5", opts.Nodes)
	}
	if opts.Loggers < 0 || 2*opts.Loggers >= opts.Nodes {
		return nil, fmt.Errorf("devcluster: %d of %d nodes are loggers; it can be a minority", opts.Loggers, opts.Nodes)
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("name the cluster directory: %w", err)
	}
	opts.Dir = dir
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("devcluster: %s is not empty", dir)
	}
	host, free, err := choosePlace(opts.Host, opts.Nodes*portsOfNode+opts.Nodes*(opts.Nodes-1))
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, host: host, appPassword: rand.Text()}
	for i := range opts.Nodes {
		p := free[i*portsOfNode:]
		name, kind := string(rune('a'+i)), cluster.KindFull
		if i >= opts.Nodes-opts.Loggers {
			kind = cluster.KindLogger
		}
		c.nodes = append(c.nodes, &node{
			name: name, kind: kind, dir: filepath.Join(dir, name),
			ports: portsOf(p),
		})
	}
	if opts.Network {
		c.network = newNetwork(c, free[opts.Nodes*portsOfNode:])
	}
	for _, make := range []func(*node) error{c.makeDir, c.writeNode} {
		for _, n := range c.nodes {
			if err := make(n); err != nil {
				return nil, errors.Join(err, os.RemoveAll(dir))
			}
		}
	}
	return c, nil
}

// Grow makes one more node, which will join the cluster, and returns its index. It
// starts nothing, and does not add the node to the cluster. Nobody may use the Cluster meanwhile.
func (c *Cluster) Grow(kind cluster.Kind) (int, error) {
	if c.network != nil {
		return 0, errors.New("devcluster: a cluster with a network of its own cannot grow")
	}
	free, err := freePorts(c.host, portsOfNode)
	if err != nil {
		return 0, err
	}
	name := string(rune('a' + len(c.nodes)))
	n := &node{
		name: name, kind: kind, joins: true, dir: filepath.Join(c.opts.Dir, name),
		ports: portsOf(free),
	}
	c.nodes = append(c.nodes, n)
	return len(c.nodes) - 1, errors.Join(c.makeDir(n), c.writeNode(n))
}

// PeerAddr returns the host:port where node i's agent listens for others.
func (c *Cluster) PeerAddr(i int) string { return c.addr(c.nodes[i].ports.peer) }

// Key names node i's key; "" = it has none.
func (c *Cluster) Key(i int) cluster.Key { return c.nodes[i].key }

// makeDir creates a node's directory with its key.
func (c *Cluster) makeDir(n *node) error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return fmt.Errorf("create node directory: %w", err)
	}
	if c.opts.PlainPeers {
		return nil
	}
	file := filepath.Join(n.dir, "node.key")
	k, _, err := nodekey.LoadOrMake(file, nil)
	if err != nil {
		return err
	}
	n.key = k.Name()
	if u := c.opts.AgentUser; u != nil {
		if err := os.Chown(file, int(u.Uid), int(u.Gid)); err != nil {
			return fmt.Errorf("give away node key: %w", err)
		}
	}
	return nil
}

// writeNode writes a node's configuration.
func (c *Cluster) writeNode(n *node) error {
	if c.opts.Tokens != "" {
		if err := os.WriteFile(n.tokens(), []byte(c.opts.Tokens), 0o600); err != nil {
			return fmt.Errorf("write tokens: %w", err)
		}
	}
	if err := os.WriteFile(n.config(), []byte(c.renderConfig(n)), 0o644); err != nil {
		return fmt.Errorf("write node configuration: %w", err)
	}
	if c.opts.AgentUser != nil || c.opts.MySQLUser != "" {
		// Only the owner may enter a temporary directory.
		if err := os.Chmod(c.opts.Dir, 0o755); err != nil {
			return fmt.Errorf("open cluster directory: %w", err)
		}
	}
	if u := c.opts.AgentUser; u != nil {
		if err := os.Chown(n.dir, int(u.Uid), int(u.Gid)); err != nil {
			return fmt.Errorf("give away node directory: %w", err)
		}
	}
	return nil
}

func (n *node) config() string  { return filepath.Join(n.dir, "node.toml") }
func (n *node) tokens() string  { return filepath.Join(n.dir, "tokens") }
func (n *node) dataDir() string { return filepath.Join(n.dir, "data") }
func (n *node) log() string     { return filepath.Join(n.dir, "agent.log") }

// renderConfig returns a node's configuration file.
func (c *Cluster) renderConfig(n *node) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("cluster = %q\nnode = %q\ndata_dir = %q", cmp.Or(c.opts.Name, "dev"), n.name, n.dataDir())
	for i, m := range c.nodes[:c.opts.Nodes] {
		line("[[member]]\nname = %q\npeer = %q\nkind = %q", m.name, c.peerAddr(n, m), m.kind)
		if m.key != "" {
			line("key = %q", m.key)
		}
		if i < len(c.opts.Weights) {
			line("weight = %d", c.opts.Weights[i])
		}
	}
	if n.joins {
		line("[join]\npeer = %q\nkind = %q", c.addr(n.ports.peer), n.kind)
	}
	line("[raft]")
	if h := cmp.Or(n.heartbeat, c.opts.Heartbeat); h > 0 {
		line("heartbeat = %q", h)
	}
	if e := cmp.Or(n.electionTimeout, c.opts.ElectionTimeout); e > 0 {
		line("election_timeout = %q", e)
	}
	line("[mysql]\nbase_dir = %q\nbind = %q\nport = %d\nuser = %q", c.opts.MySQLBase, c.host, n.ports.mysql, c.opts.MySQLUser)
	if c.opts.PromotionTimeout > 0 {
		line("promotion_timeout = %q", c.opts.PromotionTimeout)
	}
	if c.opts.MaxApplyLag > 0 {
		line("max_apply_lag = %q", c.opts.MaxApplyLag)
	}
	if c.opts.XAPreparedMaxAge > 0 {
		line("xa_prepared_max_age = %q", c.opts.XAPreparedMaxAge)
	}
	line("[mysql.variables]")
	vars := install.SmallServer()
	maps.Copy(vars, c.opts.Variables)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		line("%s = %q", name, vars[name])
	}
	line("[feed]\nlisten = %q", c.feedAddr(n))
	line("[router]\nread_write = %q\nread_only = %q", c.addr(n.ports.router), c.addr(n.ports.reads))
	for _, setting := range slices.Sorted(maps.Keys(c.opts.Router)) {
		line("%s = %s", setting, c.opts.Router[setting])
	}
	line("[api]\nlisten = %q", c.addr(n.ports.api))
	if c.opts.Tokens != "" {
		line("tokens_file = %q", n.tokens())
	}
	if len(c.opts.OnChange) > 0 {
		line("[hooks]\non_change = [\"%s\"]", strings.Join(c.opts.OnChange, `", "`))
	}
	return b.String()
}

// peerAddr is the address at which node n reaches node m's agent. The addresses in the member
// lists of nodes may differ: only names identify nodes.
func (c *Cluster) peerAddr(n, m *node) string {
	if c.network == nil || n == m {
		return c.addr(m.ports.peer)
	}
	return c.addr(c.network.path(slices.Index(c.nodes, n), slices.Index(c.nodes, m)).port)
}

// feedAddr is the address from which node n's own mysqld replicates: always on loopback.
func (c *Cluster) feedAddr(n *node) string {
	if c.opts.Host == "" {
		return c.addr(n.ports.feed)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.ports.feed))
}

// addr is the host:port of a port of the cluster.
func (c *Cluster) addr(port int) string { return net.JoinHostPort(c.host, strconv.Itoa(port)) }

// Len returns the number of nodes.
func (c *Cluster) Len() int { return len(c.nodes) }

// Full returns the nodes that have a mysqld.
func (c *Cluster) Full() (nodes []int) {
	for i, n := range c.nodes {
		if n.kind == cluster.KindFull {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// Dir returns the cluster's directory.
func (c *Cluster) Dir() string { return c.opts.Dir }

// Name returns a node's name.
func (c *Cluster) Name(i int) string { return c.nodes[i].name }

// Logs returns the path of the file that holds what node i's agent printed.
func (c *Cluster) Logs(i int) string { return c.nodes[i].log() }

// ConfigPath returns the path of node i's configuration file.
func (c *Cluster) ConfigPath(i int) string { return c.nodes[i].config() }

// DataDir returns node i's data_dir.
func (c *Cluster) DataDir(i int) string { return c.nodes[i].dataDir() }

// Start starts node i's agent and returns; WaitReady waits for it. Starting a
// node whose agent runs is an error. args are further arguments of the agent.
func (c *Cluster) Start(ctx context.Context, i int, args ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.network != nil {
		if err := c.network.start(); err != nil {
			return err
		}
	}
	n := c.nodes[i]
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent != nil && !n.agent.Ended() {
		return fmt.Errorf("devcluster: node %s runs already", n.name)
	}
	out, err := os.OpenFile(n.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open agent log: %w", err)
	}
	defer out.Close()                                                   // the child has its own descriptor
	_, fresh := os.Stat(filepath.Join(n.dataDir(), "identity.json"))    // if it is there, the data were adopted or restored
	if c.opts.Nodes == 1 && i == 0 && !n.bootstrapped && fresh != nil { // a cluster of one begins only with --bootstrap
		args, n.bootstrapped = append(args, "--bootstrap"), true
	}
	cmd := exec.Command(cmp.Or(n.binary, c.opts.Binary), append([]string{"run", "--config", n.config()}, args...)...)
	cmd.Dir = n.dir
	cmd.Env = slices.Concat(os.Environ(), c.opts.AgentEnv)
	if c.opts.NodeEnv != nil {
		cmd.Env = append(cmd.Env, c.opts.NodeEnv(n.name)...)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.opts.AgentUser}
	agent, err := subprocess.Start(cmd)
	if err != nil {
		return fmt.Errorf("start agent of node %s: %w", n.name, err)
	}
	n.agent = agent
	c.opts.Logger.Debug("agent started", "node", n.name, "pid", agent.Pid())
	return nil
}

// StartAll starts the agents of all nodes that do not run.
func (c *Cluster) StartAll(ctx context.Context) error {
	for i, n := range c.nodes {
		if n.running() != nil {
			continue
		}
		if err := c.Start(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// running returns the node's agent if it has been started and not ended.
func (n *node) running() *subprocess.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent == nil || n.agent.Ended() {
		return nil
	}
	return n.agent
}

// Stop kills every agent and mysqld and returns when all are gone. The files
// stay. It can be called again.
func (c *Cluster) Stop() error {
	if c.network != nil {
		defer c.network.stop()
	}
	var doomed []*subprocess.Child
	var agents []*subprocess.Process
	for _, n := range c.nodes {
		if p := n.running(); p != nil {
			doomed = append(doomed, subprocess.Children(p.Pid())...)
			agents = append(agents, p)
		}
	}
	var errs []error
	for _, p := range agents {
		errs = append(errs, p.Signal(syscall.SIGKILL))
	}
	for _, m := range doomed {
		errs = append(errs, m.Signal(syscall.SIGKILL))
	}
	for _, p := range agents {
		errs = append(errs, p.WaitGone())
	}
	return errors.Join(append(errs, awaitEnd(doomed))...)
}

// Close stops the cluster and removes its directory.
func (c *Cluster) Close() error {
	if err := c.Stop(); err != nil {
		return err // a process may still write there
	}
	if err := os.RemoveAll(c.opts.Dir); err != nil {
		return fmt.Errorf("remove cluster directory: %w", err)
	}
	return nil
}
