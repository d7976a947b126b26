package sim

import (
	"errors"
	"iter"
	"slices"
	"time"
)

// errEnded is the cause of a scope that ended for no other reason.
var errEnded = errors.New("context canceled")

// life is the time from a process's start to its end. What belongs to it
// happens on its machine's clock, waits while the machine stands still, and
// does not happen once it has ended.
type life struct {
	n     *node
	ended bool
	tasks []*task
}

// after has f run when the machine's clock has gone on by d.
func (l *life) after(d time.Duration, f func()) {
	l.n.w.sched.after(l.n.globally(d), func() { l.run(f) })
}

func (l *life) run(f func()) {
	switch {
	case l.ended:
	case l.n.stalledUntil > l.n.w.sched.now:
		l.n.w.sched.at(l.n.stalledUntil, func() { l.run(f) })
	default:
		f()
	}
}

// every has f run at each multiple of a period, like a time.Ticker: what falls
// into a standstill comes once, after it.
func (l *life) every(period time.Duration, f func()) {
	next := l.n.now() + period
	var tick func()
	tick = func() {
		f()
		for next <= l.n.now() {
			next += period
		}
		l.after(next-l.n.now(), tick)
	}
	l.after(period, tick)
}

// end ends the life and, in order, what runs in it.
func (l *life) end() {
	l.ended = true
	for _, t := range l.tasks {
		t.stop()
	}
	l.tasks = nil
}

// task is what a goroutine is in production: steps in a row, with waits between
// them. It is a coroutine of the one goroutine there is, which it has between
// two waits for itself.
type task struct {
	life  *life
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	// waits counts the waits: what ends an earlier one does nothing.
	waits uint64
}

// taskStopped unwinds a task whose process has ended.
type taskStopped struct{}

// start begins a task, at once, up to its first wait.
func (l *life) start(f func(t *task)) {
	t := &task{life: l}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil && r != (taskStopped{}) {
				panic(r)
			}
		}()
		t.yield = yield
		f(t)
	})
	l.tasks = append(l.tasks, t)
	t.resume()
}

func (t *task) resume() {
	if _, waiting := t.next(); !waiting {
		t.life.tasks = slices.DeleteFunc(t.life.tasks, func(o *task) bool { return o == t })
	}
}

// wait returns once one of the signals comes, d has passed (0 = never) or the
// scope has ended, whose cause it returns.
func (t *task) wait(sc *scope, d time.Duration, signals ...*signal) error {
	if sc.cause != nil {
		return sc.cause
	}
	t.waits++
	n := t.waits
	wake := func() {
		t.life.after(0, func() {
			if t.waits == n {
				t.waits++
				t.resume()
			}
		})
	}
	if d > 0 {
		t.life.after(d, wake)
	}
	sc.done.add(t, wake)
	for _, s := range signals {
		s.add(t, wake)
	}
	if !t.yield(struct{}{}) {
		panic(taskStopped{})
	}
	return sc.cause
}

// signal wakes everybody who waits for it.
type signal struct{ waiting []waiter }

type waiter struct {
	task *task // nil: nobody who may come to wait again
	wake func()
}

func (s *signal) add(t *task, wake func()) {
	i := slices.IndexFunc(s.waiting, func(w waiter) bool { return t != nil && w.task == t })
	if i >= 0 { // of an earlier wait
		s.waiting[i].wake = wake
		return
	}
	s.waiting = append(s.waiting, waiter{t, wake})
}

func (s *signal) fire() {
	woken := s.waiting
	s.waiting = nil
	for _, w := range woken {
		w.wake()
	}
}

// scope is what a context is in production.
type scope struct {
	cause error
	done  signal
}

// within returns a scope that ends with sc, and after d (0 = never).
func (l *life) within(sc *scope, d time.Duration) *scope {
	inner := &scope{cause: sc.cause}
	sc.done.add(nil, func() { inner.end(sc.cause) })
	if d > 0 {
		l.after(d, func() { inner.end(errors.New("context deadline exceeded")) })
	}
	return inner
}

// end ends the scope, with a cause unless it has one.
func (sc *scope) end(cause error) {
	if sc.cause == nil {
		sc.cause = cause
		sc.done.fire()
	}
}
