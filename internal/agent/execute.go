package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/agent/variables"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// process starts and ends the local mysqld. It implements primary.Process.
type process struct{ *Agent }

// worker is a clock.Tasks whose tasks end before Run does.
type worker struct {
	clock.Machine
	work *sync.WaitGroup
}

// Go implements clock.Tasks.
func (w worker) Go(f func()) { w.work.Go(f) }

func (a *Agent) currentProcess() *mysqld.Process {
	a.processMu.Lock()
	defer a.processMu.Unlock()
	return a.process
}

// admin returns the administrative sessions of the mysqld that runs.
func (a *Agent) admin() (*mysqld.Admin, error) {
	p := a.currentProcess()
	if p == nil {
		return nil, primary.ErrNoMysqld
	}
	return p.Admin(), nil
}

func (a *Agent) setProcess(p *mysqld.Process) {
	a.processMu.Lock()
	defer a.processMu.Unlock()
	a.process = p
}

// StartMysqld brings up a new incarnation.
func (a process) StartMysqld(ctx context.Context, replicaBinlog bool) (uint64, error) {
	// Packages may have been replaced since the last start: the settings go by what runs.
	in, err := mysqld.Discover(a.cfg.MySQL.BaseDir, a.cfg.MySQL.User)
	if err != nil {
		return 0, fmt.Errorf("find mysqld: %w", err)
	}
	a.install.Store(in)
	server := a.server.With(in)
	a.board.Update(func(s *status.Node) { s.Mysqld = status.MysqldStarting })
	if !server.Initialized() {
		a.logger.Info("mysqld: initialising its data directory")
		if err := server.Initialize(ctx); err != nil {
			return 0, fmt.Errorf("initialise mysqld: %w", err)
		}
	}
	with := variables.Legal(a.board.State().Variables)
	p, err := a.bringUp(ctx, server, mysqld.StartOptions{ReplicaBinlog: replicaBinlog, Variables: with})
	without := error(nil)
	if (errors.Is(err, mysqld.ErrExited) || errors.Is(err, mysqld.ErrUnusable)) && len(with) > 0 && ctx.Err() == nil {
		a.logger.Error("mysqld did not start with the variables of the cluster: it is started without them", "error", err)
		with, without = nil, err
		p, err = a.bringUp(ctx, server, mysqld.StartOptions{ReplicaBinlog: replicaBinlog})
	}
	if err != nil {
		return 0, err
	}
	a.variables.Started(p.Incarnation(), with, without)
	uuid, err := p.Admin().ServerUUID(ctx)
	if err != nil {
		a.killMysqld()
		return 0, fmt.Errorf("ask mysqld for its UUID: %w", err)
	}
	a.logger.Info("mysqld is up", "pid", p.PID(), "incarnation", p.Incarnation())
	a.board.Update(func(s *status.Node) {
		s.Mysqld, s.MysqldPID, s.ServerUUID = status.MysqldRunning, p.PID(), uuid
		s.ServerVersion = in.Version.String()
	})
	return p.Incarnation(), nil
}

// bringUp starts a mysqld and waits until it can be used.
func (a process) bringUp(ctx context.Context, server *mysqld.Server, o mysqld.StartOptions) (*mysqld.Process, error) {
	p, err := server.Start(ctx, o)
	if err != nil {
		a.mysqldGone()
		return nil, fmt.Errorf("start mysqld: %w", err)
	}
	a.setProcess(p)
	a.work.Go(func() { a.watchProcess(p) })
	if err := p.Ready(ctx); err != nil {
		a.killMysqld()
		return nil, fmt.Errorf("wait for mysqld: %w", err)
	}
	return p, nil
}

// watchProcess tells the role machine when a mysqld has ended.
func (a *Agent) watchProcess(p *mysqld.Process) {
	a.standstill.WatchSpace(p.DiskFull(), p.Done(), func(reason string) { a.doubt(p, reason) })
	reason := "mysqld ended"
	if err := p.ExitError(); err != nil {
		reason = err.Error()
	}
	a.logger.Warn("mysqld is gone", "pid", p.PID(), "incarnation", p.Incarnation(), "reason", reason)
	a.mysqldGone()
	a.input(role.MysqldExited{Incarnation: p.Incarnation(), Reason: reason})
}

func (a *Agent) mysqldGone() {
	a.board.Update(func(s *status.Node) {
		s.Mysqld, s.MysqldPID, s.WaitingSessions = status.MysqldStopped, 0, 0
	})
}

// SignalKill sends SIGKILL without waiting for the end.
func (a process) SignalKill() {
	if p := a.currentProcess(); p != nil {
		a.work.Go(p.Kill)
	}
}

// killMysqld kills mysqld, if there is one, and waits until it is gone.
func (a *Agent) killMysqld() {
	if p := a.currentProcess(); p != nil {
		p.Kill()
		a.setProcess(nil)
	}
}

// KillMysqld kills mysqld, and saves what it had beyond the log.
func (a process) KillMysqld(ctx context.Context) {
	a.killMysqld()
	a.saveErrant(ctx)
}

// StopMysqld stops a mysqld of which CloseWrites has proven that no session
// waits for an ACK. It does not end with the agent's context: a clean stop is
// what an agent that ends wants.
func (a process) StopMysqld() {
	p := a.currentProcess()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), primary.StopTimeout)
	defer cancel()
	p.StopGracefully(ctx)
	a.setProcess(nil)
}

// BeginReplica implements primary.Replicating.
func (s localServer) BeginReplica(ctx context.Context) error { return s.process.BeginReplica(ctx) }

// Configure implements primary.Replicating.
func (s localServer) Configure(ctx context.Context) error {
	host, portText, err := net.SplitHostPort(s.agent.feed.Addr().String())
	if err != nil {
		return fmt.Errorf("read the feed's address: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return fmt.Errorf("read the feed's port: %w", err)
	}
	return s.ConfigureReplication(ctx, host, port)
}

// Start implements primary.Replicating.
func (s localServer) Start(ctx context.Context) error {
	return s.StartReplica(ctx, feedUser, s.agent.feedPassword)
}

// applierWorkers returns how many transactions mysqld's applier has workers for; 0 = that
// is not known. Who changes it meanwhile has a slower applier until replication starts anew.
func (a *Agent) applierWorkers(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, 2*watchInterval) // replication waits for it
	defer cancel()
	workers := 0
	admin, err := a.admin()
	if err == nil {
		workers, err = admin.ReplicaWorkers(ctx)
	}
	if err != nil {
		a.logger.Warn("how many transactions the applier may be sent at a time is not known", "error", err)
	}
	return workers
}

// AppliedWithin implements primary.Replica.
func (s localServer) AppliedWithin(ctx context.Context, set *gtid.Set, d time.Duration) (bool, error) {
	return s.Admin.AppliedWithin(ctx, set.String(), d)
}

// host is this node, around its mysqld. It implements member.Host.
type host struct{ *Agent }

// Durable and what follows implement member.Host.
func (h host) Durable() replay.Mark { return h.durable() }
func (h host) WaitIndex(ctx context.Context, index uint64) error {
	return h.requests.WaitIndex(ctx, index)
}
func (h host) MayOpen() error          { return h.mayOpen() }
func (h host) Judged(v replay.Verdict) { h.judged(v) }
func (h host) CatchingUp(text string)  { h.board.SetTrouble(aboutReplication, text) }

// CaughtUp implements primary.Host.
func (h host) CaughtUp(lacked int64, took time.Duration) {
	h.chronicle.CaughtUp(lacked, took)
	h.logger.Info("caught up", "lacked", lacked, "took", took.Round(time.Millisecond))
}

// ReplicaStatus implements primary.Replica.
func (s localServer) ReplicaStatus(ctx context.Context) (primary.ReplicaStatus, error) {
	r, err := s.Admin.ReplicaStatus(ctx)
	return replicaStatus(r), err
}

func replicaStatus(r mysqld.ReplicaStatus) primary.ReplicaStatus {
	return primary.ReplicaStatus{
		Receives: r.IORunning || r.IOConnecting, Connects: r.IOConnecting && !r.IORunning, Applies: r.SQLRunning,
		Errno: r.SQLErrno, Error: r.SQLError, ReadError: r.IOError, Executed: r.Executed,
	}
}

// ApplyProgress implements primary.Replica.
func (s localServer) ApplyProgress(ctx context.Context, executed string) (string, error) {
	return s.agent.applyProgress(ctx, s.Admin, executed)
}

// StartAgain implements primary.Replica.
func (s localServer) StartAgain(ctx context.Context) {
	if err := s.Start(ctx); err != nil {
		s.agent.logger.Warn("promotion: start replication again", "error", err)
	}
}

// EndBlockers implements primary.Replica.
func (s localServer) EndBlockers(ctx context.Context) {
	if killed, err := s.KillBlockers(ctx); err == nil && killed > 0 {
		s.agent.logger.Warn("promotion: ended sessions that blocked the applier", "sessions", killed)
	}
}
