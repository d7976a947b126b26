package consensus

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Who has work does it: the reader of a peer's connection, the tap's, the keeper. It takes
// the turn, or leaves what it has for whoever has it (inbox). A commit so goes through few
// hands:
//
//	leader    tap's reader: propose, send to the peers, write and fsync, read on
//	          reader of a peer's answer: commit, ACK to mysqld, read on
//	follower  reader of the leader's appends: step, write and fsync, answer, read on
//
// The turn is free while a write is made. So heartbeats go on while the disk hangs, and
// what comes is the next write, as one group commit. Votes and answers to appends are said
// once they are stored: they wait for the disk. The reader of votes and heartbeats waits for
// no write: the writer has what follows from them.
//
// Whoever has had a turn looks again for what was left meanwhile (Inbox.Left), or wakes the
// keeper: whoever found the turn taken counts on it.

// turnsMax is how many turns one goroutine has in a row before the keeper goes on: it has
// work of its own.
const turnsMax = 16

// work has turns until nothing is left, or another goroutine has the turn, which then looks
// again after it. writes: this goroutine may make a write that is not long; all others are
// the writer's.
func (n *Node) work(writes bool) {
	for range turnsMax {
		if !n.mu.TryLock() {
			return
		}
		switch w := n.turn(nil); {
		case w == nil:
		case writes && !w.long():
			n.make(w)
			writes = false // it has the next messages to take in
		default:
			n.writes <- w
		}
		if !n.inbox.Left() {
			return
		}
	}
	n.wakeKeeper()
}

// waitTurn waits for the turn, and begins its own with f.
func (n *Node) waitTurn(f func(now time.Duration)) {
	n.mu.Lock()
	n.handOver(n.turn(f))
}

// handOver leaves what a turn has left to others: the write to the writer, the rest to the
// keeper.
func (n *Node) handOver(w *Write) {
	if w != nil {
		n.writes <- w
	}
	n.lookAgain()
}

// lookAgain leaves to the keeper what was left.
func (n *Node) lookAgain() {
	if n.inbox.Left() {
		n.wakeKeeper()
	}
}

func (n *Node) wakeKeeper() {
	select {
	case n.kept <- struct{}{}:
	default:
	}
}

// turn is one turn, of a caller who has locked mu, and gives mu back. The caller makes the
// write that it returns, or leaves it to the writer: n.writes has room, as there is one at a
// time.
func (n *Node) turn(f func(now time.Duration)) *Write {
	defer n.mu.Unlock()
	if n.ended {
		n.inbox.drop()
		return nil
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case logFailure:
			n.end(r.err)
		default: // the process ends; until then nobody may go on with a group that is broken
			n.end(fmt.Errorf("consensus: %v", r))
			panic(r)
		}
	}()
	now := n.inbox.Take(BootTime)
	if n.driver.TickDue(now) {
		clocks := readClocks()
		now = clocks.boot
		n.driver.Advance(clocks.boot, clocks.wall)
	}
	if f != nil {
		f(now)
	}
	w, err := n.driver.Turn(now, &n.inbox)
	if err != nil {
		n.end(err)
		return nil
	}
	n.alarm.set(now, n.driver.WakeAt())
	if w != nil {
		n.writing.Add(1)
	}
	return w
}

// make makes a write, without the turn. What was left in the turn before does not wait for it.
func (n *Node) make(w *Write) {
	defer n.writing.Done()
	n.lookAgain()
	began := time.Now()
	err := w.Append()
	w.took = time.Since(began)
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
	n.barriers.Stop()
	n.inbox.drop()
}

// Run drives the group until ctx ends (nil) or the log fails (an error). Then no write is
// under way any more.
func (n *Node) Run(ctx context.Context) error {
	n.alarm.timer = time.NewTimer(0)
	defer n.alarm.timer.Stop()
	var writer sync.WaitGroup
	writer.Go(n.write)
	n.handOver(n.turn(nil)) // New has locked mu
	n.keep(ctx)
	n.mu.Lock()
	n.end(nil)
	n.mu.Unlock()
	n.writing.Wait() // no turn brings another one
	close(n.writes)
	writer.Wait()
	return n.failure
}

// write makes the writes that are left to the writer, and what follows on them at once.
// Everything else that was left is the keeper's, or a write would wait for it.
func (n *Node) write() {
	for w := range n.writes {
		for w != nil {
			n.make(w)
			if w = nil; n.mu.TryLock() {
				w = n.turn(nil)
			}
		}
		n.lookAgain()
	}
}

// call is what somebody wants done in a turn. done is closed after it.
type call struct {
	f    func(now time.Duration)
	done chan struct{}
}

// do has f done in a turn of the keeper, and returns after it, unless ctx ends or the node
// stops before: f may be done later then. A broken invariant in it ends the process, whoever
// calls: net/http would recover from it.
func (n *Node) do(ctx context.Context, f func(now time.Duration)) {
	c := call{f: f, done: make(chan struct{})}
	select {
	case n.calls <- c:
	case <-ctx.Done():
		return
	case <-n.stopped:
		return
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	case <-n.stopped:
	}
}

// keep has the turns that nobody else has: the alarms, those of ticks as well, the calls,
// and what was left. It has one at a time, or a tick would wait for the others.
func (n *Node) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.stopped:
			return
		case <-n.alarm.timer.C:
			n.waitTurn(func(now time.Duration) {
				n.alarm.at = 0
				n.driver.Woken(now)
			})
		case <-n.cfg.Log.Arrived():
			n.waitTurn(func(time.Duration) { n.group.SendMore() })
		case c := <-n.calls:
			n.waitTurn(c.f)
			close(c.done)
		case <-n.kept:
			n.waitTurn(nil)
		}
	}
}

// alarm wakes the keeper. Most of what it is set for is not needed by the time that it is
// due, and a timer that is set for an earlier time may cost a system call: so it is left to
// run out, unless that would wake an idle node.
type alarm struct {
	timer *time.Timer
	at    time.Duration // boot time; 0 = it does not run
}

// alarmSoon is from when on an alarm is left to run out.
const alarmSoon = 50 * time.Millisecond

func (t *alarm) set(now, due time.Duration) {
	if t.at != 0 && (t.at == due || t.at < due && t.at < now+alarmSoon) {
		return
	}
	t.at = due
	t.timer.Reset(due - now)
}
