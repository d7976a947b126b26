package netlab

import (
	"math/rand/v2"
	"time"
)

// Limits of one direction. At 15 ms one-way and a gigabyte
// per second, 15 MB are under way; at 500 000 packets per second, 7500 packets. A network
// of six nodes has 30 directions: half a gigabyte if all of them were full,
// but two processors cannot fill them all.
const (
	queueBytesMax   = 16 << 20
	queuePacketsMax = 32 << 10
	// lineWaitMax is the buffer in front of a line with a rate, as time.
	lineWaitMax = 100 * time.Millisecond
)

// verdict says what happened to a packet at the entry of a queue.
type verdict int

const (
	queued verdict = iota
	lost           // by LossPerMille
	cutOff         // by Cut
	full           // drop-tail
)

// packet is a packet under way. Times are since an origin that the owner chooses.
type packet struct {
	release time.Duration
	buffer  []byte
}

// queue is one direction of a link: first in, first out. It is pure: it takes
// the time and the dice from its caller.
type queue struct {
	link     Link
	packets  ring
	bytes    int
	lineFree time.Duration // when the line has sent all that it was given
	last     time.Duration // release of the newest packet: no packet overtakes
}

// judge decides about a packet of size bytes that arrives now. If the packet is queued, it returns the time of its
// release.
func (q *queue) judge(now time.Duration, size int, dice *rand.Rand) (time.Duration, verdict) {
	switch {
	case q.link.Cut:
		return 0, cutOff
	case q.bytes+size > queueBytesMax || q.packets.len() >= queuePacketsMax:
		return 0, full
	case q.link.LossPerMille > 0 && dice.IntN(1000) < q.link.LossPerMille:
		return 0, lost
	}
	release := now
	if rate := q.link.RateBytesPerSecond; rate > 0 {
		start := max(now, q.lineFree)
		if start-now > lineWaitMax {
			return 0, full
		}
		q.lineFree = start + time.Duration(float64(size)/float64(rate)*float64(time.Second))
		release = q.lineFree
	}
	release += q.link.Delay
	if j := q.link.Jitter; j > 0 {
		release += time.Duration(dice.Int64N(int64(2*j)+1)) - j
	}
	q.last = max(release, q.last)
	return q.last, queued
}

func (q *queue) push(p packet) {
	q.packets.push(p)
	q.bytes += len(p.buffer)
}

// next returns the time at which the oldest packet is released.
func (q *queue) next() (time.Duration, bool) {
	if q.packets.len() == 0 {
		return 0, false
	}
	return q.packets.front().release, true
}

// pop takes the oldest packet if it is due.
func (q *queue) pop(now time.Duration) (packet, bool) {
	if release, ok := q.next(); !ok || release > now {
		return packet{}, false
	}
	p := q.packets.pop()
	q.bytes -= len(p.buffer)
	return p, true
}

// ring is a queue of packets in a circular buffer, which grows as needed;
// queuePacketsMax bounds it.
type ring struct {
	slots       []packet
	head, count int
}

func (r *ring) len() int       { return r.count }
func (r *ring) front() *packet { return &r.slots[r.head] }

func (r *ring) push(p packet) {
	if r.count == len(r.slots) {
		grown := make([]packet, max(64, 2*len(r.slots)))
		n := copy(grown, r.slots[r.head:])
		copy(grown[n:], r.slots[:r.head])
		r.slots, r.head = grown, 0
	}
	r.slots[(r.head+r.count)%len(r.slots)] = p
	r.count++
}

func (r *ring) pop() packet {
	p := r.slots[r.head]
	r.slots[r.head] = packet{}
	r.head = (r.head + 1) % len(r.slots)
	r.count--
	return p
}
