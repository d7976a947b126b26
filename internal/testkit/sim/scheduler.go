package sim

import "time"

// scheduler is virtual time: a heap of events by time. Events of one instant happen in the order
// in which they were added.
type scheduler struct {
	now    time.Duration
	seq    uint64
	events []event
	ran    uint64
}

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

func (e event) before(f event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// at calls f at a time, or now if that time has passed.
func (s *scheduler) at(t time.Duration, f func()) {
	s.seq++
	s.events = append(s.events, event{max(t, s.now), s.seq, f})
	for i := len(s.events) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s.events[i].before(s.events[parent]) {
			break
		}
		s.events[i], s.events[parent] = s.events[parent], s.events[i]
		i = parent
	}
}

func (s *scheduler) after(d time.Duration, f func()) { s.at(s.now+d, f) }

// runUntil runs all events up to a time, and sets the clock to that time.
func (s *scheduler) runUntil(end time.Duration) {
	for len(s.events) > 0 && s.events[0].at <= end {
		e := s.pop()
		s.now = e.at
		s.ran++
		e.run()
	}
	s.now = end
}

func (s *scheduler) pop() event {
	first, last := s.events[0], len(s.events)-1
	s.events[0] = s.events[last]
	s.events[last] = event{}
	s.events = s.events[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if s.events[child].before(s.events[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		s.events[i], s.events[least] = s.events[least], s.events[i]
		i = least
	}
}
