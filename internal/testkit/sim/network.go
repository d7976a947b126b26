package sim

import (
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// Times of the network.
const (
	// latencyMin is the shortest latency between two machines. latencySpread is the mean of the additional
	// time.
	latencyMin    = 60 * time.Microsecond
	latencySpread = 120 * time.Microsecond
	// silenceMax is how long a connection outlives the last sign of its peer:
	// TCP_USER_TIMEOUT and the transport's idle limit.
	silenceMax = 5 * time.Second
	// redialMax is the transport's longest pause between two dials.
	redialMax = time.Second
)

// network carries all messages between machines: one link for each direction.
type network struct {
	w     *World
	rng   *rand.Rand
	links map[[2]cluster.NodeID]*link
}

// link is one direction of the network between two machines.
type link struct {
	// cut counts the faults that cut the link. held: messages that are sent meanwhile arrive after the cut,
	// because TCP sends them again; else they are lost.
	cut  int
	held bool
	wait []func()
	// Disturbances: slow is a factor of the latency, the others are odds in percent.
	slow              time.Duration
	loss, twice, late int
	// healedAt is the end of the last cut.
	healedAt time.Duration
	// arrives is when the newest message arrives. Messages keep the order of sending, except late ones.
	arrives time.Duration
}

func newNetwork(w *World, nodes int) *network {
	n := &network{w: w, rng: w.random(streamNetwork), links: map[[2]cluster.NodeID]*link{}}
	for from := range nodes {
		for to := range nodes {
			n.links[[2]cluster.NodeID{cluster.NodeID(from + 1), cluster.NodeID(to + 1)}] = &link{slow: 1}
		}
	}
	return n
}

func (n *network) link(from, to cluster.NodeID) *link { return n.links[[2]cluster.NodeID{from, to}] }

func chance(rng *rand.Rand, percent int) bool { return percent > 0 && rng.IntN(100) < percent }

// around returns a random time with the given mean. It is never 0, which Wait takes as no limit.
func around(rng *rand.Rand, mean time.Duration) time.Duration {
	return max(1, time.Duration(rng.ExpFloat64()*float64(mean)))
}

// send runs deliver each time the message arrives: once, several times, or never. It returns false if the
// sender's transport notices the loss.
func (n *network) send(from, to cluster.NodeID, deliver func()) bool {
	l := n.link(from, to)
	switch {
	case l.cut > 0 && l.held:
		if len(l.wait) < heldMax {
			l.wait = append(l.wait, deliver)
		}
		return true
	case l.cut > 0, chance(n.rng, l.loss):
		return false
	}
	n.carry(l, deliver)
	if chance(n.rng, l.twice) {
		n.carry(l, deliver)
	}
	return true
}

// heldMax bounds the messages that a cut link holds: the transport's queue to one peer.
const heldMax = 4096

func (n *network) carry(l *link, deliver func()) {
	at := n.w.sched.now + l.slow*(latencyMin+around(n.rng, latencySpread))
	if chance(n.rng, l.late) {
		at += around(n.rng, 20*time.Millisecond)
	} else {
		at = max(at, l.arrives)
		l.arrives = at
	}
	n.w.sched.at(at, deliver)
}

// cutLink cuts one direction. It returns a function that undoes the cut.
func (n *network) cutLink(from, to cluster.NodeID, held bool) (heal func()) {
	l := n.link(from, to)
	l.cut++
	l.held = held
	began := n.w.sched.now
	return func() {
		l.cut--
		if l.cut > 0 {
			return
		}
		l.healedAt = n.w.sched.now
		wait := l.wait
		l.wait = nil
		if n.w.sched.now-began > silenceMax {
			return // the connection has ended, and its bytes with it
		}
		for _, deliver := range wait {
			n.carry(l, deliver)
		}
	}
}

// connected tells whether two machines reach each other in both directions.
func (n *network) connected(a, b cluster.NodeID) bool {
	return n.link(a, b).cut == 0 && n.link(b, a).cut == 0
}

// sound tells whether the links between two nodes have no fault.
func (n *network) sound(a, b cluster.NodeID) bool {
	to, from := n.link(a, b), n.link(b, a)
	return to.cut+from.cut+to.loss+from.loss == 0 && to.slow*from.slow == 1
}
