package consensus

import (
	"context"
	"fmt"
	"sync/atomic"
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
// After a turn its goroutine looks again for what was left meanwhile (Inbox.Left), or wakes the
// keeper: a goroutine that found the turn taken counts on it.

// turnsMax is how many turns one goroutine has in a row before the keeper goes on: it has
// work of its own.
const turnsMax = 16

// work has turns until nothing is left, or another goroutine has the turn, which then looks
// again after it. writes: this goroutine may make a write that is not long; all others are
// the writer's.
func (n *Runner) work(writes bool) {
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
			n.runBeside(func() { n.write(w) })
		}
		if !n.inbox.Left() {
			return
		}
	}
	n.wakeKeeper()
}

// waitTurn waits for the turn, and begins its own with f.
func (n *Runner) waitTurn(f func(now time.Duration)) {
	n.mu.Lock()
	n.handOver(n.turn(f))
}

// handOver leaves what a turn has left to others: the write to the writer, the rest to the
// keeper.
func (n *Runner) handOver(w *Write) {
	if w != nil {
		n.runBeside(func() { n.write(w) })
	}
	n.lookAgain()
}

// runBeside runs f beside the caller. Run waits for its end.
func (n *Runner) runBeside(f func()) {
	n.beside.Add(1)
	n.machine.Go(func() {
		defer n.leave()
		f()
	})
}

// leave is the end of what beside counts.
func (n *Runner) leave() {
	n.beside.Add(-1)
	select {
	case n.left <- struct{}{}:
	default:
	}
}

// lookAgain leaves to the keeper what was left.
func (n *Runner) lookAgain() {
	if n.inbox.Left() {
		n.wakeKeeper()
	}
}

func (n *Runner) wakeKeeper() {
	select {
	case n.kept <- struct{}{}:
	default:
	}
}

// turn is one turn, of a caller who has locked mu, and gives mu back. The caller makes the
// write that it returns, or leaves it to the writer.
func (n *Runner) turn(f func(now time.Duration)) *Write {
	defer n.mu.Unlock()
	if n.ended {
		n.inbox.drop()
		return nil
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case logFailure:
			n.end(r.error)
		default: // the process ends; until then nobody may go on with a group that is broken
			n.end(fmt.Errorf("consensus: %v", r))
			panic(r)
		}
	}()
	now := n.inbox.Take(n.machine.Boot)
	if n.driver.TickDue(now) {
		clocks := readClocks(n.machine)
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
		n.beside.Add(1)
	}
	return w
}

// make makes a write, without the turn. What was left in the turn before does not wait for it.
func (n *Runner) make(w *Write) {
	defer n.leave()
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
func (n *Runner) end(err error) {
	if n.ended {
		return
	}
	n.ended, n.failure = true, err
	n.driver.EndLease()
	close(n.stopped)
	n.barriers.Stop()
	n.states.stop()
	n.inbox.drop()
	n.wakeKeeper()
}

// Run drives the group until ctx ends (nil) or the log fails (an error). Then no write is
// under way any more.
func (n *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.alarm.timer = n.machine.AfterFunc(0, n.ring)
	defer n.alarm.timer.Stop()
	n.runBeside(func() { n.readAhead(ctx) })
	n.handOver(n.turn(nil)) // New has locked mu
	n.keep(ctx)
	n.mu.Lock()
	n.end(nil)
	n.mu.Unlock()
	cancel()
	n.awaitBeside() // no turn brings another write
	return n.failure
}

// awaitBeside waits for the end of what runs beside Run.
func (n *Runner) awaitBeside() {
	for n.beside.Load() > 0 {
		_ = n.machine.Wait(context.Background(), 0, n.left)
	}
}

// write makes a write that is left to the writer, and what follows on it at once. Everything else
// that was left is the keeper's, or a write would wait for it.
func (n *Runner) write(w *Write) {
	for w != nil {
		n.make(w)
		if w = nil; n.mu.TryLock() {
			w = n.turn(nil)
		}
	}
	n.lookAgain()
}

// readAhead has raft go on with peers for which the log was read ahead.
func (n *Runner) readAhead(ctx context.Context) {
	for n.machine.Wait(ctx, 0, n.cfg.Log.Arrived()) == nil {
		n.do(ctx, func(time.Duration) { n.group.SendMore() })
	}
}

// do has f done in a turn of the keeper, and returns after it, unless ctx ends or the node
// stops before: f may be done later then. A broken invariant in it ends the process, whoever
// calls: net/http would recover from it.
func (n *Runner) do(ctx context.Context, f func(now time.Duration)) {
	c := &call{f: f, done: make(chan struct{})}
	if ctx.Err() != nil || !n.inbox.call(c) {
		return
	}
	n.wakeKeeper()
	if n.machine.Wait(ctx, 0, c.done) != nil {
		n.inbox.giveUp(c)
	}
}

// ask is do for what has an answer. It fails with ErrStopped, or with the cause of ctx's end.
func ask[T any](ctx context.Context, n *Runner, f func(now time.Duration) T) (none T, err error) {
	answer := make(chan T, 1)
	n.do(ctx, func(now time.Duration) { answer <- f(now) })
	select {
	case t := <-answer:
		return t, nil
	default:
	}
	if n.isStopped() {
		return none, ErrStopped
	}
	return none, context.Cause(ctx)
}

// keep has the turns that nobody else has: the alarms, those of ticks as well, the calls,
// and what was left. It has one at a time, or a tick would wait for the others.
func (n *Runner) keep(ctx context.Context) {
	for n.machine.Wait(ctx, 0, n.kept) == nil && !n.isStopped() {
		if n.alarm.rang.CompareAndSwap(true, false) {
			n.waitTurn(func(now time.Duration) {
				n.alarm.at = 0
				n.driver.Woken(now)
			})
		} else if c := n.inbox.takeCall(); c != nil {
			n.answer(c)
		} else {
			n.waitTurn(nil)
		}
		if n.alarm.rang.Load() || n.inbox.called() {
			n.wakeKeeper()
		}
	}
}

// answer does a call. Its caller goes on also where the process ends with it.
func (n *Runner) answer(c *call) {
	defer close(c.done)
	n.waitTurn(c.f)
}

// ring is the alarm.
func (n *Runner) ring() {
	n.alarm.rang.Store(true)
	n.wakeKeeper()
}

// alarm wakes the keeper. Most of what it is set for is not needed by the time that it is
// due, and a timer that is set for an earlier time may cost a system call: so it is left to
// run out, unless that would wake an idle node.
type alarm struct {
	timer Timer
	at    time.Duration // boot time; 0 = it does not run
	rang  atomic.Bool   // and the keeper has not had its turn so far
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
