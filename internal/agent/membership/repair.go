package membership

import (
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// emptyAskedFor is for how long a leader assumes that a node which came with an empty
// data directory still has one.
const emptyAskedFor = 10 * time.Second

// Repairer is what a leader remembers of the nodes that it had rebuilt by itself.
// cluster.State.Repair decides. Only one goroutine may use it. Its zero value is ready.
type Repairer struct {
	// led: this node leads.
	led bool
	// began is when this node began to lead.
	began time.Duration
	// done are the newest times at which it had a node rebuilt, RepairsMax at most.
	done map[cluster.NodeID][]time.Duration
	// still is since when a node has been reachable and its mysqld has not followed the log, or since when it has
	// refused the cluster state.
	still map[cluster.NodeID]time.Duration
}

// Repairs is what a leader sees.
type Repairs struct {
	Self  cluster.NodeID
	State cluster.State
	Nodes []status.Node
	// First is the first index of its log. It was read before Nodes: neither goes back.
	First uint64
	Known *Directories
	// Holder returns the member, of those that are away, because of which its log is longer
	// than the cluster is to keep, if there is one; and how long the log is.
	Holder func(away func(name string) bool) (name string, bytes int64)
}

// Follow notes that this node does not lead.
func (r *Repairer) Follow() { r.led = false }

// Look looks at the nodes, as a leader. It calls rebuild for nodes that cannot go on with the
// data that they have, if the cluster's settings allow it. It stops at the first success: the
// state is another one then. It returns why the other nodes are not rebuilt.
func (r *Repairer) Look(now time.Duration, in Repairs, rebuild func(m cluster.Member, why string) error) (held map[cluster.NodeID]string) {
	if !r.led {
		r.led, r.began, r.still = true, now, map[cluster.NodeID]time.Duration{}
	}
	sights := map[string]cluster.RepairSight{}
	// A leader that was rebuilt itself may not know that a node had data: another node does.
	empty := in.Known.Empty()
	for _, n := range in.Nodes {
		if n.Reachable {
			empty = append(empty, n.Empty...)
		}
	}
	var gone []cluster.NodeID
	for _, n := range in.Nodes {
		sights[n.Name] = r.sight(now, n, slices.Contains(empty, n.ID), in.State.Format())
		if sights[n.Name].Silent() {
			gone = append(gone, n.ID)
		}
	}
	self, _ := in.State.MemberByID(in.Self)
	holder, bytes := in.Holder(func(name string) bool { return name != self.Name && sights[name].Away() != "" })
	held = map[cluster.NodeID]string{}
	for _, n := range in.Nodes {
		m, ok := in.State.MemberByID(n.ID)
		if !ok || n.ID == in.Self {
			continue
		}
		sight := sights[n.Name]
		sight.LogBytes, sight.Holds, sight.Short, sight.Gone = bytes, holder == m.Name, Short(m, n, in.First), gone
		why, text := in.State.Repair(m, sight)
		if why != "" {
			err := rebuild(m, why)
			if err == nil {
				r.rebuilt(m.ID, now)
				return held
			}
			text = err.Error()
		}
		if text != "" {
			held[m.ID] = "node " + m.Name + " is not rebuilt by itself: " + text
		}
	}
	return held
}

func (r *Repairer) rebuilt(id cluster.NodeID, now time.Duration) {
	if r.done == nil {
		r.done = map[cluster.NodeID][]time.Duration{}
	}
	done := append(r.done[id], now)
	r.done[id] = done[max(0, len(done)-cluster.RepairsMax):]
}

// sight is what this leader sees of a node, in a cluster whose state has a format.
func (r *Repairer) sight(now time.Duration, n status.Node, empty bool, format int) cluster.RepairSight {
	heard := r.began
	if n.Role != "" {
		heard = now - time.Duration(n.AgeMs)*time.Millisecond
	}
	if n.Reachable {
		heard = now
	}
	stopped := n.Stopped()
	refuses := n.Role != "" && !n.Knows(format)
	if refuses {
		stopped = "it has an older quorate, which refuses the cluster state"
	}
	// A node that refuses the state ends its connections again and again.
	if !refuses && (n.Follows() || !n.Reachable) {
		delete(r.still, n.ID)
	} else if _, ok := r.still[n.ID]; !ok {
		r.still[n.ID] = now
	}
	still := time.Duration(0)
	if since, ok := r.still[n.ID]; ok {
		still = now - since
	}
	var repairs []time.Duration
	for _, at := range r.done[n.ID] {
		repairs = append(repairs, now-at)
	}
	return cluster.RepairSight{
		Silence: now - heard, Still: still, Stopped: stopped,
		Empty:  empty,
		Errant: n.Reachable && n.Role == status.RoleErrant, Saved: n.ErrantAllSaved,
		Repairs: repairs, Leaving: n.Leaving,
	}
}
