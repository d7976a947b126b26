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
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// Bounds of the group.
const (
	// messageBytesMax bounds the entries in one append message. A single proposal is never cut. So it also
	// bounds what a lagging peer is sent at a time.
	messageBytesMax = 1 << 20
	// inflightMessagesMax and inflightBytesMax bound what is under way to one
	// peer. 64 MiB covers 5 Gbit/s over 100 ms.
	inflightMessagesMax = 512
	inflightBytesMax    = 64 << 20
	// uncommittedBytesMax bounds the leader's uncommitted tail; beyond it
	// proposals are blocked, and so is the tap.
	uncommittedBytesMax = 64 << 20
	// committedBytesMax bounds the committed entries read from disk for one
	// turn.
	committedBytesMax = 16 << 20
	// roundsMax bounds the read-index rounds that wait for a majority: older rounds are forgotten. There is one
	// round per heartbeat, so 64 rounds last longer than any election timeout.
	roundsMax = 64
)

// ErrEpochEnded refuses a proposal whose epoch is not in force, or is not in force any more.
var ErrEpochEnded = errors.New("consensus: the proposal's epoch has ended")

// GroupConfig is what a Group is built from.
type GroupConfig struct {
	Self    cluster.NodeID
	Members []cluster.Member
	// State is the cluster state that was kept for a start over this log; nil: no change was ever committed, so
	// the state follows from Members.
	State *cluster.StatePoint
	// Tick is the time between two calls of Group.Tick.
	Tick time.Duration
	// HeartbeatTicks and ElectionTicks are raft's timing in ticks.
	HeartbeatTicks, ElectionTicks int
	Log                           Log
	// HasStage tells whether the log holds a stage, complete and durable; nil = the log never holds a stage.
	HasStage func(entry.StageID) bool
	// Fresh says that this is the node's first start ever.
	Fresh bool
	// Promised is the longest election timeout that this node may have used for its promises before this start
	// (Promise); 0 = its own.
	Promised time.Duration
	Logger   *slog.Logger
	// Now is the time of the first call, on the clock of all later ones.
	Now time.Duration
}

// RoleState is the group's volatile state as other packages need it.
type RoleState struct {
	Term   uint64
	Leader cluster.NodeID // 0 = none known
	// Leading is true while this node is the leader.
	Leading bool
}

// Leads tells whether this node leads in a term.
func (r RoleState) Leads(term uint64) bool { return r.Leading && r.Term == term }

// LedBy tells whether node id leads in a term, as far as this node knows.
func (r RoleState) LedBy(id cluster.NodeID, term uint64) bool {
	return r.Leader == id && r.Term == term
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
	// Refused holds the refused proposals: the epoch of each, and the reason.
	Refused []Refusal
	// Barriers holds the read barriers that were answered.
	Barriers []Barrier
	// Wanted holds the stages that this node lacks and the leader has named.
	Wanted []Wanted
	// States holds the outcomes of the committed changes of the cluster state.
	States []StateOutcome
	// Acknowledge is the index up to which a leader may acknowledge now: committed, and on the disks that the
	// durability policy names. 0 = no change. AckEvents holds the members whose require-ack was dropped, or
	// restored.
	Acknowledge uint64
	AckEvents   []cluster.AckEvent
	// Broken holds the peers that sent a message that was refused.
	Broken []Broken
}

// Wanted is a stage to be fetched: from the node that named it, or any other.
type Wanted struct {
	entry.Staged
	From cluster.NodeID
}

// Refusal is a refused proposal: its epoch and the reason.
type Refusal struct {
	Term uint64
	Err  error
}

// Barrier is the answer to a read barrier: everything that was committed anywhere when the barrier was asked
// for has an index of at most Index.
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

	// last is the index of the newest entry that was given to the log, or sent to a peer. It need not be on
	// disk.
	last uint64

	// asked holds, for each peer, the term in which that peer was last asked for entries that are purged.
	asked map[uint64]uint64

	// The proposal gate. epoch is the term whose epoch entry was accepted, 0 = none. next is the next number of
	// that epoch. blocked is the proposal that raft dropped. While it is there no other proposal is taken.
	epoch, next   uint64
	blocked       []byte
	blockedHeader entry.Header

	lease lease
	ahead time.Duration // by how much the wall clock was before the boot clock at the last tick
	// now is the time of the newest call that came with one.
	now time.Duration
	// barriers are read barriers of this node itself, asked for while it led and did not know yet what is
	// committed.
	barriers        []uint64
	transferredTerm uint64 // no lease in this term any more: a transfer was asked for

	// heardAt is when the last message of each node came, by the host's clock. (acks.heard counts this node's
	// own ticks, and forgets them at the end of a term.) membersTerm is the term in which this leader proposed
	// a change of the members that is not applied yet; 0 = none.
	heardAt     map[cluster.NodeID]time.Duration
	membersTerm uint64

	// fed holds the learners that get entries from their sources now.
	fed map[uint64]bool

	// acks holds back committed entries that may not be acknowledged yet.
	acks acks
	// notices tell followers about commits.
	notices notices
	stored  storedState
	guard   guard

	// voteAfter is when a restarted node may vote again (I5).
	voteAfter time.Duration
	// silence counts the ticks since the leader was heard.
	silence int
	// campaignAt is when to campaign because the leader's process is gone; 0 = not.
	campaignAt time.Duration

	out Output
}

// NewGroup builds a Group from the log. It does no I/O but reading the log.
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
		guard:     guard{until: map[uint64]time.Duration{}, ends: cfg.Log.LastIndex()},
	}
	g.lease.end()
	g.notices.end()
	g.committed.setState(point)
	g.acks = newAcks(point.State)
	promised := max(cfg.Promised, time.Duration(cfg.ElectionTicks)*cfg.Tick)
	g.guard.soundAfter = cfg.Now + soundElections*promised
	if !cfg.Fresh {
		g.voteAfter = cfg.Now + promised
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
	g.rn, g.storage.rn = rn, rn
	return g, nil
}

// Committed returns the commit check. Any goroutine may read it.
func (g *Group) Committed() *Committed { return g.committed }

// LastIndex is the index of the newest entry that this node has stepped. A follower may have that entry on disk
// before this node has.
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
	g.retryBlocked()
}

// Step takes a message from a peer or a response of the log.
func (g *Group) Step(now time.Duration, m *pb.Message) {
	g.now = now
	from := m.GetFrom()
	peer := from != uint64(g.cfg.Self) && !raft.IsLocalMsgTarget(from)
	if peer && g.refuses(m) {
		return
	}
	g.heardAt[cluster.NodeID(m.GetFrom())] = now
	g.acks.heardOf(cluster.NodeID(m.GetFrom()))
	if m = g.letIn(m); m == nil {
		return
	}
	g.heard(m)
	g.noteStep(m)
	promised := g.promised(m)
	// raft.ErrStepPeerNotFound is the only possible error: a response from a node that is no member. The
	// transport refuses such peers already.
	_ = g.rn.Step(m)
	g.observe()
	if t := m.GetType(); t == pb.MsgHeartbeat && m.GetTerm() == g.role.Term && now >= g.guard.soundAfter {
		g.guard.soundFromTerm(g.role.Term + 1)
	}
	if promised {
		g.extendLease()
	}
	g.retryBlocked()
}

// letIn returns what raft may see of a message; nil = nothing.
func (g *Group) letIn(m *pb.Message) *pb.Message {
	switch t := m.GetType(); {
	case (t == pb.MsgVote || t == pb.MsgPreVote || t == pb.MsgTimeoutNow) && g.now < g.voteAfter:
		return nil // I5: this node may have promised a lease before it restarted
	case !g.mayForce(m), g.saysNothing(m), g.asksTooEarly(m), g.forwardsRead(m), g.answersInVain(m), g.waitsForRound(m):
		return nil
	case t == pb.MsgApp && len(m.GetEntries()) > 0:
		return g.letEntriesIn(m)
	case t == pb.MsgHeartbeat && m.GetCommit() > g.guard.ends:
		m = proto.CloneOf(m)
		m.Commit = new(g.guard.ends)
	case t == pb.MsgHeartbeatResp && g.role.Leading && m.GetTerm() == g.role.Term:
		g.returnToLog(m.GetFrom())
	}
	return m
}

// letEntriesIn returns what raft may see of a message with entries.
func (g *Group) letEntriesIn(m *pb.Message) *pb.Message {
	if m = g.cutBeforeMissingStage(m); m == nil {
		return nil
	}
	if err := g.examineEntries(m); err != nil {
		g.broken(m.GetFrom(), fmt.Errorf("%w: %w", ErrBroken, err))
		return nil
	}
	return m
}

// cutBeforeMissingStage keeps raft from an entry that names a stage which this node lacks, and from what
// follows. Raft counts an entry from the moment that it is stepped, so a node could win an election by an entry
// that it can never append. The leader sends the rest again. If nothing is left, the result is nil: then the
// leader repeats it at its heartbeats, not at once and over and over.
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

// stagedOf returns the stage that an entry names, if it is a naming entry.
func stagedOf(e *pb.Entry) (entry.Staged, bool) {
	if e.GetType() != pb.EntryNormal {
		return entry.Staged{}, false
	}
	return entry.StagedIn(e.GetData()) // the commit check handles a malformed entry
}

// VotesAt is when this node, after its restart, votes and stands for election again (I5). A transfer to it
// before that time is lost. The value never changes.
func (g *Group) VotesAt() time.Duration { return g.voteAfter }

// Propose offers one entry to the gate. Refusals come back in Output.Refused. While Blocked is true, Propose
// must not be called.
func (g *Group) Propose(data []byte) {
	invariant.Check(g.blocked == nil, "I2", "a proposal passes a blocked one")
	h, body, err := entry.Parse(data)
	if err == nil && h.Kind == entry.KindState {
		err = errors.New("a change of the cluster state is of no epoch")
	}
	if err != nil || h.Kind == entry.KindEmpty {
		g.refuse(h.Term, fmt.Errorf("parse proposal: %w", errors.Join(err, entry.ErrMalformed)))
		return
	}
	// A proposal at which the commit check would panic on every node is refused here, where the refusal fences
	// one primary.
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
	if err := g.rn.Propose(data); err != nil {
		// Raft dropped it: nothing was appended. It is blocked. The end of the epoch refuses it.
		g.blocked, g.blockedHeader = data, h
		return
	}
	g.blocked = nil
	if h.Kind == entry.KindEpoch {
		g.epoch, g.next = h.Term, 1
		return
	}
	g.next++
}

// Blocked tells that a proposal is blocked: no other may be offered.
func (g *Group) Blocked() bool { return g.blocked != nil }

func (g *Group) retryBlocked() {
	if g.blocked == nil {
		return
	}
	h, data := g.blockedHeader, g.blocked
	g.blocked = nil
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
	if now.Leading { // elected since this node's start
		g.guard.soundFromTerm(now.Term + 1)
	}
	g.role = now
	g.out.Role = &now
}

// TransferTo hands leadership of a term to a peer; in another term it does nothing. The lease ends now and does
// not come back in this term: from here on the peer may be elected at any moment, by votes that ignore the
// lease.
func (g *Group) TransferTo(term uint64, id cluster.NodeID) {
	if !g.role.Leading || g.role.Term != term {
		return
	}
	g.transferredTerm, g.lease.until = g.role.Term, clocks{}
	g.waitedFor(g.last)
	g.tellCommits() // before raft has the peer stand for election
	g.notices.asked[uint64(id)] = true
	g.rn.TransferLeader(uint64(id))
	g.observe()
}

// LeaderGone says that a new dial to a peer was refused: its process is dead while its host lives. Until that
// peer is heard again, changes of the members do not count on it. If it was the leader, it is forgotten, and
// this node campaigns after a delay that depends on its rank among the other voters, so that two survivors do
// not split the vote.
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
	// The error says that this node leads already.
	_ = g.rn.Campaign()
	g.observe()
}

// Unreachable tells raft that messages to a peer were dropped.
func (g *Group) Unreachable(id cluster.NodeID) {
	g.notices.lost(uint64(id))
	g.rn.ReportUnreachable(uint64(id))
}

// barrierKind is the first byte of the context of a read: what the read is for.
type barrierKind byte

const (
	contextLease   barrierKind = 'L'
	contextBarrier barrierKind = 'B'
	contextAsk     barrierKind = 'A' // the leader answers it with its next round; an older one at once
)

func readContext(kind barrierKind, self cluster.NodeID, seq uint64) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{byte(kind)}, uint64(self))
	return binary.LittleEndian.AppendUint64(b, seq)
}

// startReads begins what waited until this leader knew what is committed: the first round, and barriers.
func (g *Group) startReads() {
	g.startRound()
	for _, id := range g.barriers {
		g.StartBarrier(id)
	}
	g.barriers = nil
}

// StartBarrier asks a majority, through the leader, for an index up to which everything is committed. The
// answer comes in Output.Barriers, or never: the caller asks again after a time.
func (g *Group) StartBarrier(id uint64) {
	if g.role.Leading && !g.knowsCommitted() {
		if len(g.barriers) < barriersMax && !slices.Contains(g.barriers, id) {
			g.barriers = append(g.barriers, id)
		}
		return
	}
	g.rn.ReadIndex(readContext(contextBarrier, g.cfg.Self, id))
}

// AskLeader is a StartBarrier that is not urgent: another leader confirms it with its next round.
func (g *Group) AskLeader(id uint64) {
	if g.role.Leading {
		g.StartBarrier(id)
		return
	}
	g.rn.ReadIndex(readContext(contextAsk, g.cfg.Self, id))
}

func (g *Group) readState(rs raft.ReadState) {
	if len(rs.RequestCtx) != 17 {
		return
	}
	seq := binary.LittleEndian.Uint64(rs.RequestCtx[9:])
	if barrierKind(rs.RequestCtx[0]) != contextLease {
		g.out.Barriers = append(g.out.Barriers, Barrier{ID: seq, Index: rs.Index})
		return
	}
	g.extendLease() // a single voter gets no answers from others
}

// Ready returns what has to be done after the calls since the last Ready. The
// shell calls it again until it returns ok=false.
func (g *Group) Ready() (out Output, ok bool) {
	defer func() { g.guard.ends = g.last }()
	if g.rn.HasReady() {
		rd := g.storage.ready()
		for i, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				if es := m.GetEntries(); len(es) > 0 {
					g.last = es[len(es)-1].GetIndex()
					g.noteTail(es)
				}
				if g.mustStore(m) {
					g.out.Append = append(g.out.Append, m)
				}
			case raft.LocalApplyThread:
				g.apply(m)
			default:
				if isNotice(m) || g.repeatsRound(m) || g.leavesToSource(m) || g.saysCommitOnly(m) || isOutdone(m, rd.Messages[i+1:]) {
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
	return out, ok || acks || out.Role != nil || len(out.Refused) > 0 || len(out.Broken) > 0 || len(out.Send) > 0 || len(out.Append) > 0 || len(out.Wanted) > 0
}

// apply runs the commit check over committed entries and reports that to raft.
func (g *Group) apply(m *pb.Message) {
	knew := g.knowsCommitted()
	for _, e := range m.GetEntries() {
		before := g.committed.Mark().Transactions
		if e.GetType() != pb.EntryNormal {
			g.applyMembers(e)
		} else {
			g.stateCommitted(g.committed.apply(e.GetIndex(), e.GetTerm(), e.GetData()))
		}
		// An epoch or a change of the state: nodes wait for these.
		if g.committed.Mark().Transactions == before {
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

// raftLogger passes raft's own messages to the log. Raft's info and warnings become debug.
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

// The durable log implements Log.
var _ Log = (*seglog.Log)(nil)
