package sim

import (
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
	if d == nil || d.Superseded != nil || d.State != nil || n.blank() || c.w.losses != nil {
		return
	}
	for _, id := range append(c.state().Voters(), c.votersBefore...) {
		if o := c.w.node(id); o != n && !o.blank() && !o.keeps().counts(n) {
			return
		}
	}
	c.w.fail("gives-up", "n%d gives up its data (%v), and no voter has on its disk that it may", n.id, d)
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
