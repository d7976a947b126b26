package sim

import (
	"context"
	"log/slog"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/role"
)

// Times of the agent, as package agent has them.
const (
	watchInterval    = primary.WatchInterval
	promotionTimeout = 30 * time.Second
)

// Raft's timing, as package consensus and the default settings have it: of a node, see
// timing.
const (
	ticksPerHeartbeat = 4
	raftTick          = 25 * time.Millisecond
	electionTimeout   = time.Second
	heartbeatInterval = ticksPerHeartbeat * raftTick
)

// agent is one life of a node's agent process: what package agent is around
// the role machine, consensus, tap and replay, in the same order of actions.
type agent struct {
	*host

	log   *seglog.Log
	raft  *consensus.Node
	disk  *writtenLog        // raft's
	point cluster.StatePoint // as it was reported last
	role  *role.Node
	began time.Duration

	inbox *primary.Inbox
	shell primary.Shell

	orders       primary.Orders
	slot         *primary.Slot
	duties       *primary.Duties
	epoch        *epoch // whose tap was connected last
	stateChanged signal
	// up are the peers with which there is a connection.
	up       map[cluster.NodeID]bool
	lag      consensus.LagTracker
	lagBound *primary.LagBound
	pacing   pacing
	// conns holds the peers' processes with which there is a connection.
	conns    map[cluster.NodeID]*agent
	readers  map[connection]*reader
	follower *membership.Follower
	heard    retention.Heard
	promised datadir.Promises // what promise.json said at the start
	// leaderAt is since when it knows the leader.
	leaderAt     time.Duration
	process      *mysqld // nil = none
	feed         *feedSession
	stages       stages
	learner      *logcopy.Learner
	feeder       logcopy.Feeder
	marker       *retention.Marker
	purger       *retention.Purger
	feedCounters mysqlwire.FeedCounters
}

// newAgent opens what is durable: the agent's open.
func newAgent(n *node) (*agent, error) {
	p, err := n.newHost(cluster.State{})
	if err != nil {
		return nil, err
	}
	a := &agent{host: p, began: n.now(), up: map[cluster.NodeID]bool{}, conns: map[cluster.NodeID]*agent{}, readers: map[connection]*reader{}}
	a.inbox = a.newInbox()
	a.lagBound = primary.NewLagBound(n.w.maxApplyLag, a.life)
	a.slot = a.newSlot()
	a.duties = &primary.Duties{Process: mysqldProcess{a}, Slot: a.slot, Host: mysqldHost{a}, Orders: &a.orders, Dir: "mysql", ElectionTimeout: n.timing.election}
	a.shell = a.newShell()
	if err := a.openFiles(); err != nil {
		return nil, err
	}
	if err := a.newRaft(); err != nil {
		return nil, err
	}
	a.stages.init(n, a.log, a.life, func() uint64 { return a.raft.Committed().Mark().Epoch }, a)
	a.learner, a.feeder = a.newLearner(), logcopy.Feeder{Self: n.id, Node: feeding{a}}
	a.departing = a.newDeparting()
	a.follower = a.newFollower()
	a.follower.Follow(a.raft.Committed().State(), true)
	a.lag.Start(a.committedGTIDs())
	a.marker, a.purger = a.newMarker(), a.newPurger()
	a.role = primary.NewRole(n.member, n.w.promotionTimeout())
	return a, nil
}

// newRaft is consensus over the open log.
func (a *agent) newRaft() (err error) {
	n := a.n
	a.disk = &writtenLog{Log: a.log, a: a}
	if n.w.readsAhead {
		a.disk.Log = &aheadLog{Log: a.log, a: a, news: make(chan struct{}, 1)}
	}
	a.raft, err = consensus.New(consensus.Config{
		Self: n.id, Members: n.w.members()[:n.w.initialNodes], State: a.statePoint(), Machine: raftMachine{late{a.life}, a.disk},
		Heartbeat: ticksPerHeartbeat * n.timing.tick, ElectionTimeout: n.timing.election,
		Log: a.disk, HasStage: a.log.HasStage, Fresh: n.home.Fresh(), Promised: a.promised.Longest, Logger: slog.New(slog.DiscardHandler),
		Send: a.send, OnRole: a.onRole, OnLease: a.inbox.LeaseChanged, OnCommit: a.onCommit, OnState: a.onState,
		OnAcknowledge: a.onAcknowledge, OnAckEvent: a.onAckEvent, OnRefused: a.onRefused, OnWanted: a.onWanted,
		OnFull: a.onFull, OnStalled: a.slot.Stalled, OnBroken: a.onBroken,
	})
	return err
}

// run starts what runs: raft's loop, the role machine, the polls.
func (a *agent) run() {
	a.life.start(func() {
		write := func(own time.Duration) error {
			return a.n.write(a.life, func() error { return a.n.home.WritePromise(own) })
		}
		a.promised.Forget(context.Background(), a.life, write, a.n.logger("promise"))
	})
	a.disk.slow = true
	a.life.start(func() {
		err := a.raft.Run(context.Background())
		a.w.sched.after(0, func() { a.exit(err.Error()) })
	})
	a.life.start(a.runRole)
	if a.n.runsMysqld() {
		watch := &primary.Watch{Slot: a.slot, Board: a.board, Lag: &a.lag, Now: a.n.clock, Logger: slog.New(slog.DiscardHandler)}
		a.life.start(func() { _ = watch.Run(context.Background()) })
		a.life.start(func() { _ = a.marker.Run(context.Background()) })
		a.life.start(a.runLagBound)
	}
	a.life.start(a.runGossip)
	a.life.start(func() { _ = a.purger.Run(context.Background()) })
	if a.w.stateChanges() {
		a.life.start(a.runState)
	}
	a.life.start(a.runDial)
	a.life.start(func() { _ = a.follower.Run(context.Background()) })
	if a.w.membersChange {
		a.life.start(func() { _ = a.learner.Run(context.Background()) })
	}
	a.life.start(func() { _ = a.stance.Watch(context.Background()) })
	a.life.start(a.runStages)
}

// newInbox is what waits for the role machine. Which of its sources it takes from is the seed's choice.
func (a *agent) newInbox() *primary.Inbox {
	return primary.NewInbox(primary.InboxConfig{
		Clock: late{a.life}, Pick: a.n.rng.IntN, Serving: func() bool { return a.slot.Serving() }, ServiceChanged: func() { a.board.Wake() },
		Lease: func() (time.Duration, bool) {
			until, _ := a.raft.Lease()
			return until - a.n.now(), until != 0
		},
	})
}

// newShell executes what the role machine asks for.
func (a *agent) newShell() primary.Shell {
	return primary.Shell{
		Inbox: a.inbox, Service: a.duties, Steps: a.duties, PromotionTimeout: a.w.promotionTimeout(), Clock: a.life,
		Leads: func(term uint64) bool { return a.raft.Role().Leads(term) },
		Stepped: func(m *role.Node, _ role.Input, before role.Phase, _ []role.Effect) {
			if p := m.Phase(); p != before {
				a.n.log("phase", "%s, was %s, term %d: %s", p, before, a.raft.Role().Term, m.Reason())
			}
			a.board.SetRole(m.Role(), m.Reason())
		},
		Began: func(e role.Effect) {
			a.n.log("effect", "%s", e)
			if e.Kind == role.CloseTap {
				a.epoch.ends()
			}
		},
		Ended: a.operated,
	}
}

// operated notes what an operation came to.
func (a *agent) operated(e role.Effect, d role.Done, err error) {
	if e.Kind == role.Settle {
		a.w.settles.Deposed++
	}
	if err != nil {
		a.n.log("operation", "%s: %s: %v", e, d.Verdict, err)
		return
	}
	switch e.Kind {
	case role.Judge:
		a.n.check.judged(a.process)
	case role.CommitEpoch:
		a.w.epochs++
		a.w.happened(pointEpoch, a.n)
	case role.OpenWrites:
		a.process.strayACK()
		a.w.happened(pointOpened, a.n)
	}
}

// runRole is the role machine's goroutine.
func (a *agent) runRole() {
	_ = a.shell.Run(context.Background(), a.role, a.n.operatorsFence()) // it returns after Exit alone
	a.w.sched.after(0, func() { a.exit("stopped") })
}

func (a *agent) input(in role.Input) { a.inbox.Put(context.Background(), in) }

// stop is SIGTERM to the agent.
func (a *agent) stop() { a.life.run(func() { a.input(role.Stop{}) }) }

// exit is the end of Run: mysqld first, the peers' listener last.
func (a *agent) exit(why string) {
	if a.n.agent == a {
		a.slot.Close()
		a.n.killAgent(why)
		a.w.restartAgent(a.n)
	}
}

// What a turn reports; nothing here blocks.

func (a *agent) onRole(r consensus.RoleState) {
	a.n.log("raft", "term %d, leader %d, leading %t", r.Term, r.Leader, r.Leading)
	if r.Leader != a.board.Own().Leader {
		a.leaderAt = a.n.now()
	}
	if r.Leader != 0 && a.w.losses != nil {
		a.w.losses.takesPart(a)
	}
	a.board.SetRaft(r)
	if r.Leading {
		a.n.check.leads(a)
	}
	if r.Leading && (!a.n.runsMysqld() || a.n.member.Weight == 0) {
		a.w.ledInNeed++
	}
	if a.slot.RoleChanged(r).Tap {
		a.epoch.ends()
	}
}

func (a *agent) onCommit(m consensus.Mark) {
	a.n.check.committed(a)
	a.slot.Committed(m)
	if a.n.runsMysqld() {
		a.lag.Committed(m, a.n.clock())
	}
	if p := a.raft.Committed().State(); a.w.membersChange && p.Index != a.point.Index {
		a.steps(a.point, p)
		a.point = p
		a.stateChanged.fire()
	}
}

func (a *agent) onState(o consensus.StateOutcome) {
	if o.Applied {
		a.board.SetState(o.State)
	}
	a.stateChanged.fire()
}

func (a *agent) onRefused(r consensus.Refusal) {
	a.n.log("refused", "term %d: %v", r.Term, r.Err)
	a.slot.Refused(r)
}

// onFull tells the role machine that the log takes no entries, or does again (nil).
func (a *agent) onFull(err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	a.n.log("full", "%s", reason)
	a.board.Update(func(s *status.Node) {
		s.LogState, s.LogDetail = status.LogOK, reason
		if reason != "" {
			s.LogState = status.LogFull
		}
	})
	a.inbox.LogTrouble(role.LogTrouble{Reason: reason})
}

// Callbacks of the transport.

func (a *agent) peerUp(id cluster.NodeID) {
	a.up[id] = true
	a.board.SetTrouble(a.board.Name(id), "")
	a.board.PeerUp(id, true)
}

func (a *agent) peerDown(id cluster.NodeID, refused bool) {
	a.n.log("peer", "n%d is down, refused %t", id, refused)
	a.up[id] = false
	a.board.PeerUp(id, false)
	if refused {
		a.life.Go(func() { a.raft.PeerRefused(id) })
	}
}

// committedLog reads the committed part of the log.
func (a *agent) committedLog() feed.Reader {
	return feed.Reader{Log: a.log, Committed: a.raft.Committed(), Entries: a.log, Damaged: func(err error) {
		a.w.sched.after(0, func() { a.exit(err.Error()) })
	}}
}

func (a *agent) committedGTIDs() *gtid.Set { return a.raft.Committed().GTIDs() }
