package sim

import (
	"context"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/role"
)

// Times of the agent, as package agent has them.
const (
	tickInterval      = 100 * time.Millisecond
	watchInterval     = primary.WatchInterval
	guardEvery        = 4
	idleLeaderTimeout = 5 * time.Second
	stopTimeout       = 5 * time.Second
	steadyAfter       = time.Minute
	promotionTimeout  = 30 * time.Second
	retryAfter        = time.Second
	fencedAfter       = 5 * time.Second
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
	n    *node
	w    *World
	life *life

	log   *seglog.Log
	group *consensus.Group
	loop  loop
	role  *role.Node
	began time.Duration

	// What waits for the role machine: a tick, inputs, and the mailbox of those that may
	// not block.
	ticked     bool
	inputs     []role.Input
	mail       mailbox
	coreWork   signal
	operations primary.Operations

	moving    *moving
	epoch     *epoch
	serveTerm uint64
	// openedIncarnation is the newest mysqld that was opened for writes, until it is made a
	// replica.
	openedIncarnation uint64
	stateChanged      signal
	board             *board.Board
	boardChanged      signal
	// up are the peers with which there is a connection.
	up         map[cluster.NodeID]bool
	lag        consensus.LagTracker
	applier    primary.Applier
	lagBound   *primary.LagBound
	pacing     pacing
	repair     membership.Repairer
	unrepaired map[cluster.NodeID]string // why nodes are not rebuilt
	members    members
	follower   *membership.Follower
	kept       datadir.State // cluster.json
	mark       datadir.Mark
	heard      retention.Heard
	promised   time.Duration // what promise.json said at the start
	known      *membership.Directories
	departing  *membership.Departing
	hearing    map[cluster.NodeID]bool // that a peer says of a recovery
	// leaderAt is since when it knows the leader.
	leaderAt     time.Duration
	process      *mysqld // nil = none
	feed         *feedSession
	stages       stages
	marker       *retention.Marker
	feedCounters mysqlwire.FeedCounters
}

type mailbox struct {
	raft  *role.RaftChanged
	peers *role.Peers
	doubt *role.Doubt
}

// newAgent opens what is durable: the agent's open.
func newAgent(n *node) (*agent, error) {
	a := &agent{n: n, w: n.w, life: &life{n: n}, began: n.now()}
	a.up, a.members.conns = map[cluster.NodeID]bool{}, map[cluster.NodeID]*agent{}
	if err := a.openFiles(); err != nil {
		return nil, err
	}
	var log consensus.Log = a.log
	if n.w.readsAhead {
		log = &aheadLog{Log: a.log, a: a}
	}
	if err := a.loop.init(a, log); err != nil {
		return nil, err
	}
	a.group = a.loop.driver.Group()
	a.stages.init(n, a.log, a.life, func() uint64 { return a.group.Committed().Mark().Epoch }, agentEntries{a})
	a.departing = a.newDeparting()
	a.follower = a.newFollower()
	a.follower.Follow(a.group.Committed().State(), true)
	a.lag.Start(a.committedGTIDs())
	a.lagBound = primary.NewLagBound(n.w.maxApplyLag, a.life)
	a.marker = a.newMarker()
	a.operations = a.newOperations()
	a.role = role.New(role.Config{
		Self: n.id, Kind: n.member.Kind, Weight: n.member.Weight, RetryAfter: retryAfter, FencedAfter: fencedAfter, PromotionTimeout: n.w.promotionTimeout(),
		IdleLeaderTimeout: idleLeaderTimeout, StopTimeout: stopTimeout, SettleTimeout: primary.SettleTimeout, SteadyAfter: steadyAfter,
	})
	return a, nil
}

// run starts what runs: raft's loop, the role machine, the polls.
func (a *agent) run() {
	a.input(a.n.operatorsFence())
	a.life.start(a.runPromise)
	a.loop.wake()
	a.life.every(tickInterval, func() {
		if !a.role.Idle() {
			a.ticked = true
			a.coreWork.fire()
		}
	})
	a.life.start(a.runRole)
	if a.n.runsMysqld() {
		a.life.start(a.runWatch)
		a.life.start(func() { _ = a.marker.Run(context.Background()) })
		a.life.start(a.runLagBound)
	}
	a.life.start(a.runGossip)
	a.life.start(func() { _ = a.newPurger().Run(context.Background()) })
	if a.w.stateChanges() {
		a.life.start(a.runState)
	}
	if a.w.membersChange {
		a.life.start(func() { a.n.runDial(a.life, a.board.Members) })
		a.life.start(func() { _ = a.follower.Run(context.Background()) })
	}
	a.life.start(a.runStages)
}

// runRole is the role machine's goroutine: it takes what has happened, from any of its
// sources, and executes what follows.
func (a *agent) runRole() {
	for {
		var sources []func() []role.Input
		if a.ticked {
			sources = append(sources, a.takeTick)
		}
		if len(a.inputs) > 0 {
			sources = append(sources, a.takeInput)
		}
		if a.mail != (mailbox{}) {
			sources = append(sources, a.takeMail)
		}
		if len(sources) == 0 {
			a.life.await(0, &a.coreWork)
			a.life.sleep(a.n.hiccup())
			continue
		}
		batch := sources[a.n.rng.IntN(len(sources))]()
		for _, in := range append([]role.Input{role.Tick{Now: a.n.now() - a.began}}, batch...) {
			if a.step(in) {
				return
			}
		}
	}
}

func (a *agent) takeTick() []role.Input {
	a.ticked = false
	return nil // the role machine sees the time before each input
}

func (a *agent) takeInput() []role.Input {
	in := a.inputs[0]
	a.inputs = a.inputs[1:]
	return []role.Input{in}
}

func (a *agent) takeMail() (batch []role.Input) {
	if a.mail.raft != nil {
		batch = append(batch, *a.mail.raft)
	}
	if a.mail.doubt != nil {
		batch = append(batch, *a.mail.doubt)
	}
	if a.mail.peers != nil {
		batch = append(batch, *a.mail.peers)
	}
	a.mail = mailbox{}
	return batch
}

func (a *agent) input(in role.Input) {
	a.inputs = append(a.inputs, in)
	a.coreWork.fire()
}

func (a *agent) doubt(incarnation uint64, reason string) {
	if a.mail.doubt == nil || a.mail.doubt.Incarnation < incarnation {
		a.mail.doubt = &role.Doubt{Incarnation: incarnation, Reason: reason}
	}
	a.coreWork.fire()
}

// stop is SIGTERM to the agent.
func (a *agent) stop() { a.life.run(func() { a.input(role.Stop{}) }) }

// step steps the role machine once and executes what follows; true after Exit.
func (a *agent) step(in role.Input) bool {
	before := a.role.Phase()
	effects := a.role.Step(in)
	if p := a.role.Phase(); p != before {
		a.n.log("phase", "%s, was %s, term %d: %s", p, before, a.loop.role.Term, a.role.Reason())
	}
	a.board.SetRole(a.role.Role(), a.role.Reason())
	for _, e := range effects {
		a.n.log("effect", "%s", e)
		if e.Kind == role.Exit {
			a.w.sched.after(0, func() { a.exit("stopped") })
			return true
		}
		a.execute(e)
	}
	return false
}

// exit is the end of Run: mysqld first, the peers' listener last.
func (a *agent) exit(why string) {
	if a.n.agent == a {
		a.closeEpoch()
		a.n.killAgent(why)
		a.w.restartAgent(a.n)
	}
}

// execute does one effect, in order.
func (a *agent) execute(e role.Effect) {
	switch e.Kind {
	case role.Cancel:
		a.operations.Cancel(e.Op)
	case role.Serve:
		a.serveTerm = e.Term
		a.board.Wake()
	case role.PlanEnded:
		a.moving = nil
		if e.Reason == "" {
			a.w.plans++
		}
	case role.Unserve:
		a.stopServing()
	case role.CloseTap:
		a.closeEpoch()
	case role.Transfer:
		a.stopServing()
		a.inTurn(func(time.Duration) { a.group.TransferTo(e.Term, e.To) })
	case role.Resign:
		a.inTurn(func(time.Duration) { a.group.Resign(e.Term) })
	default:
		if a.moving != nil && e.Kind == role.CloseWrites {
			a.moving.begin(a.n.now())
		}
		a.operations.Begin(context.Background(), e)
	}
}

// inTurn has a turn do what the role machine wants of consensus.
func (a *agent) inTurn(f func(now time.Duration)) {
	ctx, cancel := a.life.WithTimeout(context.Background(), a.n.timing.election)
	defer cancel()
	a.loop.do(ctx, f)
}

// stopServing ends the service and closes the router's connections to the local mysqld.
func (a *agent) stopServing() {
	if a.serveTerm != 0 || a.epoch.rules().Deposed() {
		a.w.load.closeSessions(a.n)
	}
	a.serveTerm = 0
	a.board.Wake()
}

// endService lets no client's byte into the local mysqld any more. The router closes its
// connections soon, unless they may still be answered.
func (a *agent) endService() {
	if a.serveTerm != 0 && !a.epoch.rules().Answering(0) {
		a.life.after(a.n.hiccup(), func() {
			if !a.serving() {
				a.w.load.closeSessions(a.n)
			}
		})
	}
	a.serveTerm = 0
	a.board.Wake()
}

// serving tells whether the router may pass bytes into the local mysqld (I5).
func (a *agent) serving() bool {
	return a.serveTerm != 0 && a.loop.driver.LeadsAt(a.n.now(), a.n.wall()) && a.loop.role.Term == a.serveTerm
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
	lost := a.epoch.rules().RoleChanged(r, a.serveTerm, a.acksAreCommits())
	if lost.Service {
		a.endService()
	}
	if lost.Tap {
		a.closeEpoch()
	}
	a.mail.raft = &role.RaftChanged{Term: r.Term, Leader: r.Leader, Leading: r.Leading}
	a.coreWork.fire()
}

func (a *agent) onCommit(m consensus.Mark) {
	a.n.check.committed(a)
	a.epoch.rules().Committed(m)
	if a.n.runsMysqld() {
		a.lag.Committed(m, a.n.clock())
	}
}

func (a *agent) onRefused(r consensus.Refusal) {
	a.n.log("refused", "term %d: %v", r.Term, r.Err)
	if e := a.epochOf(r.Term); e != nil {
		a.doubt(e.Incarnation, fmt.Sprintf("a proposal was refused: %v", r.Err))
	}
}

func (a *agent) onStalled(term uint64, took time.Duration) {
	if e := a.epochOf(term); e != nil {
		a.doubt(e.Incarnation, fmt.Sprintf("the log's disk has not answered for %v", took))
	}
}

// onFull tells the role machine that the log takes no entries, or does again (nil).
func (a *agent) onFull(err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	a.n.log("full", "%s", reason)
	a.board.Update(func(s *cluster.NodeStatus) {
		s.LogState, s.LogDetail = cluster.LogOK, reason
		if reason != "" {
			s.LogState = cluster.LogFull
		}
	})
	a.input(role.LogTrouble{Reason: reason})
}

// Callbacks of the transport.

func (a *agent) peerUp(id cluster.NodeID) {
	a.up[id] = true
	a.board.PeerUp(id, true)
}

func (a *agent) peerDown(id cluster.NodeID, refused bool) {
	a.n.log("peer", "n%d is down, refused %t", id, refused)
	a.up[id] = false
	a.board.PeerUp(id, false)
	if refused {
		a.loop.control(func(now time.Duration) { a.group.LeaderGone(now, id) })
	}
}

func (a *agent) receive(m *pb.Message) { a.loop.receive(m) }

// committedLog shows the committed part of the log to package replay.
type committedLog struct {
	*seglog.Log
	group *consensus.Group
}

// ReadCommitted implements replay.CommittedLog.
func (l committedLog) ReadCommitted(index, bytesMax uint64) ([]seglog.Entry, bool, error) {
	return l.group.Committed().Read(l.Log, index, bytesMax)
}

// ReadStage implements replay.CommittedLog.
func (l committedLog) ReadStage(id entry.StageID) (io.ReadCloser, error) {
	r, err := l.OpenStage(id)
	if err != nil {
		return nil, err
	}
	n, _ := r.Bytes()
	return stageReader{io.NewSectionReader(r, 0, n), r}, nil
}

// stageReader reads a stage from its beginning to its end.
type stageReader struct {
	io.Reader
	io.Closer
}

var _ replay.CommittedLog = committedLog{}

// Close implements feed.Log.
func (l committedLog) Close() {}

func (a *agent) committedLog() committedLog { return committedLog{a.log, a.group} }

func (a *agent) committedGTIDs() *gtid.Set { return a.group.Committed().GTIDs() }
