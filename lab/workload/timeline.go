package workload

import (
	"slices"
	"time"
)

// Timeline is a prober's ledger, in the order in which attempts began.
type Timeline []Attempt

// acks are the times of the acknowledgements, in order.
func (t Timeline) acks() []time.Duration {
	var all []time.Duration
	for _, a := range t {
		if a.Outcome == Acknowledged {
			all = append(all, a.At+a.Latency)
		}
	}
	slices.Sort(all)
	return all
}

// Count is the number of attempts with an outcome.
func (t Timeline) Count(o Outcome) (n int) {
	for _, a := range t {
		if a.Outcome == o {
			n++
		}
	}
	return n
}

// Gap returns the beginning and the end of the longest time without an acknowledgement that ends after from. A gap that
// is still open at end counts, too: then ended is false.
func (t Timeline) Gap(from, end time.Duration) (start, stop time.Duration, ended bool) {
	last := time.Duration(0)
	longest := time.Duration(-1)
	take := func(at time.Duration, ack bool) {
		if at > from && at-last > longest {
			start, stop, ended, longest = last, at, ack, at-last
		}
		last = at
	}
	for _, at := range t.acks() {
		if at <= end {
			take(at, true)
		}
	}
	take(end, false)
	return start, stop, ended
}

// Next returns the time of the first acknowledgement after from; if there was none until end, it returns end and true.
func (t Timeline) Next(from, end time.Duration) (at time.Duration, none bool) {
	for _, at := range t.acks() {
		if at > from && at <= end {
			return at, false
		}
	}
	return end, true
}

// Series counts the acknowledgements of each interval until end.
func (t Timeline) Series(every, end time.Duration) []float64 {
	values := make([]float64, int(end/every))
	for _, at := range t.acks() {
		if i := int(at / every); i < len(values) {
			values[i]++
		}
	}
	return values
}

// Errors counts why attempts were not acknowledged.
func (t Timeline) Errors() map[string]int {
	all := map[string]int{}
	for _, a := range t {
		if a.Outcome != Acknowledged {
			all[a.Outcome.String()+": "+a.Err]++
		}
	}
	return all
}
