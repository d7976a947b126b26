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

// appendsMax is how many messages may wait for a write or for disk space. Raft bounds the messages with entries
// to fewer. The rest are appends without entries, from a leader that probes a node whose disk hangs. Those are
// dropped, and the leader sends them again.
const appendsMax = 1024

// Driver is what a node does around its Group: the order of what follows from a turn, the group commits of the
// log, what a full disk lets pass, when a hanging disk is reported. It has no goroutine, no clock and no lock:
// Runner has those.
//
// A turn has these steps: Inbox.Take takes the messages that wait, Advance reads the clocks and counts the
// ticks that have passed, then comes at most one call with new input (Woken, or a method of its Group), and
// then Turn. Only one goroutine at a time drives it.
type Driver struct {
	cfg   Config
	group *Group

	// Any goroutine may read these.
	role  atomic.Pointer[RoleState]
	lease atomic.Pointer[clocks] // the lease ends then; never nil
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

// Group returns the Group that this Driver drives.
func (d *Driver) Group() *Group { return d.group }

// Committed returns the commit check. Any goroutine may read it.
func (d *Driver) Committed() *Committed { return d.group.Committed() }

// Role returns the newest state that was reported. Any goroutine may call it.
func (d *Driver) Role() RoleState { return *d.role.Load() }

// Acks says which nodes this leader's ACKs wait for; nil = ACKs need only the commit, or this node does not
// lead. Any goroutine may call it.
func (d *Driver) Acks() *cluster.AckStatus { return d.acks.Load() }

// LeadsAt tells whether this node may serve as the leader at a moment, given on both clocks (I5). Any goroutine
// may call it.
func (d *Driver) LeadsAt(boot, wall time.Duration) bool {
	return clocks{boot: boot, wall: wall}.before(*d.lease.Load())
}

// EndLease ends the lease for good. Call it when the group is not driven any more.
func (d *Driver) EndLease() { d.lease.Store(&clocks{}) }

// tick counts one tick. boot and wall are the two clocks now.
func (d *Driver) tick(boot, wall time.Duration) {
	d.watchClocks(clocks{boot: boot, wall: wall})
	d.group.Tick(boot)
	d.acks.Store(d.group.Acks())
	if took := d.watch.look(d.cfg, boot, d.writes.began(), d.group.Role().Leading && !d.Full()); took > 0 {
		d.cfg.OnStalled(d.group.Role().Term, took)
	}
}

// WakeAt is when the next turn is due even if no input comes. That turn begins with Woken.
func (d *Driver) WakeAt() time.Duration {
	due := d.tickAt()
	if at := d.alarmAt(); at != 0 {
		due = min(due, at)
	}
	return due
}

// alarmAt is when the next notice or retry of a write is due; 0 = none is. Ticks do not count.
func (d *Driver) alarmAt() time.Duration {
	notice, retry := d.group.NoticeAt(), d.writes.retryAt()
	if notice == 0 || retry != 0 && retry < notice {
		return retry
	}
	return notice
}

// Woken says that the time of WakeAt has come.
func (d *Driver) Woken(now time.Duration) { d.group.Notify(now) }

// Turn steps the messages that were taken, takes what else waits in the Inbox, and does what the group asks
// for. It returns what has to be written to the log now, or nil. The caller calls Write.Append, then Answer if
// that went well, and reports the end with Inbox.Wrote. Other goroutines may take turns meanwhile. An error
// says that the log failed: then nothing may go on.
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

// drain does everything that the group asks for.
func (d *Driver) drain(now time.Duration) {
	for {
		out, ok := d.group.Ready()
		d.publishLease()
		if !ok {
			return
		}
		d.report(now, out) // ACKs first: they wait for nothing that follows
		d.send(out.Send)
		d.writes.add(out.Append)
	}
}

// report tells others the results of a turn. ACKs come before everything on which they do not depend.
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
