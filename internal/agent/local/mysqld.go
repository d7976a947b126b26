package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/prepared"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/agent/standstill"
	"github.com/quorate/quorate/internal/agent/variables"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// slowStart is after how long the status says that mysqld is still starting, and how often that text is renewed.
	slowStart = 20 * time.Second
	// aboutStart is the key, among the board's troubles, of a start that takes long.
	aboutStart = "start"
)

// Mysqld is the mysqld of this node: it starts and ends it, and has what is known of it. Call Init first, and
// Open before mysqld is started. It implements primary.Process.
type Mysqld struct {
	cfg Config
	// Installed is the MySQL that the newest mysqld was started from; it holds nil on a logger.
	Installed atomic.Pointer[install.Installation]
	// LagAt is when mysqld last said what it has; nil = it never did.
	LagAt atomic.Pointer[time.Time]
	// CertificateEnds is when mysqld's certificate ends, as a Unix time; 0 = not known, or none was given.
	CertificateEnds atomic.Int64
	// Ends is how often a mysqld has ended, or could not be started.
	Ends atomic.Uint64

	server     *mysqld.Server
	standstill *standstill.Watch
	foreignXA  prepared.Foreign
	// Only primary.Watch uses grants, grantsDue, before which it does not look at them again, grantsUnseen (the last
	// look failed), certificate and fixedOf, which is the incarnation whose time zone the board has. Only the goroutine
	// of the durable marks uses accountsLooked and tablesDue.
	grants         grantsLooked
	grantsDue      time.Time
	grantsUnseen   bool
	certificate    certificateTold
	fixedOf        uint64
	accountsLooked time.Time
	tablesDue      time.Time

	// failed is the version of the newest mysqld that did not start. Only StartMysqld uses it.
	failed install.Version

	// process is the mysqld that runs; it is set and cleared by operations.
	mu      sync.Mutex
	process *mysqld.Process
}

// Config is what a Mysqld needs.
type Config struct {
	// Self is this node's name.
	Self  string
	Node  Node
	Board *board.Board
	// Variables is told with which of the cluster's variables mysqld runs.
	Variables *variables.Service
	// Discover finds MySQL as it is installed now.
	Discover func() (*install.Installation, error)
	// Feed is where mysqld attaches, with FeedUser and FeedPassword.
	Feed                   func() *mysqlwire.Feed
	FeedUser, FeedPassword string
	// Tap fills in what the configuration of a tap takes from this node. Observe returns the observer of its batches.
	Tap     func(*mysqlwire.TapConfig)
	Observe func() primary.TapObserver
	// Probe is a file on mysqld's disk that is written to. ErrantDir is where transactions go that the log lacks.
	Probe, ErrantDir string
	// Tasks end before the node does.
	Tasks  clock.Tasks
	Logger *slog.Logger
}

// Node is the node around its mysqld.
type Node interface {
	prepared.Node
	// Base ends with the node.
	Base() context.Context
	// Input tells the role machine what happened, Doubt that a mysqld is in doubt.
	Input(role.Input)
	Doubt(incarnation uint64, reason string)
	// OpenWrites calls open, which opens a primary's mysqld, with the writers that the cluster state allows.
	OpenWrites(a *mysqld.Admin, open func(mysqld.Writers) error) error
}

// Init takes what it needs. It starts nothing.
func (m *Mysqld) Init(cfg Config) {
	m.cfg = cfg
	m.foreignXA.Node = cfg.Node
	m.standstill = standstill.New(cfg.Board, cfg.Probe)
}

// Open takes the configuration of mysqld.
func (m *Mysqld) Open(cfg mysqld.Config) { m.server = mysqld.New(cfg) }

// Server is what mysqld is started with; nil before Open.
func (m *Mysqld) Server() *mysqld.Server { return m.server }

// Run looks whether mysqld's disk hangs.
func (m *Mysqld) Run(ctx context.Context) error { return m.standstill.Run(ctx) }

// Process is the mysqld that runs; nil = none does.
func (m *Mysqld) Process() *mysqld.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// Set notes which mysqld runs; nil = none does.
func (m *Mysqld) Set(p *mysqld.Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process = p
}

// Admin returns the administrative sessions of the mysqld that runs.
func (m *Mysqld) Admin() (*mysqld.Admin, error) {
	p := m.Process()
	if p == nil {
		return nil, primary.ErrNoMysqld
	}
	return p.Admin(), nil
}

// Local returns the mysqld that runs, as the operations of package primary ask it.
func (m *Mysqld) Local() (primary.Local, error) {
	p := m.Process()
	if p == nil {
		return nil, primary.ErrNoMysqld
	}
	return running{p.Admin(), p, m}, nil
}

// Executed returns mysqld's gtid_executed.
func (m *Mysqld) Executed(ctx context.Context) (*gtid.Set, error) {
	s, err := m.Local()
	if err != nil {
		return nil, err
	}
	return s.GTIDExecuted(ctx)
}

// StartMysqld brings up a new incarnation.
func (m *Mysqld) StartMysqld(ctx context.Context, replicaBinlog bool) (incarnation uint64, err error) {
	// Packages may have been replaced since the last start: the settings go by what runs.
	in, err := m.cfg.Discover()
	if err != nil {
		m.gone()
		return 0, fmt.Errorf("find mysqld: %w", err)
	}
	m.Installed.Store(in)
	server := m.server.With(in)
	m.noteStarting(server, in.Version)
	defer func() {
		if err != nil && ctx.Err() == nil {
			m.failed = in.Version
		}
		m.cfg.Board.Update(func(s *status.Node) { s.Upgrading = false })
	}()
	if !server.Initialized() {
		m.cfg.Logger.Info("mysqld: initialising its data directory")
		if err := server.Initialize(ctx); err != nil {
			m.gone()
			return 0, fmt.Errorf("initialise mysqld: %w", err)
		}
	}
	with := variables.Legal(m.cfg.Board.State().Variables)
	p, err := m.bringUp(ctx, server, mysqld.StartOptions{ReplicaBinlog: replicaBinlog, Variables: with})
	without := error(nil)
	if (errors.Is(err, mysqld.ErrExited) || errors.Is(err, mysqld.ErrUnusable)) && len(with) > 0 && ctx.Err() == nil {
		m.cfg.Logger.Error("mysqld did not start with the variables of the cluster: starting it without them", "error", err)
		with, without = nil, err
		p, err = m.bringUp(ctx, server, mysqld.StartOptions{ReplicaBinlog: replicaBinlog})
	}
	if err != nil {
		return 0, err
	}
	m.cfg.Variables.Started(p.Incarnation(), with, without)
	uuid, err := p.Admin().ServerUUID(ctx)
	if err != nil {
		m.Kill()
		return 0, fmt.Errorf("ask mysqld for its UUID: %w", err)
	}
	m.cfg.Logger.Info("mysqld is up", "pid", p.PID(), "incarnation", p.Incarnation())
	m.LagAt.Store(nil) // it may have less than the mysqld before
	m.cfg.Board.Update(func(s *status.Node) {
		s.Mysqld, s.MysqldPID, s.ServerUUID = status.MysqldRunning, p.PID(), uuid
		s.ServerVersion = in.Version.String()
	})
	return p.Incarnation(), nil
}

// noteStarting shows that a mysqld of a version starts, and whether it upgrades its data. A start after one that failed
// counts as no upgrade: else a mysqld that ends again and again would never be seen as one that does not get ready.
func (m *Mysqld) noteStarting(server *mysqld.Server, version install.Version) {
	upgrades := server.Upgrades(version) && version != m.failed
	m.cfg.Board.Update(func(s *status.Node) {
		s.Mysqld, s.Upgrading = status.MysqldStarting, upgrades
	})
}

// bringUp starts a mysqld and waits until it can be used.
func (m *Mysqld) bringUp(ctx context.Context, server *mysqld.Server, o mysqld.StartOptions) (*mysqld.Process, error) {
	defer m.tellSlowStart(ctx, server)()
	p, err := server.Start(ctx, o)
	if err != nil {
		m.gone()
		return nil, fmt.Errorf("start mysqld: %w", err)
	}
	m.Set(p)
	m.cfg.Tasks.Go(func() { m.watch(p) })
	if err := p.Ready(ctx); err != nil {
		m.Kill()
		return nil, err
	}
	return p, nil
}

// tellSlowStart shows in the status that mysqld does not come up, and for what it waits, until end is called.
// InnoDB's recovery may take hours, so only an operator ends it.
func (m *Mysqld) tellSlowStart(ctx context.Context, server *mysqld.Server) (end func()) {
	ctx, end = context.WithCancel(ctx)
	began, former := m.cfg.Tasks.Now(), m.Process()
	m.cfg.Tasks.Go(func() {
		for m.cfg.Tasks.Wait(ctx, slowStart, nil) == nil {
			text := fmt.Sprintf("mysqld waits, because another mysqld (pid %s) runs in its directory: kill that mysqld", server.OldPID())
			if p := m.Process(); p != nil && p != former {
				text = fmt.Sprintf("mysqld has been starting for %v and takes no login: %s", (m.cfg.Tasks.Now() - began).Round(time.Second), p.LastWords())
			}
			m.cfg.Board.SetTrouble(aboutStart, text)
		}
		m.cfg.Board.SetTrouble(aboutStart, "")
	})
	return end
}

// watch tells the role machine when a mysqld has ended.
func (m *Mysqld) watch(p *mysqld.Process) {
	m.standstill.WatchSpace(p.DiskFull(), p.Done(), func(reason string) { m.cfg.Node.Doubt(p.Incarnation(), reason) })
	reason := "mysqld ended"
	if err := p.ExitError(); err != nil {
		reason = err.Error()
	}
	m.cfg.Logger.Warn("mysqld is gone", "pid", p.PID(), "incarnation", p.Incarnation(), "reason", reason)
	m.gone()
	m.cfg.Node.Input(role.MysqldExited{Incarnation: p.Incarnation(), Reason: reason})
}

// gone notes that a mysqld has ended, or has not started.
func (m *Mysqld) gone() {
	m.Ends.Add(1)
	m.cfg.Board.Update(func(s *status.Node) {
		s.Mysqld, s.MysqldPID, s.WaitingSessions = status.MysqldStopped, 0, 0
	})
	m.cfg.Board.SetTrouble(aboutReplication, "") // nothing replicates now; behind the other: see Applies
}

// SignalKill sends SIGKILL without waiting for the end.
func (m *Mysqld) SignalKill() {
	if p := m.Process(); p != nil {
		m.cfg.Tasks.Go(p.Kill)
	}
}

// Kill kills mysqld, if there is one, and waits until it is gone.
func (m *Mysqld) Kill() {
	if p := m.Process(); p != nil {
		p.Kill()
		m.Set(nil)
	}
}

// KillMysqld kills mysqld, and saves what it had beyond the log.
func (m *Mysqld) KillMysqld(ctx context.Context) {
	m.Kill()
	m.saveErrant(ctx)
}

// StopMysqld stops a mysqld of which CloseWrites has proven that no session
// waits for an ACK. It does not end with the agent's context: a clean stop is
// what an agent that ends wants. mysqld has its own time for it (mysqld.Config.StopTimeout).
func (m *Mysqld) StopMysqld() {
	p := m.Process()
	if p == nil {
		return
	}
	p.StopGracefully(context.Background())
	m.Set(nil)
}

// ApplierWorkers returns how many transactions mysqld's applier has workers for; 0 = that is not
// known. If an operator changes the number, the applier may be slower until replication starts again.
func (m *Mysqld) ApplierWorkers(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, 2*primary.WatchInterval) // replication waits for it
	defer cancel()
	workers := 0
	admin, err := m.Admin()
	if err == nil {
		workers, err = admin.ReplicaWorkers(ctx)
	}
	if err != nil {
		m.cfg.Logger.Warn("it is not known how many transactions the applier may be sent at a time", "error", err)
	}
	return workers
}
