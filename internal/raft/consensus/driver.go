package consensus

import (
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
)

// ticksPerHeartbeat sets the resolution of raft's timers.
const ticksPerHeartbeat = 4

// appendsMax is how many messages may wait for a write, or for space. Raft bounds the entries in them, to
// fewer; what is beyond is appends without entries, of a leader that asks a node whose disk
// hangs: they are dropped, and asked again.
const appendsMax = 1024

// Driver is what a node does around its Group: the order of what follows from a turn, the
// group commits of the log, what a full disk lets pass, when a hanging one is told of.
// It has no goroutine, no clock and no lock: those are Runner's.
//
// A turn takes what was left (Inbox.Take), reads the clocks and counts the ticks that have
// passed (Advance); then comes at most one call that brings something (Woken, or one of its
// Group), and then Turn. Only one goroutine drives it at a time.
type Driver struct {
	cfg   Config
	group *Group

	// What everybody may read.
	role  atomic.Pointer[RoleState]
	lease atomic.Pointer[clocks] // until then; never nil
	acks  atomic.Pointer[cluster.AckStatus]

	ticked  time.Duration // ticks are counted up to this boot time
	timings *timings
	sent    messageCounts
	writes  writes
	watch   diskWatch
}

// NewDriver builds a Driver and its Group. now is the boot time of the first call.
func NewDriver(cfg Config, now time.Duration) (*Driver, error) {
	if err := raiseTerm(cfg.Log); err != nil {
		return nil, fmt.Errorf("store the term of the last entry: %w", err)
	}
	tick := cfg.Heartbeat / ticksPerHeartbeat
	g, err := NewGroup(GroupConfig{
		Self: cfg.Self, Members: cfg.Members, State: cfg.State, Tick: tick,
		HeartbeatTicks: ticksPerHeartbeat, ElectionTicks: int(cfg.ElectionTimeout / tick),
		Log: cfg.Log, HasStage: cfg.HasStage, Fresh: cfg.Fresh, Promised: cfg.Promised,
		Logger: cfg.Logger, Now: now,
	})
	if err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, group: g, ticked: now, timings: newTimings(), sent: newMessageCounts()}
	d.lease.Store(&clocks{})
	d.role.Store(&RoleState{Term: cfg.Log.HardState().Term})
	return d, nil
}

// Group is what it drives.
func (d *Driver) Group() *Group { return d.group }

// Committed is the commit check, readable by everybody.
func (d *Driver) Committed() *Committed { return d.group.Committed() }

// Role returns the newest state that was told. Everybody may call it.
func (d *Driver) Role() RoleState { return *d.role.Load() }

// Acks says whom this leader's ACKs wait for; nil: a commit is all that they need, or it
// does not lead. Everybody may call it.
func (d *Driver) Acks() *cluster.AckStatus { return d.acks.Load() }

// LeadsAt tells whether this node may serve as the leader at a moment on both clocks (I5).
// Everybody may call it.
func (d *Driver) LeadsAt(boot, wall time.Duration) bool {
	return clocks{boot: boot, wall: wall}.before(*d.lease.Load())
}

// EndLease ends the lease for good: nothing drives the group any more.
func (d *Driver) EndLease() { d.lease.Store(&clocks{}) }

// tick says that one tick has passed, and what the two clocks say.
func (d *Driver) tick(boot, wall time.Duration) {
	d.watchClocks(clocks{boot: boot, wall: wall})
	d.group.Tick(boot)
	d.acks.Store(d.group.Acks())
	if took := d.watch.look(d.cfg, boot, d.writes.began(), d.group.Role().Leading && !d.Full()); took > 0 {
		d.cfg.OnStalled(d.group.Role().Term, took)
	}
}

// WakeAt is when the next turn is due though nothing comes. It begins with Woken.
func (d *Driver) WakeAt() time.Duration {
	due := d.tickAt()
	if at := d.alarmAt(); at != 0 {
		due = min(due, at)
	}
	return due
}

// alarmAt is when something beside a tick is due; 0 = nothing is.
func (d *Driver) alarmAt() time.Duration {
	notice, retry := d.group.NoticeAt(), d.writes.retryAt()
	if notice == 0 || retry != 0 && retry < notice {
		return retry
	}
	return notice
}

// Woken says that it is the time of WakeAt.
func (d *Driver) Woken(now time.Duration) { d.group.Notify(now) }

// Turn steps what was taken, takes what else was left, and does what the group asks for. It
// returns what is to be written to the log now, or nil. The caller appends that, answers if
// that went well, and leaves how it ended (Write.Append, Answer, Inbox.Wrote); the turn is
// free meanwhile. An error says that the log failed: then nothing may go on.
func (d *Driver) Turn(now time.Duration, in *Inbox) (*Write, error) {
	if result, ok := in.takeWritten(); ok {
		if err := d.ended(now, result); err != nil {
			return nil, fmt.Errorf("append to the log: %w", err)
		}
	}
	for _, m := range in.taken {
		if m.GetType() == pb.MsgApp && d.writes.queued() >= appendsMax {
			continue
		}
		d.group.Step(now, m)
	}
	in.stepped()
	for !d.group.Blocked() {
		data, ok := in.takeProposal()
		if !ok {
			break
		}
		d.timings.proposed(now, data)
		d.group.Propose(data)
	}
	d.drain(now)
	in.setBlocked(d.group.Blocked())
	return d.nextWrite(now), nil
}

// drain does what the group asks for, until it asks for nothing more.
func (d *Driver) drain(now time.Duration) {
	for {
		out, ok := d.group.Ready()
		d.publishLease()
		if !ok {
			return
		}
		d.report(now, out) // ACKs before all else: they wait for nothing that follows
		d.send(out.Send)
		d.writes.add(out.Append)
	}
}

// report tells what a turn has come to, the ACKs first of what is not needed for them.
func (d *Driver) report(now time.Duration, out Output) {
	if out.Role != nil {
		d.role.Store(out.Role)
		d.timings.reset()
		d.cfg.OnRole(*out.Role)
	}
	if out.Committed {
		d.cfg.OnCommit(d.Committed().Mark())
	}
	for _, e := range out.AckEvents {
		if d.cfg.OnAckEvent != nil {
			d.cfg.OnAckEvent(e)
		}
	}
	if out.Acknowledge > 0 && d.cfg.OnAcknowledge != nil {
		d.cfg.OnAcknowledge(out.Acknowledge)
	}
	if out.Committed {
		d.timings.committed(now, d.Committed().Mark())
		for _, o := range out.States {
			if d.cfg.OnState != nil {
				d.cfg.OnState(o)
			}
		}
		d.Committed().publish()
	}
	for _, r := range out.Refused {
		d.cfg.OnRefused(r)
	}
	for _, w := range out.Wanted {
		d.cfg.OnWanted(w)
	}
	for _, b := range out.Broken {
		if d.cfg.OnBroken != nil {
			d.cfg.OnBroken(b)
		}
	}
	for _, b := range out.Barriers {
		if d.cfg.OnBarrier != nil {
			d.cfg.OnBarrier(b)
		}
	}
}

// send hands messages to the transport.
func (d *Driver) send(messages []*pb.Message) {
	if len(messages) == 0 {
		return
	}
	for _, m := range messages {
		d.sent[kindOf(m)].Inc()
	}
	d.cfg.Send(messages)
}
