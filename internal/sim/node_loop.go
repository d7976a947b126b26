package sim

import (
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/seglog"
)

// Bounds, as package consensus has them.
const (
	proposalsMax     = 4
	messagesAtOnce   = 64
	appendEntriesMax = 1024
	appendBytesMax   = 8 << 20
	// fullRetryInterval is the pause between two tries to append to a full disk.
	fullRetryInterval = 500 * time.Millisecond
)

// loop is what consensus.Node is around a Group: the loop that owns it and the
// append goroutine, here as turns and appends on virtual time.
type loop struct {
	a     *agent
	role  consensus.RoleState
	point cluster.StatePoint // as it was reported last
	lease time.Duration

	// What waits for the loop, and what is called when there is room for
	// proposals.
	ticked    bool
	notified  bool          // the timer of Group.Notify ran out
	noticeAt  time.Duration // when it does; 0 = it does not run
	messages  []*pb.Message
	responses [][]*pb.Message
	proposals [][]byte
	controls  []func(now time.Duration)
	room      signal
	due       bool

	appends        []*pb.Message
	writing        []*pb.Message         // nil: the append goroutine waits
	runs           []consensus.AppendRun // of writing, not yet durable
	full           *consensus.FullDisk   // nil: there is space
	writingSince   time.Duration
	diskCheckAfter time.Duration

	barrierSeq uint64
	barriers   map[uint64]*barrier
	changed    signal // the commit check went forward
}

type barrier struct {
	index    uint64
	answered bool
	done     signal
}

func (l *loop) init(a *agent) {
	l.a, l.barriers = a, map[uint64]*barrier{}
	l.barrierSeq = a.n.rng.Uint64()
	l.role = consensus.RoleState{Term: a.log.HardState().Term}
}

func (l *loop) tick() {
	l.ticked = true
	l.wake()
}

func (l *loop) receive(m *pb.Message) {
	l.messages = append(l.messages, m)
	l.wake()
}

func (l *loop) control(f func(now time.Duration)) {
	l.controls = append(l.controls, f)
	l.wake()
}

// do runs f in the loop, unless the scope ends before.
func (l *loop) do(t *task, sc *scope, f func(now time.Duration)) {
	done := signal{}
	l.control(func(now time.Duration) {
		f(now)
		l.lease = l.a.group.LeaseUntil()
		done.fire()
	})
	_ = t.wait(sc, 0, &done)
}

// propose queues one entry and waits while the queue is full.
func (l *loop) propose(t *task, sc *scope, data []byte) error {
	for len(l.proposals) >= proposalsMax {
		if err := t.wait(sc, 0, &l.room); err != nil {
			return err
		}
	}
	if sc.cause != nil && chance(l.a.n.rng, 50) { // select takes either of two that are ready
		return sc.cause
	}
	l.proposals = append(l.proposals, data)
	l.wake()
	return nil
}

func (l *loop) wake() {
	if !l.due {
		l.due = true
		l.a.life.after(l.a.n.hiccup(), l.turn)
	}
}

// turn is one turn of the loop: one of what waits, as select picks it, and
// then everything that follows from it.
func (l *loop) turn() {
	l.due = false
	var ready []func()
	if l.ticked {
		ready = append(ready, l.takeTick)
	}
	if l.notified {
		ready = append(ready, l.takeNotice)
	}
	if len(l.messages) > 0 {
		ready = append(ready, l.takeMessages)
	}
	if len(l.responses) > 0 {
		ready = append(ready, func() { l.takeResponses() })
	}
	if len(l.proposals) > 0 && !l.a.group.Blocked() {
		ready = append(ready, l.takeProposals)
	}
	if len(l.controls) > 0 {
		ready = append(ready, l.takeControl)
	}
	if len(ready) == 0 {
		return
	}
	ready[l.a.n.rng.IntN(len(ready))]()
	l.drain()
	l.setNotice(l.a.group.NoticeAt())
	if len(ready) > 1 || len(l.messages)+len(l.responses)+len(l.controls) > 0 ||
		len(l.proposals) > 0 && !l.a.group.Blocked() {
		l.wake()
	}
}

func (l *loop) takeTick() {
	l.ticked = false
	l.a.group.Tick(l.a.n.now())
	l.checkDisk()
}

func (l *loop) takeNotice() {
	l.notified, l.noticeAt = false, 0
	l.a.group.Notify(l.a.n.now())
}

// setNotice is consensus.noticeTimer's set.
func (l *loop) setNotice(due time.Duration) {
	if due == 0 || l.noticeAt != 0 && l.noticeAt <= due {
		return
	}
	l.noticeAt = due
	l.a.life.after(max(0, due-l.a.n.now()), func() {
		if l.noticeAt == due { // it was not set anew
			l.notified = true
			l.wake()
		}
	})
}

// checkDisk reports a leader's log that does not answer.
func (l *loop) checkDisk() {
	now, limit := l.a.n.now(), l.a.n.timing.election
	if l.writing == nil || l.full != nil || now-l.writingSince < limit || now < l.diskCheckAfter || !l.a.group.Role().Leading {
		return
	}
	l.diskCheckAfter = now + limit
	l.a.onStalled(l.a.group.Role().Term, now-l.writingSince)
}

func (l *loop) takeMessages() {
	now := l.a.n.now()
	for range messagesAtOnce {
		if len(l.messages) == 0 {
			break
		}
		m := l.messages[0]
		l.messages = l.messages[1:]
		l.a.group.Step(now, m)
	}
	for len(l.responses) > 0 {
		l.takeResponses()
	}
}

func (l *loop) takeResponses() {
	ms := l.responses[0]
	l.responses = l.responses[1:]
	for _, m := range ms {
		l.a.group.Step(l.a.n.now(), m)
	}
}

func (l *loop) takeProposals() {
	for len(l.proposals) > 0 && !l.a.group.Blocked() {
		data := l.proposals[0]
		l.proposals = l.proposals[1:]
		l.a.group.Propose(data)
	}
	l.room.fire()
}

func (l *loop) takeControl() {
	f := l.controls[0]
	l.controls = l.controls[1:]
	f(l.a.n.now())
}

// drain does what the group asks for until it asks for nothing.
func (l *loop) drain() {
	for {
		out, ok := l.a.group.Ready()
		l.lease = l.a.group.LeaseUntil()
		if !ok {
			if l.a.serving() {
				l.a.w.check.served(l.a.n)
			}
			return
		}
		l.report(out)
		l.send(out.Send)
		l.appends = append(l.appends, out.Append...)
		l.write()
		if l.full != nil {
			l.voteWhileFull()
		}
	}
}

func (l *loop) report(out consensus.Output) {
	if out.Role != nil {
		l.role = *out.Role
		l.a.onRole(*out.Role)
	}
	if out.Committed {
		l.a.onCommit(l.a.group.Committed().Mark())
		l.changed.fire()
	}
	if out.Committed && l.a.w.membersChange {
		if p := l.a.group.Committed().State(); p.Index != l.point.Index {
			l.a.steps(l.point, p)
			l.point = p
			l.a.stateChanged.fire()
		}
	} else if len(out.States) > 0 {
		l.a.stateChanged.fire()
	}
	for _, e := range out.AckEvents {
		l.a.onAckEvent(e)
	}
	if out.Acknowledge > 0 {
		l.a.onAcknowledge(out.Acknowledge)
	}
	for _, r := range out.Refused {
		l.a.onRefused(r)
	}
	for _, w := range out.Wanted {
		l.a.onWanted(w)
	}
	for _, b := range out.Barriers {
		if waiting := l.barriers[b.ID]; waiting != nil && !waiting.answered {
			waiting.index, waiting.answered = b.Index, true
			waiting.done.fire()
		}
	}
}

// send gives messages to the network, encoded: two nodes share no memory.
func (l *loop) send(ms []*pb.Message) {
	n := l.a.n
	for _, m := range ms {
		raw, err := proto.Marshal(m)
		if err != nil {
			n.w.fail("sim", "encode message: %v", err)
		}
		to := cluster.NodeID(m.GetTo())
		n.log("send", "%s to n%d term %d index %d entries %d", m.GetType(), to, m.GetTerm(), m.GetIndex(), len(m.GetEntries()))
		if n.w.membersChange && l.a.members.conns[to] == nil {
			continue // nobody to write to
		}
		sent := n.w.net.send(n.id, to, func() { n.w.arrived(l.a, to, raw) })
		if !sent && chance(n.rng, 25) {
			l.control(func(time.Duration) { l.a.group.Unreachable(to) })
		}
	}
}

func (w *World) arrived(from *agent, to cluster.NodeID, raw []byte) {
	a := w.node(to).agent
	if a == nil || w.membersChange && a.members.conns[from.n.id] != from {
		return
	}
	a.life.run(func() {
		m := &pb.Message{}
		if err := proto.Unmarshal(raw, m); err != nil {
			w.fail("sim", "decode message: %v", err)
		}
		w.log(to, "receive", "%s from n%d", m.GetType(), from.n.id)
		a.receive(m)
	})
}

// write begins a group commit of everything that waits, unless one is under
// way. It takes its time, and happens at the end of it.
func (l *loop) write() {
	if l.writing != nil || len(l.appends) == 0 {
		return
	}
	entries, bytes, n := 0, 0, 0
	for n < len(l.appends) && (n == 0 || entries < appendEntriesMax && bytes < appendBytesMax) {
		for _, e := range l.appends[n].GetEntries() {
			bytes += len(e.GetData())
		}
		entries += len(l.appends[n].GetEntries())
		n++
	}
	l.writing, l.appends = l.appends[:n:n], l.appends[n:]
	l.runs = consensus.AppendRuns(l.writing)
	l.writingSince = l.a.n.now()
	l.a.life.after(l.a.n.disk.appendTime(l.a.w.sched.now), l.written)
	if entries > 0 {
		l.a.w.happened(pointAppending, l.a.n)
	}
}

// written makes the append and delivers its responses, as the append goroutine
// does.
func (l *loop) written() {
	batch := l.writing
	err := l.append()
	if err == nil && l.full != nil {
		err = l.storeVote()
	}
	if errors.Is(err, seglog.ErrFull) {
		if l.full == nil {
			l.full = consensus.NewFullDisk(l.a.n.id, l.runs)
			l.a.onFull(err.Error())
		}
		l.voteWhileFull()
		l.a.life.after(fullRetryInterval, l.written)
		return
	}
	if err != nil {
		l.a.n.log("append", "failed: %v", err)
		l.a.exit(err.Error())
		return
	}
	if l.full != nil {
		l.full = nil
		l.a.onFull("")
	}
	l.writing = nil
	var peers, self []*pb.Message
	for _, m := range batch {
		for _, r := range m.GetResponses() {
			if cluster.NodeID(r.GetTo()) == l.a.n.id {
				self = append(self, r)
			} else {
				peers = append(peers, r)
			}
		}
	}
	l.answer(peers)
	if len(self) > 0 {
		l.responses = append(l.responses, self)
		l.wake()
	}
	l.write()
}

// voteWhileFull does what consensus.FullDisk says with what waits for space.
func (l *loop) voteWhileFull() {
	held, votes := l.appends[:0], []*pb.Message(nil)
	for _, m := range l.appends {
		given, waits := l.full.Take(m)
		votes = append(votes, given...)
		if waits {
			held = append(held, m)
		}
	}
	l.appends = held
	if err := l.storeVote(); errors.Is(err, seglog.ErrFull) {
		return // the votes are not given
	} else if err != nil {
		l.a.n.w.fail("log", "n%d: store a vote on a full disk: %v", l.a.n.id, err)
	}
	l.answer(votes)
}

// storeVote stores the term and vote of what waits for space.
func (l *loop) storeVote() error {
	hs := l.full.Vote(l.a.log.HardState())
	if hs == nil {
		return nil
	}
	if err := l.a.log.Append(nil, hs); err != nil {
		return err
	}
	l.a.n.durable.appended(consensus.AppendRun{HardState: hs})
	return nil
}

// answer sends responses of the log to peers.
func (l *loop) answer(responses []*pb.Message) {
	consensus.CheckAnswers(responses, l.a.log.HardState())
	l.send(responses)
}

// append makes durable what is left of the batch.
func (l *loop) append() error {
	for ; len(l.runs) > 0; l.runs = l.runs[1:] {
		l.runs[0].HardState = l.runs[0].Newest(l.a.log.HardState())
		if err := l.a.log.Append(l.runs[0].Entries, l.runs[0].HardState); err != nil {
			return err
		}
		l.a.n.durable.appended(l.runs[0])
	}
	l.a.n.log("append", "%d messages, last %d, commit %d", len(l.writing), l.a.log.LastIndex(), l.a.log.HardState().Commit)
	l.a.w.happened(pointAppended, l.a.n)
	return nil
}

// cutAppend ends the process while its log writes: before, inside of or after
// the calls that it makes. onCrash sees the disk at the moment of the end, if
// that is inside.
func (a *agent) cutAppend(onCrash func()) {
	l := &a.loop
	if l.writing == nil || chance(a.n.rng, 20) {
		return
	}
	calls := a.n.rng.IntN(8)
	if chance(a.n.rng, 50) {
		calls = 1 // between write and sync, most of the time
	}
	a.n.disk.callsLeft, a.n.disk.onCrash = calls, onCrash
	a.n.durable.cut(l.runs)
	if err := l.append(); err != nil {
		a.n.log("crash", "inside of the append")
	} else {
		a.n.log("crash", "after the append")
	}
}

// barrier returns once this node has passed its commit check up to everything
// that was committed anywhere when it was called.
func (l *loop) barrier(t *task, sc *scope) error {
	l.barrierSeq++
	id, b := l.barrierSeq, &barrier{}
	l.barriers[id] = b
	defer delete(l.barriers, id)
	for !b.answered {
		l.control(func(time.Duration) { l.a.group.StartBarrier(id) })
		if err := t.wait(sc, heartbeatInterval, &b.done); err != nil {
			return fmt.Errorf("wait for a majority's commit index: %w", err)
		}
	}
	for l.a.group.Committed().Mark().Index < b.index {
		if err := t.wait(sc, 0, &l.changed); err != nil {
			return fmt.Errorf("wait for index %d to be committed here: %w", b.index, err)
		}
	}
	return nil
}
