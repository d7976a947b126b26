package sim

import (
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
)

// joinedAs checks a node that goes on over copied data. The cluster gives an instance to a node for one data
// directory only: the peers count on what was promised in that.
func (c *checker) joinedAs(n *node) {
	instance := n.instance()
	if c.w.joinedAs[instance] {
		c.w.fail("directory", "n%d joins once more as %s: it was a member as that, and has lost what it promised", n.id, instance)
	}
	c.w.joinedAs[instance] = true
}

// offers checks the answer of a member that is asked what it has for a joining node. The cluster state in the
// answer must not be older than the newest one that is committed now.
func (c *checker) offers(by, to *node) (said func(*join.Offer)) {
	since := c.policies[len(c.policies)-1].index
	return func(o *join.Offer) {
		if o.Node != "" && o.State.Index < since {
			c.w.fail("plan", "n%d offers n%d the cluster state of entry %d, that of entry %d was committed before", by.id, to.id, o.State.Index, since)
		}
	}
}

// givesUp checks a node that is about to give up its data, because it was removed or will be rebuilt. Some
// voter must have on its disk that the node's vote is gone. Else all voters could forget that, and wait for
// that vote.
func (c *checker) givesUp(n *node, d *membership.Departure) {
	if d == nil || d.Superseded != nil || d.State != nil || n.blank() {
		return
	}
	if c.w.losses != nil {
		c.givesUpTo(n, d)
		return
	}
	for _, id := range append(c.state().Voters(), c.votersBefore...) {
		if o := c.w.node(id); o != n && !o.blank() && !o.keeps().counts(n) {
			return
		}
	}
	c.w.fail("gives-up", "n%d gives up its data (%v), and no voter has on its disk that it may", n.id, d)
}

// givesUpTo is givesUp for worlds in which nodes are recovered. A node gives up its data only for its own
// cluster, or for a recovery that it has accepted.
func (c *checker) givesUpTo(n *node, d *membership.Departure) {
	m, ok := c.state().MemberByID(n.id)
	if ok && (m.Instance == "" || m.Instance == n.instance()) && n.home.Own().Superseded == nil {
		c.w.fail("recovery", "n%d gives up its data (%v) for a cluster that was recovered without it", n.id, d)
	}
}

// keptState is the content of a node's cluster.json.
type keptState cluster.State

// keeps returns the cluster state that a node has on its disk.
func (n *node) keeps() keptState {
	left := n.disk.callsLeft
	p := n.state(1)
	n.disk.callsLeft = left // this look is not a new process
	return keptState(p.State)
}

// counts tells whether the state counts on the data of a node.
func (s keptState) counts(n *node) bool {
	m, ok := cluster.State(s).MemberByID(n.id)
	return ok && m.Votes() && (m.Instance == "" || m.Instance == n.instance())
}

// toldWithin is how long a node that is to begin again may go on as it is while nothing keeps its leader from telling it so:
// the log does, or a handshake (membership.Reminder).
const toldWithin = 7 * time.Second

// toldNode is a node that is to begin again, as its leader knows.
type toldNode struct {
	leader, node *agent
	since        time.Duration
}

// toBeginAnew tells whether a state has a node begin again that is still as it was.
func toBeginAnew(p cluster.StatePoint, n *node) bool {
	m, ok := p.State.MemberByID(n.id)
	return ok && !slices.Contains(p.Outgoing, n.id) && m.Instance != "" && m.Instance != n.instance()
}

// looksAtTold looks at the nodes that are to begin again.
func (w *World) looksAtTold(seen map[*node]toldNode) {
	w.sched.after(500*time.Millisecond, func() {
		leader := w.primary().agent
		for _, n := range w.nodes {
			a, t := n.agent, seen[n]
			switch {
			case a == nil || leader == nil || a == leader || !leader.Raft.Role().Leading || !leader.tells(n) ||
				!w.net.sound(n.id, leader.n.id) || !a.well() || !leader.well():
				delete(seen, n)
			case t.leader != leader || t.node != a:
				seen[n] = toldNode{leader, a, w.sched.now}
			case w.sched.now > t.since+toldWithin:
				w.fail("members", "n%d is to begin again since %v, and n%d, which leads and reaches it, did not tell it", n.id, t.since, leader.n.id)
			}
		}
		w.looksAtTold(seen)
	})
}

// tells tells whether a node is to begin again by the state that this one has on its disk.
func (a *agent) tells(n *node) bool {
	p := a.Raft.Committed().State()
	return a.kept.Point().Index >= p.Index && toBeginAnew(p, n)
}
