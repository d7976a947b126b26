package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/invariant"
	"github.com/quorate/quorate/internal/seglog"
)

// Bounds of the group.
const (
	// messageBytesMax bounds the entries in one append message. One proposal is
	// never cut, so it is also what a lagging peer is sent at a time.
	messageBytesMax = 1 << 20
	// inflightMessagesMax and inflightBytesMax bound what is under way to one
	// peer. 64 MiB covers 5 Gbit/s over 100 ms.
	inflightMessagesMax = 512
	inflightBytesMax    = 64 << 20
	// uncommittedBytesMax bounds the leader's uncommitted tail; beyond it
	// proposals are held, which blocks the tap.
	uncommittedBytesMax = 64 << 20
	// committedBytesMax bounds the committed entries read from disk for one
	// turn.
	committedBytesMax = 16 << 20
	// roundsMax bounds the read-index rounds that wait for a majority: older
	// ones are forgotten. At one per heartbeat, 64 outlast any election timeout.
	roundsMax = 64
)

// ErrEpochEnded refuses a proposal whose epoch is not in force (any more).
var ErrEpochEnded = errors.New("consensus: the proposal's epoch has ended")

// GroupConfig is what a Group is built from.
type GroupConfig struct {
	Self    cluster.NodeID
	Members []cluster.Member
	// State is the cluster state as it was kept, for a start over this log; nil: no
	// change was ever committed, it is what Members say.
	State *cluster.StatePoint
	// Tick is the time between two calls of Group.Tick.
	Tick time.Duration
	// HeartbeatTicks and ElectionTicks are raft's timing in ticks.
	HeartbeatTicks, ElectionTicks int
	Log                           Log
	// HasStage tells whether the log holds a stage, complete and durable; nil =
	// it never does.
	HasStage func(entry.StageID) bool
	// Fresh says that this is the node's first start ever.
	Fresh bool
	// Promised is the longest election timeout with which this node may have made
	// promises before (Promise); 0 = its own.
	Promised time.Duration
	Logger   *slog.Logger
	// Now is the time of the first call, on the clock of all later ones.
	Now time.Duration
}

// RoleState is the group's volatile state as others need it.
type RoleState struct {
	Term   uint64
	Leader cluster.NodeID // 0 = none known
	// Leading is true while this node is the leader.
	Leading bool
}

// Output is what the shell has to do after a call.
type Output struct {
	// Send goes to peers, at once, in order per peer. Loss is allowed.
	Send []*pb.Message
	// Append goes to the log, in order, each with its responses.
	Append []*pb.Message
	// Role is set when it changed.
	Role *RoleState
	// Committed is true when the commit check went forward.
	Committed bool
	// Refused holds the epoch of each proposal that was refused, with why.
	Refused []Refusal
	// Barriers holds the read barriers that were answered.
	Barriers []Barrier
	// Wanted holds the stages that this node lacks and the leader has named.
	Wanted []Wanted
	// States holds what became of the changes that were committed.
	States []StateOutcome
	// Acknowledge is up to which index a leader may acknowledge, where that went
	// forward: committed, and on the disks that the durability policy names. 0 = it
	// did not. AckEvents holds whose require-ack was dropped, or taken back.
	Acknowledge uint64
	AckEvents   []cluster.AckEvent
}

// Wanted is a stage to be fetched: from the node that named it, or any other.
type Wanted struct {
	entry.Staged
	From cluster.NodeID
}

// Refusal says which epoch's proposal was refused.
type Refusal struct {
	Term uint64
	Err  error
}

// Barrier is the answer to a read barrier: everything that was committed
// anywhere when it was asked for has an index of at most Index.
type Barrier struct {
	ID    uint64
	Index uint64
}

// Group drives one raft.RawNode. It is not safe for concurrent use.
type Group struct {
	cfg       GroupConfig
	rn        *raft.RawNode
	storage   *storage
	committed *Committed
	role      RoleState

	// last is the index of the newest entry that was given to the log, or sent to
	// anybody, whether it is on disk or not.
	last uint64

	// asked holds the term in which a peer was last asked for what is purged.
	asked map[uint64]uint64

	// The proposal gate. epoch is the term whose epoch entry was accepted, 0 =
	// none; next is the number that it takes next. held is the proposal that
	// raft dropped; while it is there nothing else is taken.
	epoch, next uint64
	held        []byte
	heldHeader  entry.Header

	lease lease
	ahead time.Duration // by how much the wall clock was before the boot clock at the last tick
	// now is the time of the newest call that came with one.
	now time.Duration
	// barriers are this leader's own, asked for before it knew what is committed.
	barriers        []uint64
	transferredTerm uint64 // no lease in this term any more: a transfer was asked for

	// heardAt is when a message came from a node last, by the host's time: acks.heard
	// counts this node's own ticks, and forgets at the end of a term. membersTerm is the term in
	// which this leader proposed a change of the members that is not applied; 0 =
	// none.
	heardAt     map[cluster.NodeID]time.Duration
	membersTerm uint64

	// fed holds the learners that their sources feed now.
	fed map[uint64]bool

	// acks holds back what is committed and may not be acknowledged.
	acks acks
	// notices tell followers of commits.
	notices notices
	stored  storedState

	// voteAfter is when a restarted node may vote again (I5).
	voteAfter time.Duration
	// silence counts the ticks since the leader was heard.
	silence int
	// campaignAt is when to campaign because the leader's process is gone; 0 = not.
	campaignAt time.Duration

	out Output
}

// NewGroup builds a Group from what the log holds. It does no I/O but reading
// the log.
func NewGroup(cfg GroupConfig) (*Group, error) {
	if cfg.HasStage == nil {
		cfg.HasStage = func(entry.StageID) bool { return false }
	}
	point, err := firstPoint(cfg)
	if err != nil {
		return nil, err
	}
	cfg.Members = point.State.Members
	applied, gtids := replayPoint(cfg.Log, point.Through)
	g := &Group{
		cfg:       cfg,
		storage:   newStorage(cfg.Log, point),
		committed: newCommitted(applied, gtids),
		last:      cfg.Log.LastIndex(),
		heardAt:   map[cluster.NodeID]time.Duration{},
		asked:     map[uint64]uint64{},
		stored:    storedState{HardState: cfg.Log.HardState()},
		fed:       map[uint64]bool{},
	}
	g.lease.end()
	g.notices.end()
	g.committed.setState(point)
	g.acks = newAcks(point.State)
	if !cfg.Fresh {
		g.voteAfter = cfg.Now + max(cfg.Promised, time.Duration(cfg.ElectionTicks)*cfg.Tick)
	}
	rn, err := raft.NewRawNode(&raft.Config{
		ID:                        uint64(cfg.Self),
		ElectionTick:              cfg.ElectionTicks,
		HeartbeatTick:             cfg.HeartbeatTicks,
		Storage:                   g.storage,
		Applied:                   applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             messageBytesMax,
		MaxCommittedSizePerReady:  committedBytesMax,
		MaxUncommittedEntriesSize: uncommittedBytesMax,
		MaxInflightMsgs:           inflightMessagesMax,
		MaxInflightBytes:          inflightBytesMax,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{cfg.Logger},
	})
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	g.rn = rn
	return g, nil
}

// Committed is the commit check, readable by everybody.
func (g *Group) Committed() *Committed { return g.committed }

// LastIndex is the index of the newest entry that this node has stepped. A
// follower may have it on disk before this node has.
func (g *Group) LastIndex() uint64 { return g.last }

// Role returns the current state.
func (g *Group) Role() RoleState { return g.role }

// Tick tells the group that one tick has passed.
func (g *Group) Tick(now time.Duration) {
	g.now = now
	g.tickRaft()
	g.observe()
	g.tickAcks()
	g.tickJoint()
	g.tickStored()
	if g.campaignAt != 0 && now >= g.campaignAt {
		g.campaignAt = 0
		if g.role.Leader == 0 {
			g.campaign()
		}
	}
	if g.role.Leading {
		g.lease.ticksToRound--
		if g.lease.ticksToRound <= 0 && g.knowsCommitted() {
			g.startRound()
		}
	}
	g.retryHeld()
}

// Step takes a message from a peer or a response of the log.
func (g *Group) Step(now time.Duration, m *pb.Message) {
	g.now = now
	g.heardAt[cluster.NodeID(m.GetFrom())] = now
	g.acks.heardOf(cluster.NodeID(m.GetFrom()))
	if now < g.voteAfter && (m.GetType() == pb.MsgVote || m.GetType() == pb.MsgPreVote) {
		return // I5: it may have promised a lease before it restarted
	}
	if m.GetType() == pb.MsgTimeoutNow && now < g.voteAfter {
		return
	}
	if m.GetType() == pb.MsgVote && string(m.GetContext()) == raftCampaignTransfer && !g.mayForce(m) {
		return // I5: a live leader's lease may rest on this node
	}
	if g.saysNothing(m) || g.answersInVain(m) {
		return
	}
	if m.GetType() == pb.MsgReadIndex && g.role.Leading && !g.knowsCommitted() {
		return // a single voter would answer a learner at once
	}
	if m.GetType() == pb.MsgApp && len(m.GetEntries()) > 0 {
		if m = g.cutBeforeMissingStage(m); m == nil {
			return
		}
	}
	g.heard(m)
	g.mustHave(m)
	g.noteStep(m)
	promised := g.promised(m)
	// raft.ErrStepPeerNotFound is the only error here: a response from a node
	// that is no member. The transport refuses such peers already.
	step := func() { _ = g.rn.Step(m) }
	if g.role.Leading && m.GetTerm() == g.role.Term {
		g.storage.send(func() {
			if m.GetType() == pb.MsgHeartbeatResp {
				g.returnToLog(m.GetFrom())
			}
			step()
		})
	} else {
		step()
	}
	g.observe()
	if promised {
		g.extendLease()
	}
	g.retryHeld()
}

// SendMore has raft send again what it had to leave, because it was not in
// memory: Log says that now some of it is. To raft each peer that it heard of
// lately, and whose answer it does not wait for, has answered its last heartbeat
// once more, which changes nothing else.
func (g *Group) SendMore() {
	if !g.role.Leading {
		return
	}
	var behind []uint64
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id != uint64(g.cfg.Self) && p.RecentActive && !p.IsPaused() && p.Next <= g.last {
			behind = append(behind, id)
		}
	})
	self := uint64(g.cfg.Self)
	g.storage.send(func() {
		for _, id := range behind {
			_ = g.rn.Step(&pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: &id, To: &self, Term: new(g.role.Term)})
		}
	})
	g.observe()
}

// saysNothing tells whether m is raft's answer to a message of an earlier term,
// and of no later one than this node's. All that it can do is to bring its term;
// a leader of that very term would take it for the answer to its probe: the peer
// has everything up to index 0, send the log from entry 1. True answers have a
// higher index: an append without entries is never sent behind index 0.
func (g *Group) saysNothing(m *pb.Message) bool {
	return m.GetType() == pb.MsgAppResp && !m.GetReject() && m.GetIndex() == 0 && m.GetTerm() <= g.role.Term
}

// returnToLog helps raft where it would go on for a peer, which has just answered,
// at an entry that is purged: there is no snapshot, so it would send nothing more
// in this term. It comes to that when an answer was lost: of what the peer has,
// raft knows the part that it was told, and goes back to its end when messages
// are dropped; a purge knows what the peer's status says (replay.Needs).
//
// The peer is asked whether it has the last entry that is purged, as raft asks. It
// should: each member had that committed, on its disk. Its yes takes raft there; a
// no, of one that lost its log, changes nothing.
func (g *Group) returnToLog(peer uint64) {
	first := g.cfg.Log.FirstIndex()
	if first <= 1 {
		return // nothing was purged
	}
	purged, self := first-1, uint64(g.cfg.Self)
	lost := false
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		lost = lost || id == peer && id != self && pr.Next <= purged
	})
	if !lost {
		return
	}
	term, err := g.cfg.Log.Term(purged)
	if err != nil {
		return // purged further meanwhile: at the next answer
	}
	if g.asked[peer] != g.role.Term {
		g.asked[peer] = g.role.Term
		g.cfg.Logger.Warn("a peer is looked for before the log's beginning: asked whether it has what was purged", "peer", peer, "first", first)
	}
	g.out.Send = append(g.out.Send, &pb.Message{
		Type: pb.MsgApp.Enum(), To: &peer, From: &self, Term: new(g.role.Term),
		Index: &purged, LogTerm: &term, Commit: new(purged),
	})
}

// cutBeforeMissingStage keeps an entry from raft that names a stage which this
// node lacks. Raft counts an entry from the moment that it is stepped: a node
// could win an election by an entry that it can never append. The leader sends
// the rest again; nothing is left = nil, so that it does so at its heartbeats
// and not at once, over and over.
func (g *Group) cutBeforeMissingStage(m *pb.Message) *pb.Message {
	if m.GetTerm() < g.role.Term {
		return m // raft refuses it
	}
	committed := g.committed.Mark().Index
	for i, e := range m.GetEntries() {
		staged, ok := stagedOf(e)
		if !ok || e.GetIndex() <= committed || g.cfg.HasStage(staged.ID) {
			continue
		}
		g.out.Wanted = append(g.out.Wanted, Wanted{Staged: staged, From: cluster.NodeID(m.GetFrom())})
		if i == 0 {
			return nil
		}
		return &pb.Message{
			Type: m.Type, To: m.To, From: m.From, Term: m.Term, LogTerm: m.LogTerm, Index: m.Index,
			Commit: m.Commit, Entries: m.GetEntries()[:i],
		}
	}
	return m
}

// stagedOf returns what an entry names, if it is a naming entry.
func stagedOf(e *pb.Entry) (entry.Staged, bool) {
	if e.GetType() != pb.EntryNormal {
		return entry.Staged{}, false
	}
	return entry.StagedIn(e.GetData()) // a malformed one is for the commit check
}

// raftCampaignTransfer is raft's mark of a vote that ignores leases
// (campaignTransfer in its raft.go).
const raftCampaignTransfer = "CampaignTransfer"

// mayForce tells whether a vote request may ignore the lease of the leader that
// this node knows: only if that leader has given it up, by a transfer (the term
// after its own) or by resigning (the second term after its own, itself).
func (g *Group) mayForce(m *pb.Message) bool {
	return g.role.Leader == 0 || m.GetTerm() == g.role.Term+1 ||
		m.GetTerm() == g.role.Term+2 && cluster.NodeID(m.GetFrom()) == g.role.Leader
}

// VotesAt is when this node, restarted, votes and stands for election again (I5). A transfer
// to it before is lost. It never changes.
func (g *Group) VotesAt() time.Duration { return g.voteAfter }

// Propose offers one entry to the gate; refusals come back in Output.Refused.
// Ready must be drained before the next call when Blocked is true.
func (g *Group) Propose(data []byte) {
	invariant.Check(g.held == nil, "I2", "a proposal passes the one that is held")
	h, body, err := entry.Parse(data)
	if err == nil && h.Kind == entry.KindState {
		err = errors.New("a change of the cluster state is of no epoch")
	}
	if err != nil || h.Kind == entry.KindEmpty {
		g.refuse(h.Term, fmt.Errorf("parse proposal: %w", errors.Join(err, entry.ErrMalformed)))
		return
	}
	// What the commit check would panic on at every node is refused here, where
	// it fences one primary.
	if err := g.committed.admits(h, body); err != nil {
		g.refuse(h.Term, fmt.Errorf("check proposal: %w", err))
		return
	}
	if id := (entry.StageID{Term: h.Term, Number: h.Number}); h.Kind == entry.KindStaged && !g.cfg.HasStage(id) {
		g.refuse(h.Term, fmt.Errorf("check proposal: this node lacks stage %s", id))
		return
	}
	if err := g.admit(h); err != nil {
		g.refuse(h.Term, err)
		return
	}
	g.submit(h, data)
}

// admit is the gate of I2: the epoch in force and the next number, or the
// entry that opens this term's epoch.
func (g *Group) admit(h entry.Header) error {
	switch {
	case !g.role.Leading || h.Term != g.role.Term:
		return fmt.Errorf("%w: it is of term %d, this node is in term %d (leader: %t)",
			ErrEpochEnded, h.Term, g.role.Term, g.role.Leading)
	case h.Kind == entry.KindEpoch && g.epoch == g.role.Term:
		return fmt.Errorf("%w: term %d has its epoch already", ErrEpochEnded, h.Term)
	case h.Kind == entry.KindEpoch && h.Number == 0:
		return nil
	case g.epoch != g.role.Term:
		return fmt.Errorf("%w: no epoch is open in term %d", ErrEpochEnded, h.Term)
	case h.Number != g.next:
		return fmt.Errorf("%w: number %d where %d comes next", ErrEpochEnded, h.Number, g.next)
	}
	return nil
}

func (g *Group) submit(h entry.Header, data []byte) {
	var err error
	g.storage.send(func() { err = g.rn.Propose(data) })
	if err != nil {
		// Dropped: nothing was appended. Hold it; the epoch's end refuses it.
		g.held, g.heldHeader = data, h
		return
	}
	g.held = nil
	if h.Kind == entry.KindEpoch {
		g.epoch, g.next = h.Term, 1
		return
	}
	g.next++
}

// Blocked tells that a proposal is held and no other may be offered.
func (g *Group) Blocked() bool { return g.held != nil }

func (g *Group) retryHeld() {
	if g.held == nil {
		return
	}
	h, data := g.heldHeader, g.held
	g.held = nil
	if err := g.admit(h); err != nil {
		g.refuse(h.Term, err)
		return
	}
	g.submit(h, data)
}

func (g *Group) refuse(term uint64, err error) {
	g.out.Refused = append(g.out.Refused, Refusal{Term: term, Err: err})
}

// observe notes a change of role. It runs after every input, so that a leader
// that loses and regains leadership within one turn is seen to have changed
// its term before the next proposal is admitted.
func (g *Group) observe() {
	st := g.rn.BasicStatus()
	now := RoleState{
		Term:    st.GetTerm(),
		Leader:  cluster.NodeID(st.Lead),
		Leading: st.RaftState == raft.StateLeader,
	}
	if now == g.role {
		return
	}
	invariant.Check(now.Term >= g.role.Term, "term", "term went back from %d to %d", g.role.Term, now.Term)
	if !now.Leading || now.Term != g.role.Term {
		g.epoch, g.next = 0, 0
		g.endAcks()
		clear(g.fed)
		g.lease.end()
		g.notices.end()
		g.barriers = nil
	}
	if now.Leader != 0 {
		g.campaignAt = 0
	}
	g.role = now
	g.out.Role = &now
}

// TransferTo hands leadership of a term to a peer; in another term it does
// nothing. The lease ends now and does not come back in this term: the peer may
// be elected at any moment from here on, by votes that ignore the lease.
func (g *Group) TransferTo(term uint64, id cluster.NodeID) {
	if !g.role.Leading || g.role.Term != term {
		return
	}
	g.transferredTerm, g.lease.until = g.role.Term, clocks{}
	g.waitedFor(g.last)
	g.tellCommits() // before raft has the peer stand for election
	g.notices.asked[uint64(id)] = true
	g.storage.send(func() { g.rn.TransferLeader(uint64(id)) })
	g.observe()
}

// Resign steps down into the next term without a successor and stands for
// election at once: the way to a new epoch on the same node. To raft the first
// is a message of a higher term, as it comes from any peer, and the second a
// transfer to itself: its voters need not wait for a lease that it gave up. In
// another term than the given one it does nothing.
func (g *Group) Resign(term uint64) {
	if !g.role.Leading || g.role.Term != term {
		return
	}
	g.lease.until = clocks{}
	self := uint64(g.cfg.Self)
	next := g.role.Term + 1
	_ = g.rn.Step(&pb.Message{Type: pb.MsgAppResp.Enum(), From: &self, To: &self, Term: &next})
	g.observe()
	_ = g.rn.Step(&pb.Message{Type: pb.MsgTimeoutNow.Enum(), From: &self, To: &self, Term: &next})
	g.observe()
}

// LeaderGone says that a fresh dial to a peer was refused: its process is dead
// while its host lives. So no change of the members counts on it until it is heard
// again. If it was the leader, it is forgotten, and this node campaigns after a
// stagger that depends on its rank among the rest, so that two survivors do not
// split the vote.
func (g *Group) LeaderGone(now time.Duration, id cluster.NodeID) {
	delete(g.heardAt, id)
	if g.role.Leader != id || g.role.Leading {
		return
	}
	_ = g.rn.ForgetLeader()
	g.observe()
	rank := g.rank(id)
	g.campaignAt = now + time.Duration(rank*g.cfg.HeartbeatTicks)*g.cfg.Tick
	if rank == 0 {
		g.campaignAt = 0
		g.campaign()
	}
}

func (g *Group) campaign() {
	// Its error says that this node is leader already.
	_ = g.rn.Campaign()
	g.observe()
}

// Unreachable tells raft that messages to a peer were dropped.
func (g *Group) Unreachable(id cluster.NodeID) {
	g.notices.lost(uint64(id))
	g.rn.ReportUnreachable(uint64(id))
}

const (
	contextLease   = 'L'
	contextBarrier = 'B'
)

func readContext(kind byte, self cluster.NodeID, seq uint64) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{kind}, uint64(self))
	return binary.LittleEndian.AppendUint64(b, seq)
}

// knowsCommitted tells whether this leader has committed an entry of its term: what
// was committed before, it may not know until then. Raft keeps what is read before
// that, without a bound, and answers all of it at once; so it is not given any.
func (g *Group) knowsCommitted() bool { return g.committed.term() == g.role.Term }

// startReads begins what waited for a leader to know what is committed: the
// first round, and barriers.
func (g *Group) startReads() {
	g.startRound()
	for _, id := range g.barriers {
		g.StartBarrier(id)
	}
	g.barriers = nil
}

// StartBarrier asks a majority, through the leader, for an index up to which
// everything is committed. The answer comes in Output.Barriers, or never: the
// caller asks again after a time with another id.
func (g *Group) StartBarrier(id uint64) {
	if g.role.Leading && !g.knowsCommitted() {
		if len(g.barriers) < barriersMax && !slices.Contains(g.barriers, id) {
			g.barriers = append(g.barriers, id)
		}
		return
	}
	g.rn.ReadIndex(readContext(contextBarrier, g.cfg.Self, id))
}

func (g *Group) readState(rs raft.ReadState) {
	if len(rs.RequestCtx) != 17 {
		return
	}
	seq := binary.LittleEndian.Uint64(rs.RequestCtx[9:])
	if rs.RequestCtx[0] == contextBarrier {
		g.out.Barriers = append(g.out.Barriers, Barrier{ID: seq, Index: rs.Index})
		return
	}
	g.extendLease() // a single voter has nobody to answer
}

// Ready returns what has to be done after the calls since the last Ready. The
// shell calls it again until it returns ok=false.
func (g *Group) Ready() (out Output, ok bool) {
	if g.rn.HasReady() {
		rd := g.rn.Ready()
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				if es := m.GetEntries(); len(es) > 0 {
					g.last = es[len(es)-1].GetIndex()
				}
				if g.mustStore(m) {
					g.out.Append = append(g.out.Append, m)
				}
			case raft.LocalApplyThread:
				g.apply(m)
			default:
				if isNotice(m) || g.repeatsRound(m) || g.leavesToSource(m) || g.saysCommitOnly(m) {
					continue
				}
				g.stamp(m)
				g.noteSent(m)
				g.out.Send = append(g.out.Send, m)
			}
		}
		for _, rs := range rd.ReadStates {
			g.readState(rs)
		}
		ok = true
	}
	g.observe()
	g.tellCommits()
	g.storeCommit()
	g.out.Acknowledge = g.acknowledge()
	out, g.out = g.out, Output{}
	acks := out.Acknowledge > 0 || len(out.AckEvents) > 0
	return out, ok || acks || out.Role != nil || len(out.Refused) > 0 || len(out.Send) > 0 || len(out.Append) > 0 || len(out.Wanted) > 0
}

// apply runs the commit check over committed entries and tells raft so.
func (g *Group) apply(m *pb.Message) {
	knew := g.knowsCommitted()
	for _, e := range m.GetEntries() {
		before := g.committed.Mark().Transactions
		if e.GetType() != pb.EntryNormal {
			g.applyMembers(e)
		} else {
			g.stateCommitted(g.committed.apply(e.GetIndex(), e.GetTerm(), e.GetData()))
		}
		if g.committed.Mark().Transactions == before { // an epoch, a change: what nodes wait for
			g.waitedFor(e.GetIndex())
			g.stored.due = true
		}
	}
	g.out.Committed = true
	for _, r := range m.GetResponses() {
		_ = g.rn.Step(r)
	}
	if g.role.Leading && !knew && g.knowsCommitted() {
		g.startReads()
	}
}

// raftLogger passes raft's own log on: its information is our debug.
type raftLogger struct{ l *slog.Logger }

func (r raftLogger) Debug(v ...any)                   {}
func (r raftLogger) Debugf(format string, v ...any)   {}
func (r raftLogger) Info(v ...any)                    { r.l.Debug(fmt.Sprint(v...)) }
func (r raftLogger) Infof(format string, v ...any)    { r.l.Debug(fmt.Sprintf(format, v...)) }
func (r raftLogger) Warning(v ...any)                 { r.l.Debug(fmt.Sprint(v...)) }
func (r raftLogger) Warningf(format string, v ...any) { r.l.Debug(fmt.Sprintf(format, v...)) }
func (r raftLogger) Error(v ...any)                   { r.l.Warn(fmt.Sprint(v...)) }
func (r raftLogger) Errorf(format string, v ...any)   { r.l.Warn(fmt.Sprintf(format, v...)) }
func (r raftLogger) Fatal(v ...any)                   { r.Panic(v...) }
func (r raftLogger) Fatalf(format string, v ...any)   { r.Panicf(format, v...) }
func (r raftLogger) Panic(v ...any) {
	panic(invariant.Violation{Name: "raft", Detail: fmt.Sprint(v...)})
}
func (r raftLogger) Panicf(format string, v ...any) { r.Panic(fmt.Sprintf(format, v...)) }

// ensure that the durable log fits.
var _ Log = (*seglog.Log)(nil)
