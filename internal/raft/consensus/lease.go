package consensus

import (
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/raft/v3/quorum"
	pb "go.etcd.io/raft/v3/raftpb"
)

// The lease (I5). Each heartbeat interval a leader starts a round. Its heartbeats carry the round's number.
// Each node answers with a promise: for how long, from that heartbeat on, it votes for no other node. A node
// promises by its own settings. The leader uses that promise, or its own settings where they are shorter.
//
// The round travels in the context of raft's heartbeats, behind raft's own part. The promise comes behind the
// round. Raft reads only its own part. A node of an older version sends the context back without a promise.

const (
	raftContextBytes = 8
	roundBytes       = raftContextBytes + 8
	promiseBytes     = roundBytes + 8
)

// Promise is for how long a node votes for nobody but the leader that it has just heard. Raft keeps to the
// leader for electionTicks ticks. Three ticks are subtracted: counted ticks can be early by one period at the
// start and by one more after a stall, and one is spare. One percent is subtracted because clocks may differ by
// that.
func Promise(tick time.Duration, electionTicks int) time.Duration {
	return time.Duration(electionTicks-3) * tick * 99 / 100
}

// lease is what a leader knows of its own lease. It is valid in one term.
type lease struct {
	until clocks
	// rounds are those that wait for a majority. seq is the number of the newest round ever.
	rounds       []round
	seq          uint64
	ticksToRound int
	promises     map[uint64]promise
	// asks are the questions of followers that the next round answers, the newest of each.
	asks []*pb.Message
}

type round struct {
	seq    uint64
	sentAt clocks
}

// promise is what a node has answered in a term: the newest round that it answered, and the shortest time that
// it has promised. The shortest counts because a restart may make it shorter, and answers may overtake each
// other.
type promise struct {
	seq   uint64
	lasts time.Duration
}

// end forgets everything but the number of the last round: an answer to it may still come.
func (l *lease) end() { *l = lease{seq: l.seq, promises: map[uint64]promise{}} }

// LeaseUntil is the boot time until which this node may serve as the leader; 0 = it may not.
func (g *Group) LeaseUntil() time.Duration { return g.lease.until.boot }

// promise is what this node promises by its own settings.
func (g *Group) promise() time.Duration { return Promise(g.cfg.Tick, g.cfg.ElectionTicks) }

func (g *Group) startRound() {
	l := &g.lease
	l.ticksToRound = g.cfg.HeartbeatTicks
	l.seq++
	if len(l.rounds) == roundsMax {
		l.rounds = slices.Delete(l.rounds, 0, 1)
	}
	l.rounds = append(l.rounds, round{seq: l.seq, sentAt: clocks{boot: g.now, wall: g.now + g.ahead}})
	for _, m := range l.asks {
		_ = g.rn.Step(m) // raft.ErrStepPeerNotFound: the node that asked is no member any more
	}
	l.asks = nil
	g.rn.ReadIndex(readContext(contextLease, g.cfg.Self, l.seq)) // its heartbeats go out at once
}

// waitsForRound keeps a question of a follower until the next round. Each read that raft gets costs a heartbeat to
// every peer. The answers to the round's heartbeats confirm all reads that raft got before it.
func (g *Group) waitsForRound(m *pb.Message) bool {
	if m.GetType() != pb.MsgReadIndex || !g.role.Leading || len(m.GetEntries()) != 1 {
		return false
	}
	if c := m.GetEntries()[0].GetData(); len(c) == 0 || barrierKind(c[0]) != contextAsk {
		return false
	}
	l := &g.lease
	l.asks = slices.DeleteFunc(l.asks, func(old *pb.Message) bool { return old.GetFrom() == m.GetFrom() })
	l.asks = append(l.asks, m)
	return true
}

// isOutdone tells whether m is a heartbeat, and one of the later messages to the same node confirms what m would
// confirm, and more.
func isOutdone(m *pb.Message, later []*pb.Message) bool {
	return m.GetType() == pb.MsgHeartbeat && len(m.GetContext()) > 0 && slices.ContainsFunc(later, func(l *pb.Message) bool {
		return l.GetType() == pb.MsgHeartbeat && l.GetTo() == m.GetTo() && len(l.GetContext()) > 0
	})
}

// repeatsRound tells whether m is a heartbeat that says nothing new: the heartbeats of a round go to every peer
// as often. The round of a single voter asks no peer.
func (g *Group) repeatsRound(m *pb.Message) bool {
	return m.GetType() == pb.MsgHeartbeat && len(m.GetContext()) == 0 && g.role.Leading && g.knowsCommitted() &&
		len(g.rn.Status().Config.Voters.IDs()) > 1
}

// Distrust ends the lease. Answers to earlier rounds do not count for the next lease: this machine may have
// stood still.
func (g *Group) Distrust() { g.lease.until, g.lease.rounds = clocks{}, nil }

// stamp adds the newest round to a leader's heartbeat, and this node's promise to an answer to a heartbeat.
func (g *Group) stamp(m *pb.Message) {
	var value uint64
	switch c := len(m.GetContext()); {
	case m.GetType() == pb.MsgHeartbeat && c == raftContextBytes:
		value = g.lease.seq
	case m.GetType() == pb.MsgHeartbeatResp && c == roundBytes:
		value = uint64(g.promise())
	default:
		return
	}
	m.Context = binary.LittleEndian.AppendUint64(slices.Clone(m.GetContext()), value)
}

// promised notes the promise in an answer, if it has one.
func (g *Group) promised(m *pb.Message) bool {
	c := m.GetContext()
	if m.GetType() != pb.MsgHeartbeatResp || len(c) != promiseBytes || !g.role.Leading || m.GetTerm() != g.role.Term {
		return false
	}
	seq, lasts := binary.LittleEndian.Uint64(c[raftContextBytes:]), binary.LittleEndian.Uint64(c[roundBytes:])
	p := promise{seq: seq, lasts: time.Duration(min(lasts, uint64(g.promise())))}
	if before, ok := g.lease.promises[m.GetFrom()]; ok {
		p = promise{seq: max(seq, before.seq), lasts: min(p.lasts, before.lasts)}
	}
	g.lease.promises[m.GetFrom()] = p
	return true
}

// extendLease counts the lease from the newest round that a majority has answered with promises, for the
// shortest promise of any voter. Nobody is elected without the vote of a node of that majority, and each of
// these nodes votes for nobody else for that long.
func (g *Group) extendLease() {
	l := &g.lease
	if !g.role.Leading || len(l.rounds) == 0 || g.transferredTerm == g.role.Term || !g.knowsCommitted() {
		return
	}
	voters := g.rn.Status().Config.Voters
	seq := uint64(voters.CommittedIndex(answeredRounds{g}))
	n := 0
	for n < len(l.rounds) && l.rounds[n].seq <= seq {
		n++
	}
	if n == 0 {
		return
	}
	lasts := g.promise()
	for id := range voters.IDs() {
		if p, ok := l.promises[id]; ok {
			lasts = min(lasts, p.lasts)
		}
	}
	if until := l.rounds[n-1].sentAt.add(lasts); until.boot > l.until.boot {
		l.until = until
	}
	l.rounds = slices.Delete(l.rounds, 0, n)
}

// answeredRounds tells raft's quorum the newest round that each voter has answered.
type answeredRounds struct{ g *Group }

// AckedIndex implements quorum.AckedIndexer.
func (a answeredRounds) AckedIndex(id uint64) (quorum.Index, bool) {
	if id == uint64(a.g.cfg.Self) {
		return quorum.Index(a.g.lease.seq), true
	}
	p, ok := a.g.lease.promises[id]
	return quorum.Index(p.seq), ok
}

var _ quorum.AckedIndexer = answeredRounds{}
