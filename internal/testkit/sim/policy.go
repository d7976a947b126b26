package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/entry"
)

const (
	// dropAfter is the drop-after of nodes whose require-ack degrades: short enough
	// for faults to outlast it.
	dropAfter = 2 * time.Second
	// policyChangeMean is the mean time between two changes of the policy.
	policyChangeMean = 1500 * time.Millisecond
	// stateEvery is how often cluster.json is written: more often than in production.
	stateEvery = time.Second
)

// assignPolicy gives three of eight worlds a policy: ACKs wait for more than a majority. In some of these
// worlds an operator changes the policy again and again.
func (w *World) assignPolicy() {
	rng := w.random(streamPolicy)
	kind, node := rng.IntN(16), rng.IntN(w.initialNodes)
	durability := cluster.DurabilityMajority
	switch kind {
	case 0:
		durability = cluster.DurabilityAll
	case 1:
		if w.membersChange { // an added node has no site
			break
		}
		durability = cluster.DurabilitySiteMajority
		w.assignSites()
	case 2, 3:
		w.nodes[node].member.RequireAck = true
		if kind == 3 {
			w.nodes[node].member.DropAfter = dropAfter
		}
	case 4, 5:
		if !w.membersChange {
			w.policyChanges = true
			w.assignSites()
		}
	}
	s := cluster.NewState(w.members()[:w.initialNodes])
	s.Durability = durability
	w.initial = s
}

// absences are additional faults: a node whose require-ack may be dropped is away for longer than its
// drop-after.
func (w *World) absences(from, until time.Duration) (faults []fault) {
	if w.options.Losses > 0 {
		return nil
	}
	rng := w.random(streamAbsences)
	for _, n := range w.nodes {
		for at := from; n.member.DropAfter > 0 && at < until; at += 4*time.Second + around(rng, 4*time.Second) {
			faults = append(faults, fault{
				at: at, kind: []faultKind{killAgent, losePower, isolate}[rng.IntN(3)], target: n.id,
				lasts: 2*dropAfter + around(rng, time.Second), size: rng.IntN(100),
			})
		}
	}
	return faults
}

func (w *World) assignSites() {
	for i, n := range w.nodes {
		n.member.Site = []string{"x", "x", "y"}[i%3]
	}
}

// describePolicy says what an ACK needs beside the commit; "" = nothing.
func (w *World) describePolicy() (text string) {
	if w.policyChanges {
		return fmt.Sprintf("%d policies", len(w.check.policies)-1)
	}
	if w.initial.Durability != cluster.DurabilityMajority {
		text = string(w.initial.Durability)
	}
	for _, n := range w.nodes {
		if n.member.RequireAck {
			text += fmt.Sprintf("require-ack of n%d, %s", n.id, n.member.Degrade())
		}
	}
	return text
}

// changePolicy is an operator who changes the policy from time to time, by asking the leader.
func (w *World) changePolicy(rng *rand.Rand, until time.Duration) {
	w.sched.after(around(rng, policyChangeMean), func() {
		if w.sched.now > until {
			return
		}
		w.changes++
		c := cluster.Change{ID: fmt.Sprint(w.changes), By: "operator"}
		node := w.nodes[rng.IntN(len(w.nodes))].member.Name
		required, after := rng.IntN(2) == 0, time.Duration(rng.IntN(2))*dropAfter
		switch rng.IntN(5) {
		case 0:
			c.Durability = new(cluster.DurabilityAll)
		case 1:
			c.Durability = new(cluster.DurabilitySiteMajority)
		case 2:
			c.Durability = new(cluster.DurabilityMajority)
		default:
			c.Node = &cluster.NodeChange{Name: node, RequireAck: &required}
			if required {
				c.Node.DropAfter = &after
			}
		}
		if a := w.primary().agent; a != nil {
			a.life.Go(func() { _ = a.propose(context.Background(), "change", c) })
		}
		w.changePolicy(rng, until)
	})
}

// propose makes a change of the cluster state be committed.
func (a *agent) propose(ctx context.Context, what string, c cluster.Change) error {
	ctx, cancel := a.life.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := a.Raft.ProposeState(ctx, c)
	a.n.log(what, "%s: %v", c, err)
	return err
}

// startState is the cluster state with which an agent starts.
func (a *agent) startState() *cluster.StatePoint {
	p := a.n.state(a.log.FirstIndex())
	if p.State.Version == 0 {
		p.State = a.w.initial.Clone() // as all nodes are configured
	}
	return &p
}

// runState writes cluster.json at intervals.
func (a *agent) runState() {
	for {
		a.life.await(stateEvery, &a.stateChanged)
		a.KeepState()
	}
}

// onAckEvent notes that a require-ack is dropped, or is in force again.
func (a *agent) onAckEvent(e cluster.AckEvent) {
	a.n.log("require-ack", "%s", e.Text)
	for _, n := range a.w.nodes {
		if n.member.Name == e.Node {
			a.n.check.droppedAck(a, n, e.Dropped)
		}
	}
}

// policy is a cluster state, and the index of the log from which on it is in force.
type policy struct {
	index uint64
	state cluster.State
}

// changed takes a committed change of the cluster state. Of several changes of the same state, the first
// counts.
func (c *checker) changed(index uint64, h entry.Header, body []byte) {
	change, err := entry.ParseState(h, body)
	if err != nil {
		c.w.fail("I2", "committed entry %d: %v", index, err)
	}
	c.swap(index, change)
}

func (c *checker) swap(index uint64, change cluster.StateChange) {
	if last := c.policies[len(c.policies)-1].state; change.State.Version == last.Version+1 {
		c.policies = append(c.policies, policy{index, change.State})
		if change.Change.Membership != nil {
			c.membersChanged(last, change)
		}
	}
}

// policyOf returns the policy that a node has to obey: that of its committed log, or of its cluster.json, which
// survives a loss of power.
func (c *checker) policyOf(a *agent) (s cluster.State) {
	point := a.Raft.Committed().State()
	commit := max(point.Index, point.Through)
	for _, p := range c.policies {
		if p.index <= commit {
			s = p.state
		}
	}
	return s
}

// droppedAck notes that a leader drops a node's require-ack, or that it is in force again.
func (c *checker) droppedAck(a *agent, n *node, dropped bool) {
	m, err := c.policyOf(a).Member(n.member.Name)
	if err != nil {
		c.w.fail("policy", "n%d: %v", a.n.id, err)
	}
	if dropped && (!m.RequireAck || m.DropAfter == 0) {
		c.w.fail("policy", "n%d drops the require-ack of n%d, which is to be waited for: %+v", a.n.id, n.id, m)
	}
	if c.dropped[a] == nil {
		c.dropped[a] = map[*node]bool{}
	}
	if c.dropped[a][n] == dropped {
		c.w.fail("policy", "n%d says twice that the require-ack of n%d is dropped: %t", a.n.id, n.id, dropped)
	}
	c.dropped[a][n] = dropped
	if dropped {
		c.w.ackDrops++
	}
}

// released checks the ACKs that a leader sends, at the moment when it sends them: their transactions are
// committed, and on the disks that the policy names.
func (c *checker) released(a *agent, index uint64) {
	if index > uint64(len(c.entries)) {
		c.w.fail("policy", "n%d acknowledges entry %d, nobody has committed it", a.n.id, index)
	}
	c.releasedBy[a.n] = max(c.releasedBy[a.n], index)
	s, term := c.policyOf(a), c.entries[index-1].term
	sites := map[string]bool{}
	lacks := ""
	for _, m := range s.Members {
		n := c.w.node(m.ID)
		switch {
		case n.durable.has(index, term) && m.Votes():
			sites[m.Site] = true
		case n.durable.has(index, term):
		case s.Durability == cluster.DurabilityAll && m.Votes(), m.RequireAck && (m.DropAfter == 0 || !c.dropped[a][n]):
			lacks += fmt.Sprintf(" n%d", n.id)
		}
	}
	if s.Durability == cluster.DurabilitySiteMajority && len(sites) < 2 {
		lacks += " another site"
	}
	if lacks != "" {
		c.w.fail("policy", "n%d acknowledges entry %d of term %d without%s, durability %s", a.n.id, index, term, lacks, s.Durability)
	}
}

// samePolicy fails unless a node has the newest committed policy.
func (c *checker) samePolicy(n *node) {
	last, point := c.policies[len(c.policies)-1], n.agent.Raft.Committed().State()
	want, got := last.state, point.State
	if point.Through < last.index {
		return // it is still on its way
	}
	if got.Version != want.Version || got.Durability != want.Durability {
		c.w.fail("agreement", "n%d has version %d of the state, durability %s, committed is %d, %s",
			n.id, got.Version, got.Durability, want.Version, want.Durability)
	}
}
