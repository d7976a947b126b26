package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/agent/backups"
	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/commits"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/following"
	"github.com/quorate/quorate/internal/agent/freshness"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/agent/hooks"
	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/agent/keys"
	"github.com/quorate/quorate/internal/agent/local"
	"github.com/quorate/quorate/internal/agent/member"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/mysqlrouter"
	"github.com/quorate/quorate/internal/agent/old"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/ownport"
	"github.com/quorate/quorate/internal/agent/prepared"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/agent/readers"
	"github.com/quorate/quorate/internal/agent/reading"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/agent/scheduler"
	"github.com/quorate/quorate/internal/agent/switchover"
	"github.com/quorate/quorate/internal/agent/variables"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/front/router"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/notify"
)

// portWait bounds the wait for mysqld's port to be free.
const portWait = 5 * time.Second

// Agent is one node. Build it with New, then Run it.
type Agent struct {
	cfg  config.Config
	keys *keys.Keys // nil = this node has none
	// authority vouches for keys that are not pinned; nil = there is none.
	authority *nodekey.Authority
	self      cluster.Member
	logger    *slog.Logger
	version   string

	// local is the mysqld of this node.
	local   local.Mysqld
	secrets mysqld.Secrets
	data    *dataDir
	// feedPassword lets only our own mysqld attach to the feed. Each start makes a
	// new one, and it never leaves the machine.
	feedPassword string
	log          *seglog.Log
	healing      *seglog.Log // the log while it is being healed, else nil
	peers        *transport.Transport
	// onLoopback says why other hosts do not reach peers; "" = they may.
	onLoopback  string
	router      *router.Router
	reads       *reading.Port
	heard       *freshness.Heard
	feed        *mysqlwire.Feed
	readers     *mysqlwire.Feed // nil: no downstream readers
	readersCert *readers.Certificate
	readersSQL  readers.Local
	api         *api.Server

	// Member is what takes part in the cluster.
	member.Member
	// ctx is set by Run: operations and epochs live no longer than it.
	ctx context.Context
	// fail ends Run with an error; nil = there is nothing to end yet.
	fail atomic.Pointer[context.CancelCauseFunc]
	// work counts operations, epochs and process watchers.
	work sync.WaitGroup

	board    *board.Board
	requests *operate.Server
	// switchover moves the primary in order.
	switchover *switchover.Service
	stance     *quorumloss.Stance
	mark       datadir.Mark
	xa         *prepared.Watch
	commits    *commits.Times
	changes    map[cluster.HistoryWhat]prometheus.Counter // how often this node opened for writes, by kind
	state      datadir.State
	records    *history.Records
	// chronicle belongs to the role machine's goroutine; only CaughtUp may be called from others.
	chronicle history.Chronicle
	departing *membership.Departing
	// copies has the copies of this node's mysqld that joining nodes may make.
	copies join.DataCopies
	// backups gives copies of this node's data and log to backups.
	backups *backups.Source
	// again: the data directory has another life now (rebuilt, removed, left behind), so a new Agent
	// goes on with it once Run has ended.
	again bool
	// out reports what this node has, if its cluster was recovered without it, else nil.
	out *recovery.Report
	// old keeps the data that this node has given up. The joiner uses it while the node joins, then Run does.
	old      *old.Keeper
	ackDrops atomic.Uint64 // how often this node dropped a require-ack
	keptDown atomic.Bool   // an operator has fenced this node
	// logDisk and dataDisk are how full the disks of the log and of mysqld's data are; nil = not known.
	logDisk, dataDisk atomic.Pointer[diskRoom]
	// lastStep is when the role machine took its newest step, by the monotonic clock; nil = it does not
	// run.
	lastStep atomic.Pointer[time.Time]
	// teller runs the operator's hook; nil = there is none.
	teller *hooks.Teller
	// variables sets the cluster's server variables in mysqld.
	variables *variables.Service

	port ownport.Port
	// told tells MySQL Router of the members while this node is the primary.
	told *mysqlrouter.Service
	// following follows the cluster's source outside of it while this node is the primary.
	following *following.Service
	events    *scheduler.Service
}

// ErrNoBootstrap means that --bootstrap is not for this node.
var ErrNoBootstrap = errors.New("no new cluster begins here")

// New builds a node from its configuration: it finds MySQL and checks the data
// directory, and touches nothing.
func New(cfg config.Config, logger *slog.Logger, version string) (*Agent, error) {
	install, err := discover(cfg)
	if err != nil {
		return nil, err
	}
	return newAgent(cfg, install, logger, version)
}

func newAgent(cfg config.Config, install *install.Installation, logger *slog.Logger, version string) (*Agent, error) {
	data, last, err := readDataDir(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Bootstrap && (!data.Fresh() || cfg.Joins()) {
		return nil, fmt.Errorf("%w: node %q has data in %s, or its configuration has [join]: start the agent without --bootstrap",
			ErrNoBootstrap, cfg.Node, cfg.DataDir)
	}
	own, err := openKeys(cfg, data, last.State, logger)
	if err != nil {
		return nil, err
	}
	authority, err := loadAuthority(cfg)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		keys: own, authority: authority, cfg: cfg, self: cfg.Self(), logger: logger, version: version, data: data,
		feedPassword: rand.Text(),
		commits:      commits.New(),
		changes:      newChanges(),
		records:      history.New(vfs.OS{}, cfg.DataDir, cfg.Node, logger),
	}
	a.local.Installed.Store(install)
	for _, text := range cfg.OpenPasswordFiles() {
		logger.Warn(text)
	}
	if a.runsMysqld() {
		if err := a.mysqldConfig().CheckPlace(); err != nil {
			return nil, fmt.Errorf("data directory %s: %w", cfg.DataDir, err)
		}
	}
	a.board = board.New(a.boardConfig())
	data.lives = a.board.Lives
	a.buildWatches()
	a.departing = a.newDeparting()
	a.backups = a.backupSource()
	a.teller = a.newTeller()
	a.buildRequests()
	a.local.Init(a.localConfig())
	a.stance = a.newStance()
	a.Init(a.memberConfig())
	return a, a.stance.Load()
}

// discover finds MySQL; a logger needs none, and gets nil.
func discover(cfg config.Config) (*install.Installation, error) {
	if cfg.Self().Kind == cluster.KindLogger {
		return nil, nil
	}
	install, err := mysqld.Discover(cfg.MySQL.BaseDir, cfg.MySQL.User)
	if err != nil {
		return nil, err
	}
	if err := mysqld.CheckVariables(cfg.MySQL.Variables); err != nil {
		return nil, fmt.Errorf("[mysql.variables]: %w", err)
	}
	return install, nil
}

// runsMysqld tells whether this node has a mysqld, and what belongs to one: a
// feed, accounts, a durable mark.
func (a *Agent) runsMysqld() bool { return a.self.Kind != cluster.KindLogger }

// Run runs the node until ctx ends and everything has stopped in order, or
// until it fails.
func (a *Agent) Run(ctx context.Context) error {
	// With mysql.user root runs the agent, also in a directory of mysqld's account.
	if !a.data.Fresh() && a.cfg.MySQL.User == "" {
		if err := checkOwner(a.cfg.DataDir, os.Geteuid()); err != nil {
			return err
		}
	}
	switch a.data.Life() {
	case datadir.Removed:
		return a.runRemoved(ctx)
	case datadir.Superseded:
		return a.runSuperseded(ctx)
	}
	defer a.unlisten()
	if err := a.listen(); err != nil {
		return err
	}
	a.noteLoopback(ctx)
	if a.runsMysqld() {
		if err := a.listenMysqld(ctx); err != nil {
			return err
		}
	}
	a.openPort()
	defer a.closePort()
	defer a.notifying(ctx, notify.New(os.Getenv, os.Getpid()))()
	if err := a.introduce(ctx); err != nil {
		return errors.Join(unlessStopped(ctx, err), a.persistExit(), a.data.Close())
	}
	if err := a.open(ctx); err != nil {
		return unlessStopped(ctx, err)
	}
	if a.runsMysqld() && os.Geteuid() == 0 && a.cfg.MySQL.User == "" {
		a.logger.Warn("mysqld runs as root: run the agent as an account of its own, as packaging/quorate.service does")
	}
	err := a.runAll(ctx)
	err = errors.Join(err, a.persistExit())
	return errors.Join(err, a.log.Close(), a.data.Close())
}

// unlessStopped returns nil where the agent was told to stop, while the node joined for example: that is no
// failure. err may be the cause of that stop, such as a signal.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// listen builds what others connect to, and opens its ports.
func (a *Agent) listen() error {
	a.buildRouter()
	a.buildReads()
	a.buildPeers()
	a.buildAPI()
	for _, l := range []struct {
		port   port
		listen func() error
	}{
		{peerPort, a.peers.Listen}, {"router port (router.read_write)", a.router.Listen},
		{"read-only port (router.read_only)", a.reads.Listen}, {apiPort, a.api.Listen},
	} {
		if err := l.port.opened(l.listen()); err != nil {
			return err
		}
	}
	if a.data.Held() { // else nothing says yet that the socket is ours: see open
		if err := a.api.ListenControl(); err != nil {
			return err
		}
	}
	return a.listenReaders()
}

// noteLoopback says that this host's own name is an address of its loopback.
func (a *Agent) noteLoopback(ctx context.Context) {
	var others []string
	for _, m := range a.board.Members() {
		others = append(others, m.Peer)
	}
	if a.onLoopback = config.OnLoopback(ctx, a.self.Peer, others); a.onLoopback != "" {
		a.logger.Error("other hosts do not reach this node", "reason", a.onLoopback)
		keyed{a}.Trouble("")
	}
}

// listenMysqld opens the feed, and looks whether mysqld will have its port.
func (a *Agent) listenMysqld(ctx context.Context) error {
	if err := a.buildFeed(); err != nil {
		return err
	}
	if err := port("feed port (feed.listen)").opened(a.feed.Listen()); err != nil {
		return err
	}
	name, err := port("mysqld's port (mysql.port)"), a.checkPortFree(ctx)
	if errors.Is(err, syscall.EADDRNOTAVAIL) { // 127.0.0.1 is there on every host
		name = "mysqld's port at its own address (mysql.bind)"
	}
	return name.opened(err)
}

// openMysqld reads what belongs to mysqld, and starts nothing.
func (a *Agent) openMysqld() (err error) {
	if a.secrets, err = loadSecrets(a.data.Join(secretsFile)); err != nil {
		return err
	}
	if err := a.mark.Load(a.data.Dir); err != nil {
		return err
	}
	if err := a.mark.Check(a.data.Join("mysql", "data", quorumloss.AutoFile)); err != nil {
		return err
	}
	a.local.Open(a.mysqldConfig())
	return nil
}

// unlisten closes the listeners. The next agent in this process needs the ports.
func (a *Agent) unlisten() {
	if a.feed != nil {
		a.feed.Unlisten()
	}
	if a.readers != nil {
		a.readers.Unlisten()
	}
	a.peers.Unlisten()
	a.router.Unlisten()
	a.reads.Unlisten()
	a.api.Unlisten()
}

// checkPortFree refuses to start where another server has mysqld's port:
// mysqld itself would find that out only after it has opened its data. It waits a
// little: our own mysqld may still be ending after its agent was killed.
func (a *Agent) checkPortFree(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	retry := time.NewTicker(portWait / 50)
	defer retry.Stop()
	for {
		err := a.tryPort()
		if err == nil {
			return nil
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return err
		}
	}
}

// tryPort listens where mysqld will listen, and stops at once.
func (a *Agent) tryPort() error {
	addrs := []string{a.ownAddress().Local()}
	if own, fenced := a.ownAddress().Fenced(); fenced {
		addrs = append(addrs, own.String())
	}
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open opens what is durable and builds what depends on it. A damaged log is
// healed first, however long that takes.
func (a *Agent) open(ctx context.Context) (err error) {
	if err := a.data.open(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.api.Unlisten() // while the socket is ours
			err = errors.Join(err, a.persistExit(), a.data.Close())
		}
	}()
	if err := a.api.ListenControl(); err != nil {
		return err
	}
	if a.runsMysqld() {
		if err := a.openMysqld(); err != nil {
			return err
		}
	}
	a.Heard.Load(a.data.Dir, a.logger)
	if err := a.openMembers(ctx); err != nil {
		return err
	}
	if err := a.openSoundLog(ctx); err != nil {
		return a.rebuiltInstead(ctx, err)
	}
	if err := a.openMember(); err != nil {
		return errors.Join(err, a.log.Close())
	}
	return nil
}

// runAll runs the goroutine tree in three layers. What serves ends first, then
// mysqld and the log. The peers' listener ends last, whatever failed: a refused
// dial tells the others that this process, and so its mysqld, is gone.
func (a *Agent) runAll(ctx context.Context) error {
	base, stopPeers := context.WithCancel(context.Background())
	defer stopPeers()
	nodeCtx, stopNode := context.WithCancel(base)
	defer stopNode()
	serve, stopServe := context.WithCancel(base)
	defer stopServe()
	a.ctx = serve

	// failed ends when a lower layer ends: then everything ends.
	failed, fail := context.WithCancelCause(base)
	defer fail(nil)
	a.setFail(fail)
	var peers, node errgroup.Group
	peers.Go(func() error {
		err := a.peers.Run(base)
		fail(fmt.Errorf("the peers' connections ended: %w", err))
		return err
	})
	node.Go(func() error {
		err := a.Raft.Run(nodeCtx)
		fail(fmt.Errorf("consensus ended: %w", err))
		return err
	})
	node.Go(func() error { return a.Bulk.Run(nodeCtx) })
	node.Go(func() error { return a.log.Run(nodeCtx) })

	upper, upperCtx := errgroup.WithContext(serve)
	for _, front := range []func(context.Context) error{a.router.Run, a.reads.Run, a.api.Run, a.runReaders} {
		upper.Go(func() error { return front(upperCtx) })
	}
	if a.runsMysqld() {
		upper.Go(func() error {
			if err := a.feed.Run(upperCtx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		})
		for _, run := range []func(context.Context) error{a.local.Run, clients{a}.runPort, a.runAskLeader, a.variables.Run, a.told.Run, a.runDataDisk, a.events.Run, a.following.Run, a.following.RunFence, a.following.RunUndo} {
			upper.Go(func() error { return run(upperCtx) })
		}
	}
	for _, run := range append(a.Loops(), a.runInPlace) {
		upper.Go(func() error { return run(upperCtx) })
	}
	upper.Go(func() error { return a.runGossip(upperCtx) })
	upper.Go(func() error { return a.runState(upperCtx) })
	upper.Go(func() error { return a.runRecords(upperCtx) })
	upper.Go(func() error { return a.old.Run(upperCtx) })
	upper.Go(func() error { return a.following.RunHeard(upperCtx) })
	upper.Go(func() error { return keys.NewService(a.keys, a.cfg, keyed{a}, a.logger).Run(upperCtx) })
	upper.Go(func() error {
		defer stopServe()
		return a.runRole(ctx, upperCtx, failed)
	})
	var hook errgroup.Group // waited for last: nothing else waits for it
	if a.teller != nil {
		hook.Go(func() error { return a.teller.Run(upperCtx) })
	}
	err := upper.Wait()
	a.Slot.Close()
	a.local.Kill()
	a.work.Wait()
	a.records.WriteHistory() // the last events; mysqld has ended, so this may take its time
	stopNode()
	err = errors.Join(err, node.Wait())
	stopPeers()
	err = errors.Join(err, peers.Wait())
	return errors.Join(err, hook.Wait())
}

// runRole is the role machine's goroutine. It ends after the role machine's Exit effect, or when
// another goroutine of the tree has failed.
func (a *Agent) runRole(stop, serve, failed context.Context) error {
	a.records.Tell(cluster.Event{Kind: cluster.EventStarted, Why: "quorate " + a.version})
	ctx, end := context.WithCancelCause(serve)
	defer end(nil)
	defer a.Slot.Close() // without the role machine nothing else closes it
	defer a.lastStep.Store(nil)
	defer context.AfterFunc(failed, func() { end(context.Cause(failed)) })()
	defer context.AfterFunc(stop, func() {
		a.logger.Info("stopping: closing writes, handing over, stopping mysqld")
		a.input(role.Stop{})
	})()
	switch err := a.RunRole(ctx); {
	case err == nil:
		a.records.Tell(cluster.Event{Kind: cluster.EventStopped})
	case serve.Err() == nil:
		return err
	}
	return nil
}

// stepped notes a step of the role machine.
func (a *Agent) stepped(m *role.Machine, in role.Input, before role.Phase, effects []role.Effect) {
	a.lastStep.Store(new(time.Now()))
	if f, ok := in.(role.Fenced); ok {
		a.keptDown.Store(f.Reason != "")
	}
	a.chronicled(history.Step{
		Now: time.Now(), In: in, Before: before, After: m.Phase(), Reason: m.Reason(), Effects: effects,
	})
	if p := m.Phase(); p != before {
		a.logger.Info("role", "phase", p, "was", before, "term", a.Raft.Role().Term, "reason", m.Reason())
	}
}

// damaged ends the agent where an entry turned out to be damaged: it has to be
// healed before this node votes again.
func (a *Agent) damaged(err error) {
	a.end(fmt.Errorf("read the log: %w", err))
}

// input gives the role machine an input: something has happened.
func (a *Agent) input(in role.Input) { a.Inbox.Put(a.ctx, in) }

// committedGTIDs is the set of Raft-committed transactions.
func (a *Agent) committedGTIDs() *gtid.Set { return a.Raft.Committed().GTIDs() }
