package sim

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// life is the time from a process's start to its end. Everything that belongs to it happens on its machine's
// clock, waits while the machine stands still, and does not happen once the life has ended. Its tasks wait by
// it as their clock.
type life struct {
	n     *node
	ended bool
	tasks []*task
}

// after makes f run when the machine's clock has advanced by d.
func (l *life) after(d time.Duration, f func()) {
	paused := l.n.paused
	l.n.w.sched.after(l.n.globally(d), func() {
		if held := l.n.paused - paused; held > 0 && !l.ended {
			l.n.w.sched.after(held, func() { l.run(f) })
			return
		}
		l.run(f)
	})
}

func (l *life) run(f func()) {
	switch {
	case l.ended:
	case l.n.stalledUntil > l.n.w.sched.now:
		l.n.w.sched.at(l.n.stalledUntil, func() { l.run(f) })
	default:
		f()
		l.n.wakeReady()
	}
}

// end ends the life and, in order, what runs in it.
func (l *life) end() {
	l.ended = true
	l.n.waiting = slices.DeleteFunc(l.n.waiting, func(t *task) bool { return t.life == l })
	for _, t := range l.tasks {
		before := t.begin()
		t.stop()
		l.n.w.running = before
	}
	l.tasks = nil
}

// task is what a goroutine is in production: steps in a row, with waits between them. It is a coroutine of the
// only goroutine. Between two waits no other task runs.
type task struct {
	*coroutine
	life *life
	// done and changed are the channels for which it waits.
	done, changed <-chan struct{}
	// waits counts the waits. What would end an earlier wait does nothing.
	waits uint64
}

// taskStopped unwinds a task whose process has ended.
type taskStopped struct{}

// coroutine runs one task after the other: a new one would first have to get a stack that is large enough.
type coroutine struct {
	f     func()
	next  func() (ended, more bool)
	stop  func()
	yield func(ended bool) bool
}

func newCoroutine() *coroutine {
	c := &coroutine{}
	c.next, c.stop = iter.Pull(func(yield func(bool) bool) {
		defer func() {
			if r := recover(); r != nil && r != (taskStopped{}) {
				panic(r)
			}
		}()
		c.yield = yield
		for c.f(); yield(true); c.f() {
		}
	})
	return c
}

// start begins a task, at once, up to its first wait.
func (l *life) start(f func()) {
	t := &task{life: l}
	if idle := l.n.w.idle; len(idle) > 0 {
		t.coroutine, l.n.w.idle = idle[len(idle)-1], idle[:len(idle)-1]
	} else {
		t.coroutine = newCoroutine()
	}
	t.f = f
	l.tasks = append(l.tasks, t)
	t.resume()
}

func (t *task) resume() {
	before := t.begin()
	ended, more := t.next()
	w := t.life.n.w
	w.running = before
	if !ended && more {
		return
	}
	t.life.tasks = slices.DeleteFunc(t.life.tasks, func(o *task) bool { return o == t })
	if more {
		w.idle = append(w.idle, t.coroutine)
	}
}

// begin makes t the running task. It returns the task that ran before, which may be in the middle of a step.
func (t *task) begin() (before *task) {
	w := t.life.n.w
	before, w.running = w.running, t
	return before
}

// Go implements clock.Tasks.
func (l *life) Go(f func()) { l.after(l.n.hiccup(), func() { l.start(f) }) }

// Now implements clock.Clock.
func (l *life) Now() time.Duration { return l.n.now() }

// WithTimeout implements clock.Clock.
func (l *life) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.after(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { cancel(nil) }
}

// Wait implements clock.Clock for the running task.
func (l *life) Wait(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	t := l.n.w.running
	switch {
	case t == nil || t.life != l:
		panic("only a task of a process waits by its clock")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ready(changed):
		return nil
	}
	t.waits++
	t.done, t.changed = ctx.Done(), changed
	if d > 0 {
		n := t.waits
		l.after(d, func() { t.wake(n) })
	}
	if t.done != nil || t.changed != nil {
		l.n.waiting = append(l.n.waiting, t)
	}
	if !t.yield(false) {
		panic(taskStopped{})
	}
	return context.Cause(ctx)
}

var _ clock.Tasks = (*life)(nil)

// sleep waits for d. await waits for d (0 = without a limit) or a signal.
func (l *life) sleep(d time.Duration)            { _ = l.Wait(context.Background(), d, nil) }
func (l *life) await(d time.Duration, s *signal) { _ = l.Wait(context.Background(), d, s.next()) }

// late is the clock of tasks that get a processor a little later than what they waited for.
type late struct{ *life }

// Wait implements clock.Clock.
func (l late) Wait(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	err := l.life.Wait(ctx, d, changed)
	l.sleep(l.n.hiccup())
	return err
}

// raftMachine is the consensus.Machine of a node.
type raftMachine struct {
	late
	disk *writtenLog
}

// Boot and the methods below implement consensus.Machine. A turn begins with a look at the clock: from then on
// its goroutine does not answer for a write any more.
func (m raftMachine) Boot() time.Duration {
	m.disk.answers = false
	return m.n.now()
}
func (m raftMachine) Wall() time.Duration { return m.n.wall() }
func (m raftMachine) Random() uint64      { return m.n.rng.Uint64() }
func (m raftMachine) AfterFunc(d time.Duration, f func()) consensus.Timer {
	t := &timer{life: m.life, f: f}
	t.Reset(d)
	return t
}

// timer is a time.Timer.
type timer struct {
	life *life
	f    func()
	sets uint64 // how often it was set or stopped
}

// Reset implements consensus.Timer.
func (t *timer) Reset(d time.Duration) bool {
	t.sets++
	n := t.sets
	t.life.after(max(0, d), func() {
		if t.sets == n {
			t.f()
		}
	})
	return true
}

// Stop implements consensus.Timer.
func (t *timer) Stop() bool {
	t.sets++
	return true
}

// wake makes a task go on, if it is still in its nth wait.
func (t *task) wake(n uint64) {
	t.life.after(0, func() {
		if t.waits == n {
			t.waits++
			if t.done != nil || t.changed != nil {
				t.life.n.waiting = slices.DeleteFunc(t.life.n.waiting, func(o *task) bool { return o == t })
			}
			t.resume()
		}
	})
}

// wakeReady wakes the tasks on a machine whose channel is ready, or whose context has ended, in the order in
// which they began to wait. It is called after anything has happened on that machine.
func (n *node) wakeReady() {
	for i := 0; i < len(n.waiting); {
		t := n.waiting[i]
		if !ready(t.done) && !ready(t.changed) {
			i++
			continue
		}
		n.waiting = slices.Delete(n.waiting, i, i+1)
		t.wake(t.waits)
	}
}

func ready(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// signal wakes all tasks that wait for it.
type signal struct{ fired chan struct{} }

func (s *signal) next() <-chan struct{} {
	if s.fired == nil {
		s.fired = make(chan struct{})
	}
	return s.fired
}

func (s *signal) fire() {
	if s.fired != nil {
		close(s.fired)
		s.fired = nil
	}
}
