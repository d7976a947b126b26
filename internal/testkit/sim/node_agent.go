package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quorate/quorate/internal/agent/freshness"
	"github.com/quorate/quorate/internal/agent/member"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/role"
)

// These are the times of package agent.
const (
	watchInterval    = primary.WatchInterval
	promotionTimeout = 30 * time.Second
)

// These are the timings of package consensus and of the default settings. A node may have others: see timing.
const (
	ticksPerHeartbeat = 4
	raftTick          = 25 * time.Millisecond
	electionTimeout   = time.Second
	heartbeatInterval = ticksPerHeartbeat * raftTick
)

// agent is one run of a node's agent process, while the node is a member of the cluster.
type agent struct {
	*host
	member.Member

	log   *seglog.Log
	disk  *writtenLog        // as raft uses it
	point cluster.StatePoint // the state that was last reported
	began time.Duration

	epoch        *epoch // the one whose tap was connected last
	stateChanged signal
	// up are the peers to which the transport has a connection.
	up     map[cluster.NodeID]bool
	pacing pacing
	// conns holds the peers' processes to which this one has a connection.
	conns   map[cluster.NodeID]*agent
	readers map[connection]*reader
	// leaderAt is since when the agent knows its leader.
	leaderAt     time.Duration
	process      *mysqld // nil = none
	feed         *feedSession
	feedCounters mysqlwire.FeedCounters
	reads        replicaReads
}

// newAgent opens the agent's log and small files, as the product's agent does at its start.
func newAgent(n *node) (*agent, error) {
	n.retime()
	p, err := n.newHost(cluster.State{})
	if err != nil {
		return nil, err
	}
	a := &agent{host: p, began: n.now(), up: map[cluster.NodeID]bool{}, conns: map[cluster.NodeID]*agent{}, readers: map[connection]*reader{}}
	a.departing = a.newDeparting()
	a.reads.heard = freshness.NewHeard(readsClock{late{a.life}})
	a.Init(a.memberConfig())
	a.Heard.Load(n.home.Dir, n.logger("purge"))
	if err := n.home.CheckLog(); err != nil {
		return nil, err
	}
	if a.log, err = seglog.Open(n.logOptions(true)); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	a.disk = &writtenLog{Log: a.log, a: a}
	if n.w.readsAhead {
		a.disk.Log = &aheadLog{Log: a.log, a: a, news: make(chan struct{}, 1)}
	}
	err = a.Open(a.log, consensus.Config{
		Members: n.w.members()[:n.w.initialNodes], State: a.startState(), Machine: raftMachine{late{a.life}, a.disk}, Log: a.disk,
		Heartbeat: ticksPerHeartbeat * n.timing.tick, ElectionTimeout: n.timing.election, Logger: slog.New(slog.DiscardHandler),
		Send: a.send, OnRole: a.onRole, OnCommit: a.onCommit, OnState: func(consensus.StateOutcome) { a.stateChanged.fire() },
		OnAcknowledge: func(index uint64) { n.check.released(a, index) }, OnAckEvent: a.onAckEvent,
		OnRefused: func(r consensus.Refusal) { n.log("refused", "term %d: %v", r.Term, r.Err) }, OnBroken: a.onBroken,
	}, n.copies(a.life))
	if err != nil {
		return nil, errors.Join(err, a.log.Close())
	}
	a.Follower.Follow(a.Raft.Committed().State(), true)
	return a, nil
}

// memberConfig returns what package member needs, made of the simulated world.
func (a *agent) memberConfig() member.Config {
	n := a.n
	slow := func(do func() error) error {
		if a.Raft == nil {
			return do() // the agent is still being opened
		}
		return n.write(a.life, do)
	}
	return member.Config{
		Self: n.member, Home: n.home, Known: a.known, Board: a.board, Stance: a.stance, Departing: a.departing, State: &a.kept,
		Process: mysqldProcess{a}, Host: mysqldHost{a}, Peers: followed{a},
		Slot: primary.SlotConfig{
			Local: a.local, Own: a.ownEpoch, Raft: func() primary.Raft { return proposer{a.Raft, a} }, Clients: clients{a}, Clock: a.life,
		},
		Inbox:  primary.InboxConfig{Clock: late{a.life}, Pick: n.rng.IntN},
		Shell:  primary.Shell{Stepped: a.stepped, Began: a.effect, Ended: a.operated},
		Purger: retention.Config{Log: purgedLog{a}, Retention: replay.Retention{BytesMax: a.w.options.RetentionBytes}, Every: purgeEvery},
		Marker: retention.MarkerConfig{Mysqld: a.markedMysqld, Marks: marks{a}, Every: durableEvery},
		Paced:  a.paced, OpenLog: a.committedLog, Status: a.ownStatus,
		WriteState:   func(p cluster.StatePoint) error { return slow(func() error { return a.kept.Write(p) }) },
		WritePromise: func(own time.Duration) error { return slow(func() error { return n.home.WritePromise(own) }) },
		MysqldDir:    "mysql", ElectionTimeout: n.timing.election, ElectionTimeoutMax: electionTimeoutMax,
		Promotion: n.w.promotionTimeout(), MaxApplyLag: n.w.maxApplyLag, Clock: a.life, Now: n.clock, Logger: n.logger("agent"),
	}
}

// run starts the agent's goroutines.
func (a *agent) run() {
	a.disk.slow = true
	for _, run := range append(a.Loops(), a.Bulk.Run) {
		a.life.start(func() { a.n.check.damaged(a, run(context.Background())) })
	}
	a.life.start(func() {
		err := a.Raft.Run(context.Background())
		a.w.sched.after(0, func() { a.exit(err.Error()) })
	})
	a.life.start(func() {
		_ = a.RunRole(context.Background()) // it returns only after Exit
		a.w.sched.after(0, func() { a.exit("stopped") })
	})
	a.life.start(a.runGossip)
	a.life.start(a.runReads)
	a.life.start(a.runState)
	a.life.start(a.runDial)
}

// stepped is called for each step of the role machine, before the effects of the step.
func (a *agent) stepped(m *role.Machine, _ role.Input, before role.Phase, _ []role.Effect) {
	if p := m.Phase(); p != before {
		a.n.log("phase", "%s, was %s, term %d: %s", p, before, a.Raft.Role().Term, m.Reason())
	}
}

func (a *agent) effect(e role.Effect) {
	a.n.log("effect", "%s", e)
	if e.Kind == role.CloseTap {
		a.epoch.ends()
	}
}

// operated is called when an operation of the role machine has ended.
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

func (a *agent) input(in role.Input) { a.Inbox.Put(context.Background(), in) }

// stop does what SIGTERM does to the agent.
func (a *agent) stop() { a.life.run(func() { a.input(role.Stop{}) }) }

// exit ends the agent when Run has returned: mysqld first, the connections with the peers last.
func (a *agent) exit(why string) {
	if a.n.agent == a {
		a.Slot.Close()
		a.n.killAgent(why)
		a.w.restartAgent(a.n)
	}
}

// Raft calls the following in a turn. They must not block.

func (a *agent) onRole(r consensus.RoleState) {
	a.n.log("raft", "term %d, leader %d, leading %t", r.Term, r.Leader, r.Leading)
	if r.Leader != a.board.Own().Leader {
		a.leaderAt = a.n.now()
	}
	if r.Leader != 0 && a.w.losses != nil {
		a.w.losses.takesPart(a)
	}
	if r.Leading {
		a.n.check.leads(a)
	}
	if r.Leading && (!a.n.runsMysqld() || a.n.member.Weight == 0) {
		a.w.ledInNeed++
	}
}

func (a *agent) onCommit(consensus.Mark) {
	a.n.check.committed(a)
	if p := a.Raft.Committed().State(); a.w.membersChange && p.Index != a.point.Index {
		a.steps(a.point, p)
		a.point = p
		a.stateChanged.fire()
	}
}

// The following is called by the transport.

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
		a.life.Go(func() { a.Raft.PeerRefused(id) })
	}
}

// committedLog returns a reader of the committed part of the log.
func (a *agent) committedLog() feed.Reader {
	return feed.Reader{Log: a.log, Committed: a.Raft.Committed(), Entries: a.log, Damaged: func(err error) { a.n.check.damaged(a, err) }}
}
