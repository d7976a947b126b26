package agent

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/sys/clock"
)

// repairTrouble is what board.SetTrouble knows it by why nodes are not rebuilt.
const repairTrouble = "nodes that are not rebuilt"

// repairNodes has nodes rebuilt, as the leader, that cannot go on with the data that
// they have, if the cluster's settings let it: just as an operator would. Its status
// says why one is not.
func (a *Agent) repairNodes(ctx context.Context) {
	if !a.node.Role().Leading {
		a.repair.Follow()
		a.board.SetTrouble(repairTrouble, "")
		return
	}
	first, state := a.log.Segments()[0].FirstIndex, a.node.Committed().State().State
	held := a.repair.Look(clock.Machine{}.Now(), membership.Repairs{
		Self: a.self.ID, State: state, Nodes: a.board.Nodes(), First: first, Known: a.data.known,
		Holder: func(away func(string) bool) (string, int64) { return a.purger.Holder(state, away) },
	}, func(m cluster.Member, why string) error { return a.repairNode(ctx, m, why, state.Version) })
	for id, text := range held {
		if text != a.repairHeld[id] {
			a.logger.Warn(text)
		}
	}
	a.repairHeld = held
	a.board.SetTrouble(repairTrouble, strings.Join(slices.Sorted(maps.Values(held)), "; "))
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
	a.logger.Warn("a node is rebuilt", "node", m.Name, "reason", why)
	return nil
}
