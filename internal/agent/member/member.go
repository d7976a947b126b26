package member

import (
	"context"
	"log/slog"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Config is the world of a Member. The config of a part has only the fields that the world gives: the Member
// fills in the rest, and the observers that the world leaves out.
type Config struct {
	Self      cluster.Member
	Home      *datadir.Home
	Known     *membership.Directories
	Board     *board.Board
	Stance    *quorumloss.Stance
	Departing *membership.Departing
	State     *datadir.State // cluster.json

	Process primary.Process
	Host    Host
	Peers   Peers
	// Look is called at each look at the other members, which it may change by Follower; nil: nothing is called.
	Look func(ctx context.Context)
	// Slot has Local, Own, Clients, and Clock, by which operations and epochs wait; Raft, if it is
	// not the Member's.
	Slot   primary.SlotConfig
	Inbox  primary.InboxConfig // Clock, Pick
	Shell  primary.Shell       // Stepped, Began, Ended
	Purger retention.Config    // Retention, Every; Log, if it is not the one that is open
	Marker retention.MarkerConfig
	// Paced is told of each look at the replicas' lag; nil: nobody listens.
	Paced func(p tap.Pace, news bool)

	// OpenLog opens the committed log. Status returns the node's own status.
	OpenLog func() feed.Reader
	Status  func() status.Node
	// WriteState and WritePromise write small files. They wait for a disk.
	WriteState   func(cluster.StatePoint) error
	WritePromise func(time.Duration) error

	// MysqldDir is where mysqld's data are.
	MysqldDir                                                   string
	ElectionTimeout, ElectionTimeoutMax, Promotion, MaxApplyLag time.Duration
	Clock                                                       clock.Tasks
	Now                                                         func() time.Time
	Logger                                                      *slog.Logger
}

// Host is primary.Host without what a Member knows itself.
type Host interface {
	Durable() replay.Mark
	WaitIndex(ctx context.Context, index uint64) error
	AskTarget(ctx context.Context, to cluster.NodeID, o *primary.Order, index, term uint64) error
	Judged(replay.Verdict)
	CatchingUp(text string)
	CaughtUp(lacked int64, took time.Duration)
	Settled(term, number uint64, acknowledged int, took time.Duration)
}

// Peers are the other members, as membership.Node asks them.
type Peers interface {
	AsSelf() membership.Self
	SetPeers(former transport.Former)
	Hangup(id cluster.NodeID) (ended bool)
	AskState(ctx context.Context, of cluster.NodeID) (cluster.StatePoint, error)
	Change(ctx context.Context, c cluster.Change) error
}

// Member is a node that takes part, or is about to. Its zero value has no parts.
type Member struct {
	cfg Config
	log *seglog.Log

	// These are there from Init on.
	Inbox    *primary.Inbox
	Role     *role.Machine // only RunRole uses it
	Shell    *primary.Shell
	Slot     *primary.Slot
	Duties   *primary.Duties
	Orders   primary.Orders
	LagBound *primary.LagBound
	Lag      consensus.LagTracker
	Follower *membership.Follower
	Feeder   logcopy.Feeder
	Heard    retention.Heard

	// These are there from Open on: see TakesPart.
	Raft     *consensus.Runner
	Bulk     *bulk.Bulk
	Learner  *logcopy.Learner
	Marker   *retention.Marker
	Purger   *retention.Purger
	Promised datadir.Promises // what promise.json said at the start
}

// TakesPart tells whether the node takes part in its cluster: it has a log, and Open has built all that needs one. A node
// does not that heals its log, joins, or has left.
func (m *Member) TakesPart() bool { return m.Raft != nil }

// Sight is what this node sees of the cluster, with the nodes as it knows them.
func (m *Member) Sight(nodes []status.Node) status.Sight {
	s := status.Sight{State: m.cfg.Board.State(), Nodes: nodes}
	if m.TakesPart() {
		s.Outgoing = m.Raft.Committed().State().Outgoing
	}
	return s
}

// Init builds what needs no log.
func (m *Member) Init(cfg Config) {
	m.cfg = cfg
	m.LagBound = primary.NewLagBound(cfg.MaxApplyLag, cfg.Clock)
	in := cfg.Inbox
	in.Serving, in.ServiceChanged = func() bool { return m.Slot.Serving() }, cfg.Board.Wake
	in.Lease = func() (time.Duration, bool) { return m.Raft.LeaseLeft() }
	m.Inbox = primary.NewInbox(in)
	slot := cfg.Slot
	if slot.Raft == nil {
		slot.Raft = func() primary.Raft { return m.Raft }
	}
	slot.Bulk, slot.Pace, slot.Inbox, slot.Logger = func() *bulk.Bulk { return m.Bulk }, m.LagBound, m.Inbox, cfg.Logger
	m.Slot = primary.NewSlot(slot)
	m.Duties = &primary.Duties{
		Process: cfg.Process, Slot: m.Slot, Host: host{cfg.Host, m}, Orders: &m.Orders, Dir: cfg.MysqldDir, ElectionTimeout: cfg.ElectionTimeout,
	}
	shell := cfg.Shell
	shell.Inbox, shell.Service, shell.Steps, shell.PromotionTimeout, shell.Clock = m.Inbox, m.Duties, m.Duties, cfg.Promotion, slot.Clock
	shell.Leads = func(term uint64) bool { return m.Raft.Role().Leads(term) }
	shell.Stepped = func(r *role.Machine, in role.Input, before role.Phase, effects []role.Effect) {
		cfg.Shell.Stepped(r, in, before, effects)
		cfg.Board.SetRole(r.Role(), r.Reason())
	}
	m.Shell, m.Role = &shell, primary.NewRole(cfg.Self, cfg.Promotion)
	m.Follower = membership.NewFollower(membership.FollowerConfig{
		Node: followed{cfg.Peers, m}, Table: cfg.Board, Known: cfg.Known, Clock: cfg.Clock, Logger: cfg.Logger, RunsMysqld: m.runsMysqld(),
		Also: func(ctx context.Context) {
			m.Feeder.Look(ctx) // Feeder is completed below
			if cfg.Look != nil {
				cfg.Look(ctx)
			}
		},
	})
	m.Feeder.Self, m.Feeder.Node = cfg.Self.ID, feeding{m}
}

// Open builds what needs the log, which is open. r and copies have only the fields that the world gives; r's
// callbacks are observers, which are told first.
func (m *Member) Open(log *seglog.Log, r consensus.Config, copies bulk.Config) (err error) {
	m.log = log
	cfg, home := m.cfg, m.cfg.Home
	if err := home.HasLog(); err != nil {
		return err
	}
	if err := cfg.State.Load(home, r.Members, log.FirstIndex()); err != nil {
		return err
	}
	if err := cfg.WriteState(cfg.State.Point()); err != nil { // there is a file from now on
		return err
	}
	if m.Promised, err = home.Promised(cfg.ElectionTimeout, cfg.ElectionTimeoutMax, cfg.Logger); err != nil {
		return err
	}
	if m.Raft, err = consensus.New(m.raftConfig(r)); err != nil {
		return err
	}
	m.Lag.Start(m.Raft.Committed().GTIDs(), m.Raft.Committed().Lacks)
	m.Bulk = bulk.New(m.bulkConfig(copies))
	m.Learner = logcopy.NewLearner(logcopy.LearnerConfig{
		Self: cfg.Self.ID, Committed: m.Raft.Committed(), Role: m.Raft.Role, Step: m.Raft.StepRelayed,
		Peers: m.Bulk, Table: cfg.Board, Clock: cfg.Clock, Logger: cfg.Logger,
	})
	mark := cfg.Marker
	mark.Applied, mark.Committed, mark.Clock, mark.Logger = m.applied, m.Raft.Committed(), cfg.Clock, cfg.Logger
	mark.Read = func(f func(replay.CommittedLog) error) error {
		log := cfg.OpenLog()
		defer log.Close()
		return f(log)
	}
	m.Marker = retention.NewMarker(mark)
	purge := cfg.Purger
	if purge.Log == nil {
		purge.Log = log
	}
	purge.Self, purge.Name, purge.Committed, purge.Heard = cfg.Self.ID, cfg.Self.Name, m.Raft.Committed(), &m.Heard
	purge.Nodes, purge.KeepState, purge.StateNeed = m.Nodes, m.KeepState, m.StateNeed
	purge.Clock, purge.Now, purge.Logger = cfg.Clock, cfg.Now, cfg.Logger
	m.Purger = retention.New(purge)
	return nil
}

// Loops returns what has to run beside Raft and Bulk. Each loop ends with its context.
func (m *Member) Loops() []func(context.Context) error {
	cfg := m.cfg
	loops := []func(context.Context) error{
		func(ctx context.Context) error {
			m.Promised.Forget(ctx, cfg.Clock, cfg.WritePromise, cfg.Logger)
			return nil
		},
		m.Follower.Run, m.Learner.Run, cfg.Stance.Watch, m.Purger.Run, m.checkLog,
		func(ctx context.Context) error { // stages that nothing can name any more
			m.Bulk.DropAbandoned(ctx, m.Raft.Committed().EpochChanged, m.log.DropStages)
			return nil
		},
	}
	if m.runsMysqld() {
		watch := &primary.Watch{Slot: m.Slot, Board: cfg.Board, Lag: &m.Lag, Now: cfg.Now, Logger: cfg.Logger}
		loops = append(loops, watch.Run, m.Marker.Run, m.runLagBound)
	}
	return loops
}

// Fenced is an operator's fence as the role machine is told of it.
func (m *Member) Fenced() (role.Fenced, error) {
	f, err := m.cfg.Home.Fence()
	if f == nil {
		return role.Fenced{}, err
	}
	return role.Fenced{Reason: f.Told()}, nil
}

// RunRole is the role machine's goroutine: see primary.Shell. It begins with the operator's fence from before this
// start. If the file of the fence is damaged, RunRole fails: mysqld is not started then.
func (m *Member) RunRole(ctx context.Context) error {
	fenced, err := m.Fenced()
	if err != nil {
		return err
	}
	return m.Shell.Run(ctx, m.Role, fenced)
}

// runLagBound looks at the replicas' lag at intervals while this node is primary.
func (m *Member) runLagBound(ctx context.Context) error {
	cfg := m.cfg
	for cfg.MaxApplyLag > 0 && cfg.Clock.Wait(ctx, primary.WatchInterval, nil) == nil {
		committed := m.Raft.Committed().Mark().Index
		p, news := m.LagBound.Look(cfg.Board.Own(), committed, cfg.Board.Nodes())
		if news {
			cfg.Logger.Warn("apply lag", "slowed", p.Limited, "bytes_per_second", int64(p.BytesPerSecond), "reason", p.Reason)
		}
		if cfg.Paced != nil {
			cfg.Paced(p, news)
		}
	}
	return nil
}

func (m *Member) runsMysqld() bool { return m.cfg.Self.Kind != cluster.KindLogger }

func (m *Member) applied() uint64 { return m.cfg.Board.Own().Applied }

// Nodes returns the status of every member; this node's own is up to date.
func (m *Member) Nodes() []status.Node { return m.cfg.Board.NodesWith(m.cfg.Status()) }

// KeepState makes durable what is known of the cluster state now.
func (m *Member) KeepState() {
	if err := m.cfg.WriteState(m.Raft.Committed().State()); err != nil {
		m.cfg.Logger.Warn("cannot write the cluster state to disk: trying again", "error", err)
	}
}

// StateNeed is what cluster.json needs of the log: at its next start this node
// looks there for the changes that the file lacks.
func (m *Member) StateNeed() replay.Need {
	return replay.Need{Who: m.cfg.Self.Name, From: m.cfg.State.Point().Through + 1, Why: "its " + datadir.ClusterState + " goes up to there", Known: true}
}

// AsMember is this node as a member that a joining node asks.
func (m *Member) AsMember(password func(joiner string) string) join.Member {
	return join.Member{
		Name: m.cfg.Self.Name, Clock: m.cfg.Clock, Barrier: m.Raft.Barrier, Committed: m.Raft.Committed(), Log: m.log, Nodes: m.Nodes, Known: m.cfg.Known.Pins,
		Own: m.cfg.Status, StateNeed: m.StateNeed, RunsMysqld: m.runsMysqld(), Durable: m.cfg.Host.Durable, Password: password,
	}
}

// Complete adds to the board's status what the parts know.
func (m *Member) Complete(s *status.Node) {
	if s.LogState == "" {
		s.LogState = status.LogOK
	}
	s.LogFirst, s.LogLast, s.LogCommit = m.log.FirstIndex(), m.log.LastIndex(), m.Raft.Committed().Mark().Index
	s.DurableMark, s.StateKept, s.FedBy = m.cfg.Host.Durable().Index, m.cfg.State.Point().Index, m.Learner.FedBy()
}
