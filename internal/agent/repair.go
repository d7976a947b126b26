package agent

import (
	"context"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/replay"
)

// repairTrouble is what board.SetTrouble knows it by why nodes are not rebuilt.
const repairTrouble = "nodes that are not rebuilt"

// repairer is what a leader remembers of the nodes that it had rebuilt by itself.
// cluster.State.Repair decides. It is runMembers' alone.
type repairer struct {
	// began is when this node began to lead; zero = it does not.
	began time.Time
	// done are the newest times at which it had a node rebuilt, RepairsMax at most.
	done map[cluster.NodeID][]time.Time
	// still is since when a node is there whose mysqld does not follow the log.
	still map[cluster.NodeID]time.Time
	// said is what was logged last of each node, so that it is logged once.
	said map[cluster.NodeID]string
}

// repairNodes has nodes rebuilt, as the leader, that cannot go on with the data that
// they have, if the cluster's settings let it: just as an operator would. Its status
// says why one is not.
func (a *Agent) repairNodes(ctx context.Context) {
	r := &a.repair
	if !a.node.Role().Leading {
		r.began = time.Time{}
		a.board.SetTrouble(repairTrouble, "")
		return
	}
	now := time.Now()
	if r.done == nil {
		r.done, r.said = map[cluster.NodeID][]time.Time{}, map[cluster.NodeID]string{}
	}
	if r.began.IsZero() {
		r.began, r.still = now, map[cluster.NodeID]time.Time{}
	}
	var troubles []string
	state := a.node.Committed().State().State
	nodes := a.board.Nodes()
	sights := map[string]cluster.RepairSight{}
	var gone []cluster.NodeID
	for _, n := range nodes {
		sights[n.Name] = a.repairSight(now, n)
		if sights[n.Name].Silent() {
			gone = append(gone, n.ID)
		}
	}
	holder, bytes := a.holder(state, func(name string) bool { return name != a.self.Name && sights[name].Away() != "" })
	first := a.log.Segments()[0].FirstIndex // before what the members say: neither goes back
	for _, n := range nodes {
		m, ok := membership.Find(state, n.ID)
		if !ok || n.ID == a.self.ID {
			continue
		}
		sight := sights[n.Name]
		sight.LogBytes, sight.Holds, sight.Short, sight.Gone = bytes, holder == m.Name, membership.Short(m, n, first), gone
		why, held := state.Repair(m, sight)
		if why != "" {
			err := a.repairNode(ctx, m, why, state.Version)
			if err == nil {
				break // one at a time: the state is another one now
			}
			held = err.Error()
		}
		if held != "" {
			held = "node " + m.Name + " is not rebuilt by itself: " + held
			troubles = append(troubles, held)
		}
		if held != r.said[m.ID] && held != "" {
			a.logger.Warn(held)
		}
		r.said[m.ID] = held
	}
	a.board.SetTrouble(repairTrouble, strings.Join(troubles, "; "))
}

// repairSight is what this leader sees of a node.
func (a *Agent) repairSight(now time.Time, n cluster.NodeStatus) cluster.RepairSight {
	r := &a.repair
	heard := r.began
	if n.Role != "" {
		heard = now.Add(-time.Duration(n.AgeMs) * time.Millisecond)
	}
	if n.Reachable {
		heard = now
	}
	if n.Follows() || !n.Reachable {
		delete(r.still, n.ID)
	} else if _, ok := r.still[n.ID]; !ok {
		r.still[n.ID] = now
	}
	still := time.Duration(0)
	if since, ok := r.still[n.ID]; ok {
		still = now.Sub(since)
	}
	var repairs []time.Duration
	for _, at := range r.done[n.ID] {
		repairs = append(repairs, now.Sub(at))
	}
	emptyFor, empty := a.data.known.EmptyFor(n.ID)
	return cluster.RepairSight{
		Silence: now.Sub(heard), Still: still, Stopped: n.Stopped(),
		Empty:  empty && emptyFor < emptyAskedFor,
		Errant: n.Reachable && n.Role == cluster.RoleErrant, Saved: n.ErrantAllSaved,
		Repairs: repairs, Leaving: n.Leaving,
	}
}

// repairNode asks for what "quorate node rebuild" asks for, of the state that it was
// judged on: maintenance may have begun meanwhile, or another node be rebuilt.
func (a *Agent) repairNode(ctx context.Context, m cluster.Member, why string, judged uint64) error {
	ctx, cancel := context.WithTimeout(ctx, control.Timeout)
	defer cancel()
	_, err := a.requests.ChangeState(ctx, a.records.ByItself(), cluster.Change{Judged: judged, Membership: &cluster.MembershipChange{
		Op: cluster.OpRebuild, Name: m.Name, Instance: datadir.NewInstance(), Why: why,
	}})
	if err != nil {
		return err
	}
	done := append(a.repair.done[m.ID], time.Now())
	a.repair.done[m.ID] = done[max(0, len(done)-cluster.RepairsMax):]
	a.logger.Warn("a node is rebuilt", "node", m.Name, "reason", why)
	return nil
}

// holder is the member, of those that are away, because of which this node's log is
// longer than the cluster is to keep; "" = nobody is. Of whom this agent has not heard
// it takes what an agent here has last heard.
func (a *Agent) holder(s cluster.State, away func(name string) bool) (name string, bytes int64) {
	segments := a.log.Segments()
	for _, segment := range segments {
		bytes += segment.Bytes
	}
	if s.RetainBytesMax == 0 || bytes <= s.RetainBytesMax {
		return "", bytes
	}
	retention := replay.Retention{BytesMax: s.RetainBytesMax}
	nodes := a.heard.fill(s, a.nodes())
	return replay.Holder(nodes, bytes-s.RetainBytesMax, away, func(nodes []cluster.NodeStatus) cluster.PurgePlan {
		return a.planPurgeFor(retention, segments, nodes)
	}), bytes
}
