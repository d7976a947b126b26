package sim

import (
	"context"
	"log/slog"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// loop is what consensus.Node is around a Driver: who calls it when, here as turns and
// writes on virtual time.
type loop struct {
	a      *agent
	driver *consensus.Driver
	point  cluster.StatePoint // as it was reported last

	// What waits for a turn, and what is called when there is room for proposals.
	woken    bool          // it is the time of Driver.WakeAt
	wakeAt   time.Duration // 0 = no alarm is set
	inbox    consensus.Inbox
	controls []func(now time.Duration)
	room     signal
	due      bool

	writing *consensus.Write // by the disk; nil: it waits

	barriers consensus.Barriers
}

func (l *loop) init(a *agent, log consensus.Log) (err error) {
	n := a.n
	l.a = a
	l.driver, err = consensus.NewDriver(consensus.Config{
		Self: n.id, Members: n.w.members()[:n.w.initialNodes], State: a.statePoint(),
		Heartbeat: ticksPerHeartbeat * n.timing.tick, ElectionTimeout: n.timing.election,
		Log: provedLog{log, n}, HasStage: a.log.HasStage, Fresh: n.home.Fresh(), Promised: a.promised.Longest, Logger: slog.New(slog.DiscardHandler),
		Send: l.send, OnRole: a.onRole, OnLease: a.inbox.LeaseChanged, OnCommit: l.onCommit, OnState: l.onState, OnBarrier: l.barriers.Answer,
		OnAcknowledge: a.onAcknowledge, OnAckEvent: a.onAckEvent, OnRefused: a.onRefused, OnWanted: a.onWanted,
		OnFull: a.onFull, OnStalled: a.slot.Stalled, OnBroken: a.onBroken,
	}, n.now())
	if err != nil {
		return err
	}
	l.barriers.Committed, l.barriers.Clock = l.driver.Committed(), a.life
	l.barriers.Retry, l.barriers.First = heartbeatInterval, n.rng.Uint64()
	l.barriers.Start = func(_ context.Context, id uint64) {
		l.control(func(time.Duration) { l.a.group.StartBarrier(id) })
	}
	return nil
}

// provedLog tells the checker what is durable.
type provedLog struct {
	consensus.Log
	n *node
}

// Append implements consensus.Log.
func (p provedLog) Append(entries []seglog.Entry, hs *seglog.HardState) error {
	err := p.Log.Append(entries, hs)
	run := consensus.AppendRun{Entries: entries, HardState: hs}
	if err != nil {
		p.n.durable.cut([]consensus.AppendRun{run})
	} else {
		p.n.durable.appended(run)
	}
	return err
}

func (l *loop) receive(m *pb.Message) {
	l.inbox.Message(m)
	l.wake()
}

func (l *loop) control(f func(now time.Duration)) {
	l.controls = append(l.controls, f)
	l.wake()
}

// do has f run in a turn, unless ctx ends before.
func (l *loop) do(ctx context.Context, f func(now time.Duration)) {
	done := signal{}
	l.control(func(now time.Duration) {
		f(now)
		done.fire()
	})
	_ = l.a.life.Wait(ctx, 0, done.next())
}

// propose queues one entry and waits while the queue is full.
func (l *loop) propose(ctx context.Context, data []byte) error {
	if ctx.Err() != nil && chance(l.a.n.rng, 50) { // select takes either of two that are ready
		return context.Cause(ctx)
	}
	for !l.inbox.Propose(data) {
		if err := l.a.life.Wait(ctx, 0, l.room.next()); err != nil {
			return err
		}
	}
	l.wake()
	return nil
}

func (l *loop) wake() {
	if !l.due {
		l.due = true
		l.a.life.after(l.a.n.hiccup(), l.turn)
	}
}

// turn is the turn of whoever gets it: the keeper, a caller, or one who leaves a message, a
// proposal or the end of a write. It takes all that was left.
func (l *loop) turn() {
	l.due = false
	now := l.inbox.Take(l.a.n.now)
	l.driver.Advance(now, l.a.n.wall())
	ready := []func(){func() {}}
	if l.woken {
		ready = append(ready, l.takeAlarm)
	}
	if len(l.controls) > 0 {
		ready = append(ready, l.takeControl)
	}
	ready[l.a.n.rng.IntN(len(ready))]()
	w, err := l.driver.Turn(now, &l.inbox)
	if err != nil {
		l.a.n.log("append", "failed: %v", err)
		l.a.exit(err.Error())
		return
	}
	l.room.fire()
	if l.a.slot.Serving() {
		l.a.n.check.served(l.a.n)
	}
	if w != nil {
		l.write(w)
	}
	l.setAlarm(l.driver.WakeAt())
	if len(ready) > 1 || l.inbox.Left() {
		l.wake()
	}
}

func (l *loop) takeAlarm() {
	l.woken, l.wakeAt = false, 0
	l.driver.Woken(l.a.n.now())
}

// setAlarm is what consensus.Node does with Driver.WakeAt.
func (l *loop) setAlarm(due time.Duration) {
	if l.wakeAt == due {
		return
	}
	l.wakeAt = due
	l.a.life.after(max(0, due-l.a.n.now()), func() {
		if l.wakeAt == due { // it was not set anew
			l.woken = true
			l.wake()
		}
	})
}

func (l *loop) takeControl() {
	f := l.controls[0]
	l.controls = l.controls[1:]
	f(l.a.n.now())
}

func (l *loop) onCommit(m consensus.Mark) {
	l.a.onCommit(m)
	if !l.a.w.membersChange {
		return
	}
	if p := l.a.group.Committed().State(); p.Index != l.point.Index {
		l.a.steps(l.point, p)
		l.point = p
		l.a.stateChanged.fire()
	}
}

func (l *loop) onState(o consensus.StateOutcome) {
	if o.Applied {
		l.a.board.SetState(o.State)
	}
	l.a.stateChanged.fire()
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
		if n.w.sources != nil && m.GetType() == pb.MsgApp && len(m.GetEntries()) > 0 {
			n.w.sources.sends(l.a, to)
		}
		if n.w.membersChange && l.a.conns[to] == nil {
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
	if a == nil || w.membersChange && a.conns[from.n.id] != from {
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

// write begins a write. It takes its time, and happens at the end of it.
func (l *loop) write(w *consensus.Write) {
	l.writing = w
	l.a.life.after(l.a.n.disk.appendTime(l.a.w.sched.now), l.append)
	if slices.ContainsFunc(w.Runs, func(r consensus.AppendRun) bool { return len(r.Entries) > 0 }) {
		l.a.w.happened(pointAppending, l.a.n)
	}
}

// append makes the write, and answers, as consensus.Node's make. Others have turns in
// between: raft steps messages then on a log that is further than it knows.
func (l *loop) append() {
	w := l.writing
	err := w.Append()
	l.a.n.log("append", "last %d, commit %d: %v", l.a.log.LastIndex(), l.a.log.HardState().Commit, err)
	l.writing = nil
	if err == nil {
		l.a.w.happened(pointAppended, l.a.n)
	}
	l.a.life.after(l.heldUp(), func() {
		if err == nil {
			l.driver.Answer(w)
		}
		l.a.life.after(l.heldUp(), func() {
			l.inbox.Wrote(err)
			l.wake()
		})
	})
}

// heldUp is for how long a goroutine may not run between two calls: now and then for some
// turns of others.
func (l *loop) heldUp() time.Duration {
	if chance(l.a.n.rng, 10) {
		return around(l.a.n.rng, 2*time.Millisecond)
	}
	return around(l.a.n.rng, time.Microsecond)
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
	a.n.durable.cut(l.writing.Runs)
	if err := l.writing.Append(); err != nil {
		a.n.log("crash", "inside of the append")
	} else {
		a.n.log("crash", "after the append")
	}
}
