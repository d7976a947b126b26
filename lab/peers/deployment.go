package peers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/sys/subprocess"
)

const (
	// readyWait bounds the wait for a healthy system.
	readyWait = 3 * time.Minute
	// catchUpWait bounds the wait for replicas. 200 000 queued transactions take
	// a single applier minutes.
	catchUpWait = 30 * time.Minute
)

// Endpoint is where a client connects.
type Endpoint struct {
	Node     string // the node that listens
	Addr     string // host:port
	User     string
	Password string
	Database string
}

// DSN is the endpoint for the Go driver.
func (e Endpoint) DSN() string {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.Passwd, cfg.DBName = "tcp", e.Addr, e.User, e.Password, e.Database
	return cfg.FormatDSN()
}

// Lag is how much a replica has not applied of all that the other servers have executed.
type Lag struct {
	Transactions int64
	Bytes        int64 // -1 = the system does not say
}

// driver is one system. Nodes are named.
type driver interface {
	// up starts the system, until it is whole.
	up(ctx context.Context) error
	facts() Facts
	// primary is "" while there is none, or where every node is one.
	primary(ctx context.Context) (string, error)
	// writers are the addresses where a client writes now, best first.
	writers(ctx context.Context) ([]place, error)
	// places are the addresses that a client may try after a failure.
	places() []place
	// ready returns an error that says why the system is not whole.
	ready(ctx context.Context) error
	restart(ctx context.Context, node string) error
	lag(ctx context.Context) (map[string]Lag, error)
	catchUp(ctx context.Context) error
	stopApply(ctx context.Context, node string) error
	startApply(ctx context.Context, node string) error
	failover(ctx context.Context, dead string) ([]string, error)
	recover(ctx context.Context) ([]string, error)
	admin(ctx context.Context, node string) (*sql.DB, error)
	// living are the servers that run.
	living() []*server
	// stop ends a node in order.
	stop(ctx context.Context, node string) error
	close()
}

// place is an address on a node.
type place struct {
	node string
	port int
}

// Deployment is a system that was deployed.
type Deployment struct {
	opts     Options
	password string // the clients' and the replicas'
	nodes    []*node
	driver   driver
	read     map[string]map[string]string // settings that the servers reported, read once: by name and node
}

// Deploy starts a system and returns once it is whole: every node in, a primary
// writable, the empty database Database and the account User on every server. A
// deployment that fails is closed; its files stay.
func Deploy(ctx context.Context, o Options) (d *Deployment, err error) {
	if err := o.normalize(); err != nil {
		return nil, err
	}
	made := &Deployment{opts: o, password: rand.Text()}
	made.driver = made.newDriver()
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("deploy %s: %w", o.System, err), made.Close())
		}
	}()
	if err := made.driver.up(ctx); err != nil {
		return nil, err
	}
	if err := made.WaitReady(ctx); err != nil {
		return nil, err
	}
	for _, n := range made.nodes {
		if n.running() == nil {
			return nil, fmt.Errorf("node %s has ended; %s", n.name, n.logTail())
		}
	}
	if err := made.readBack(ctx); err != nil {
		return nil, err
	}
	if err := made.createApplication(ctx); err != nil {
		return nil, err
	}
	if _, err := made.CatchUp(ctx); err != nil {
		return nil, err
	}
	return made, nil
}

func (d *Deployment) newDriver() driver {
	switch d.opts.System {
	case Standalone, Async, SemiSync:
		return newReplicated(d)
	case MGR, MGRAfter, MGRMulti:
		return newGroup(d)
	case Router:
		return newRouted(d)
	case Galera:
		return newGalera(d)
	default:
		return newQuorate(d)
	}
}

// createApplication makes the database and the clients' account.
func (d *Deployment) createApplication(ctx context.Context) error {
	node, err := d.writer(ctx)
	if err != nil {
		return err
	}
	db, err := d.driver.admin(ctx, node)
	if err != nil {
		return err
	}
	for _, stmt := range []string{
		"CREATE DATABASE IF NOT EXISTS " + Database,
		fmt.Sprintf("CREATE USER IF NOT EXISTS %s@'%%' IDENTIFIED BY '%s'", User, d.password),
		fmt.Sprintf("GRANT ALL ON %s.* TO %s@'%%'", Database, User),
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("run %s on node %s: %w", firstWords(stmt), node, err)
		}
	}
	return nil
}

// writer is a node that takes writes: the primary, or the first of several.
func (d *Deployment) writer(ctx context.Context) (string, error) {
	node, err := d.driver.primary(ctx)
	if err != nil || node != "" {
		return node, err
	}
	all, err := d.driver.writers(ctx)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", errors.New("no node takes writes")
	}
	return all[0].node, nil
}

// ErrLeft: a process could not be ended.
var ErrLeft = errors.New("a process is left: kill it before the next run")

// Close kills every process of the deployment. Its files stay. An error is ErrLeft.
func (d *Deployment) Close() error {
	d.driver.close()
	errs := make([]error, len(d.nodes))
	var killing sync.WaitGroup // all at once, so that none sees another's death and acts
	for i, n := range d.nodes {
		killing.Go(func() { errs[i] = n.kill() })
	}
	killing.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrLeft, err)
	}
	return nil
}

// Nodes describes the nodes.
func (d *Deployment) Nodes() []Node {
	var all []Node
	for _, n := range d.nodes {
		all = append(all, Node{Name: n.name, Kind: n.kind, Addr: n.addr, Processes: n.processes()})
	}
	return all
}

// Socket is the path of the Unix socket of a node's server, "" for a node that has
// none.
func (d *Deployment) Socket(node string) string {
	if s, ok := d.driver.(interface{ socketOf(string) string }); ok {
		return s.socketOf(node)
	}
	return ""
}

// Writers returns where a client writes now, best first.
func (d *Deployment) Writers(ctx context.Context) ([]Endpoint, error) {
	all, err := d.driver.writers(ctx)
	return d.endpoints(all), err
}

// Readers returns where a client reads now that may read old data.
func (d *Deployment) Readers(ctx context.Context) ([]Endpoint, error) {
	r, ok := d.driver.(interface {
		readers(context.Context) ([]place, error)
	})
	if !ok {
		return d.Writers(ctx)
	}
	all, err := r.readers(ctx)
	return d.endpoints(all), err
}

// Endpoints returns all that a client may try after a failure.
func (d *Deployment) Endpoints() []Endpoint { return d.endpoints(d.driver.places()) }

func (d *Deployment) endpoints(all []place) []Endpoint {
	var out []Endpoint
	for _, p := range all {
		out = append(out, Endpoint{
			Node: p.node, Addr: net.JoinHostPort(d.opts.Network.Addr(p.node).String(), strconv.Itoa(p.port)),
			User: User, Password: d.password, Database: Database,
		})
	}
	return out
}

// Primary returns the node that takes the writes, "" for none, or for several.
func (d *Deployment) Primary(ctx context.Context) (string, error) { return d.driver.primary(ctx) }

// WaitReady waits until every node is in and somebody takes writes.
func (d *Deployment) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	return poll(ctx, d.opts.System+" is whole", d.driver.ready)
}

// Lag returns what each running server lacks of what any of them has executed.
func (d *Deployment) Lag(ctx context.Context) (map[string]Lag, error) { return d.driver.lag(ctx) }

// CatchUp waits until every running server has all that any server has at the beginning of the
// call, and returns how long that took.
func (d *Deployment) CatchUp(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	began := time.Now()
	err := d.driver.catchUp(ctx)
	return time.Since(began), err
}

func (d *Deployment) node(name string) (*node, error) {
	i := slices.IndexFunc(d.nodes, func(n *node) bool { return n.name == name })
	if i < 0 {
		return nil, fmt.Errorf("peers: %s has no node %q", d.opts.System, name)
	}
	return d.nodes[i], nil
}

// Kill sends SIGKILL to all processes of a node, and waits until they are gone.
func (d *Deployment) Kill(_ context.Context, node string) error {
	n, err := d.node(node)
	if err != nil {
		return err
	}
	return n.kill()
}

// Crash sends SIGKILL to the server of a node of quorate; its agent starts it again.
func (d *Deployment) Crash(node string) error {
	n, err := d.node(node)
	if err != nil {
		return err
	}
	agent := n.running()
	if agent == nil {
		return fmt.Errorf("the agent of node %s does not run", node)
	}
	children := subprocess.Children(agent.process.Pid())
	defer subprocess.Release(children)
	for _, c := range children {
		if c.Pid() == n.processes()[componentMysqld] {
			return c.Signal(syscall.SIGKILL)
		}
	}
	return fmt.Errorf("node %s has no server that runs", node)
}

// Switchover moves the primary of quorate to the node that the agents choose, or to the other city.
func (d *Deployment) Switchover(ctx context.Context, elsewhere bool) error {
	a, ok := d.driver.(*agents)
	if !ok {
		return fmt.Errorf("%w: a switchover of %s", errors.ErrUnsupported, d.opts.System)
	}
	if elsewhere {
		return a.elsewhere(ctx)
	}
	return a.ask(ctx, "switchover")
}

// Stop ends a node in order, as its service manager would.
func (d *Deployment) Stop(ctx context.Context, node string) error {
	if _, err := d.node(node); err != nil {
		return err
	}
	return d.driver.stop(ctx, node)
}

// Restart starts a node that was killed or stopped, as its service manager would,
// and returns once its server takes connections (quorate: once its agent
// answers); WaitReady waits for more.
func (d *Deployment) Restart(ctx context.Context, node string) error {
	if _, err := d.node(node); err != nil {
		return err
	}
	return d.driver.restart(ctx, node)
}

// Freeze stops all processes of a node (SIGSTOP).
func (d *Deployment) Freeze(node string) error { return d.signal(node, syscall.SIGSTOP) }

// Thaw continues all processes of a node (SIGCONT).
func (d *Deployment) Thaw(node string) error { return d.signal(node, syscall.SIGCONT) }

func (d *Deployment) signal(node string, sig syscall.Signal) error {
	n, err := d.node(node)
	if err != nil {
		return err
	}
	return n.signal(sig)
}

// StopApply keeps a replica from applying. It goes on receiving.
func (d *Deployment) StopApply(ctx context.Context, node string) error {
	return d.driver.stopApply(ctx, node)
}

// StartApply lets the replica apply again.
func (d *Deployment) StartApply(ctx context.Context, node string) error {
	return d.driver.startApply(ctx, node)
}

// Failover does what an operator's script does after the primary, the node dead, is gone for
// good, and returns its steps: none for systems that fail over themselves.
func (d *Deployment) Failover(ctx context.Context, dead string) ([]string, error) {
	return d.driver.failover(ctx, dead)
}

// Recover does what a person does after a full outage, once every node that will
// come back was restarted, and returns the steps: none for systems that recover themselves.
func (d *Deployment) Recover(ctx context.Context) ([]string, error) { return d.driver.recover(ctx) }

// Admin returns root's connections to a node's server, over its socket.
func (d *Deployment) Admin(ctx context.Context, node string) (*sql.DB, error) {
	return d.driver.admin(ctx, node)
}

// Spread says whether clients write on all nodes.
func (d *Deployment) Spread() bool { return d.opts.Writers == WritersAll }

// Facts returns versions and the settings that matter, as the servers have them.
func (d *Deployment) Facts() Facts {
	f := d.driver.facts()
	f.Versions, f.Settings = maps.Clone(f.Versions), d.asRead(f.Settings)
	return f
}
