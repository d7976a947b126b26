package consensus

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// A goroutine that has work does it itself: the reader of a peer's connection, the tap's reader, or the keeper.
// It takes the turn, or leaves its work in the inbox for the goroutine that has the turn. So a commit passes
// through few goroutines:
//
//	leader    tap's reader: propose, send to the peers, write and fsync, read on
//	          reader of a peer's answer: commit, ACK to mysqld, read on
//	follower  reader of the leader's appends: step, write and fsync, answer, read on
//
// The turn is free while a write is made. So heartbeats go on while the disk hangs, and whatever comes
// meanwhile goes into the next write, as one group commit. Votes, and answers to appends, are sent once they
// are stored: they wait for the disk. A goroutine that reads votes and heartbeats waits for no write: the
// writer makes the writes that follow from them.
//
// After a turn, its goroutine looks again for work that came meanwhile (Inbox.Left), or wakes the keeper. A
// goroutine that found the turn taken relies on that.

// turnsMax is how many turns one goroutine takes in a row. Then the keeper goes on: the goroutine has work of
// its own.
const turnsMax = 16

// work takes turns until nothing is left, or until another goroutine has the turn. That goroutine looks again
// after its turn. writes: this goroutine may make one write that is not long. The writer makes all other
// writes.
func (n *Runner) work(writes bool) {
	for range turnsMax {
		if !n.mu.TryLock() {
			return
		}
		switch w := n.turn(nil); {
		case w == nil:
		case writes && !w.long():
			n.make(w)
			writes = false // this goroutine has the next messages to read
		default:
			n.runBeside(func() { n.write(w) })
		}
		if !n.inbox.Left() {
			return
		}
	}
	n.wakeKeeper()
}

// waitTurn waits for the turn. The turn begins with f.
func (n *Runner) waitTurn(f func(now time.Duration)) {
	n.mu.Lock()
	n.handOver(n.turn(f))
}

// handOver leaves the rest of a turn's work to others: the write to the writer, everything else to the keeper.
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

// leave notes that something that beside counts has ended.
func (n *Runner) leave() {
	n.beside.Add(-1)
	select {
	case n.left <- struct{}{}:
	default:
	}
}

// lookAgain wakes the keeper if work is left.
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

// turn takes one turn. The caller has locked mu; turn unlocks it. The caller makes the write that turn returns,
// or leaves it to the writer.
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
		default: // the process ends; until then no goroutine may go on with a broken group
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

// make makes a write, without the turn. Work that is still in the inbox does not wait for it.
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

// end stops the node. The caller holds mu.
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

// Run drives the group until ctx ends (nil) or the log fails (an error). When Run returns, no write is under
// way.
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
	n.awaitBeside() // no turn starts another write
	return n.failure
}

// awaitBeside waits until everything that runs beside Run has ended.
func (n *Runner) awaitBeside() {
	for n.beside.Load() > 0 {
		_ = n.machine.Wait(context.Background(), 0, n.left)
	}
}

// write makes a write that was left to the writer, and then the next writes that are ready. Everything else is
// left to the keeper, or a write would wait for it.
func (n *Runner) write(w *Write) {
	for w != nil {
		n.make(w)
		if w = nil; n.mu.TryLock() {
			w = n.turn(nil)
		}
	}
	n.lookAgain()
}

// readAhead makes raft go on with peers when the log has read ahead for them.
func (n *Runner) readAhead(ctx context.Context) {
	for n.machine.Wait(ctx, 0, n.cfg.Log.Arrived()) == nil {
		n.do(ctx, func(time.Duration) { n.group.SendMore() })
	}
}

// do runs f in a turn of the keeper and returns after that. It returns earlier if ctx ends or the node stops:
// then f may still run later. If f breaks an invariant, the process ends, whichever goroutine called do:
// net/http would recover from a panic.
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

// ask is do for a function with a result. It fails with ErrStopped, or with the cause of ctx's end.
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

// keep takes the turns that no other goroutine takes: for alarms (ticks among them), for calls, and for what is
// left over. It does one of these at a time, or a tick would wait for the others.
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

// answer runs a call. Its caller is woken even if the call ends the process.
func (n *Runner) answer(c *call) {
	defer close(c.done)
	n.waitTurn(c.f)
}

// ring is called when the alarm is due.
func (n *Runner) ring() {
	n.alarm.rang.Store(true)
	n.wakeKeeper()
}

// alarm wakes the keeper. Most alarms are not needed any more when they are due, and setting a timer to another
// time may cost a system call. So a timer that is set for an earlier time is left to run out, unless that would
// wake an idle node.
type alarm struct {
	timer Timer
	at    time.Duration // boot time; 0 = it does not run
	rang  atomic.Bool   // it has rung, and the keeper has not had its turn for that yet
}

// alarmSoon: an alarm that is due sooner than this is left to run out.
const alarmSoon = 50 * time.Millisecond

func (t *alarm) set(now, due time.Duration) {
	if t.at != 0 && (t.at == due || t.at < due && t.at < now+alarmSoon) {
		return
	}
	t.at = due
	t.timer.Reset(due - now)
}
