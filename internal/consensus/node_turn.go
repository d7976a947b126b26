package consensus

import (
	"context"
	"sync"
	"time"
)

// Who has work does it: the reader of a peer's connection, the tap's, the keeper, a caller.
// It takes the turn, or leaves what it has for whoever has it (inbox). A commit so goes
// through few hands:
//
//	leader    tap's reader: propose, send to the peers, write and fsync, read on
//	          reader of a peer's answer: commit, ACK to mysqld, read on
//	follower  reader of the leader's appends: step, write and fsync, answer, read on
//
// The turn is free while a write is made. So heartbeats and votes go on while the disk
// hangs, and what comes is the next write, as one group commit. Who reads votes and
// heartbeats waits for no disk: the writer has what follows from them.

// turnsMax is how many turns one goroutine has in a row before the keeper goes on: it has
// work of its own.
const turnsMax = 64

// work has turns until nothing is left, or somebody else has the turn: then that one looks
// again after it. writes: this goroutine may make a write, one that is not long; others are
// the writer's.
func (n *Node) work(writes bool) {
	select {
	case <-n.started:
	default:
		return // Run begins with what was left
	}
	for range turnsMax {
		if !n.mu.TryLock() {
			return
		}
		if w := n.locked(nil, writes); w != nil {
			n.make(w)
			writes = false
			continue // with what came of it
		}
		if !n.inbox.Left() {
			return
		}
	}
	select {
	case n.kept <- struct{}{}:
	default:
	}
}

// turn has f done in a turn, and what was left.
func (n *Node) turn(f func(now time.Duration)) {
	n.mu.Lock()
	n.locked(f, false)
	if n.inbox.Left() {
		n.work(false)
	}
}

// do is turn, unless ctx ends or the node stops before.
func (n *Node) do(ctx context.Context, f func(now time.Duration)) {
	select {
	case <-n.started:
		n.turn(f)
	case <-ctx.Done():
	case <-n.stopped:
	}
}

// locked is one turn, and gives mu back. It returns the write that the caller has to make.
func (n *Node) locked(f func(now time.Duration), writes bool) *Write {
	defer n.mu.Unlock()
	if n.ended {
		n.afterEnd()
		return nil
	}
	whole := false
	defer func() {
		if whole {
			return
		}
		r := recover()
		failed, ok := r.(logFailure)
		n.end(failed.err) // nobody may go on with a group that is broken
		if r != nil && !ok {
			panic(r)
		}
	}()
	now := BootTime()
	if f != nil {
		f(now)
	}
	w, err := n.driver.Turn(now, &n.inbox)
	n.alarm.set(n.driver.WakeAt())
	whole = true
	switch {
	case err != nil:
		n.end(err)
	case w != nil && (!writes || w.long()):
		n.writes <- w // it has room: there is one at a time
	default:
		return w
	}
	return nil
}

// make makes a write, without the turn.
func (n *Node) make(w *Write) {
	err := w.Append()
	if err == nil {
		n.driver.Answer(w)
	}
	n.inbox.Wrote(err)
}

// end stops the node. The caller has the turn.
func (n *Node) end(err error) {
	if n.ended {
		return
	}
	n.ended, n.failure = true, err
	n.driver.EndLease()
	close(n.stopped)
	close(n.writes)
	n.afterEnd()
}

// afterEnd drops what was left for a node that has stopped.
func (n *Node) afterEnd() {
	n.inbox.drop()
	if _, ok := n.inbox.takeWritten(); ok {
		n.lastWrite <- struct{}{} // it has room: there is one at a time
	}
}

// Run drives the group until ctx ends (nil) or the log fails (an error). Then no write is
// under way any more.
func (n *Node) Run(ctx context.Context) error {
	n.alarm.timer = time.NewTimer(0)
	defer n.alarm.timer.Stop()
	var writer sync.WaitGroup
	writer.Go(func() {
		for w := range n.writes {
			n.make(w)
			n.work(true)
		}
	})
	close(n.started)
	n.keep(ctx)
	n.mu.Lock()
	n.end(nil)
	writing := n.driver.writes.current != nil
	n.mu.Unlock()
	n.work(false) // for whom this has kept out
	if writing {
		<-n.lastWrite
	}
	writer.Wait()
	return n.failure
}

// keep has the turns that nobody else has: the ticks, the alarms, and what was left.
func (n *Node) keep(ctx context.Context) {
	n.work(false)
	ticker := time.NewTicker(n.cfg.Heartbeat / ticksPerHeartbeat)
	defer ticker.Stop()
	for {
		f := func(time.Duration) {}
		select {
		case <-ctx.Done():
			return
		case <-n.stopped:
			return
		case <-ticker.C:
			f = func(time.Duration) {
				now := readClocks()
				n.driver.Tick(now.boot, now.wall)
			}
		case <-n.alarm.timer.C:
			f = func(now time.Duration) {
				n.alarm.at = 0
				n.driver.Woken(now)
			}
		case <-n.cfg.Log.Arrived():
			f = func(time.Duration) { n.group.SendMore() }
		case <-n.kept:
		}
		n.turn(f)
	}
}

// alarm wakes the keeper. Most notices are not needed by the time
// that they are due, and a timer that is set anew may cost a system call: so it is left to
// run out, and then set for what is due next.
type alarm struct {
	timer *time.Timer
	at    time.Duration // boot time; 0 = it does not run
}

func (t *alarm) set(due time.Duration) {
	if due == 0 || t.at != 0 && t.at <= due {
		return
	}
	t.at = due
	t.timer.Reset(due - BootTime())
}
