package agent

import (
	"context"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/operate"
)

// stateRequest asks another agent for the cluster state that it has on its disk.
const stateRequest = "state.kept"

func (a *Agent) controlStateKept(context.Context, control.Request) (operate.Done, error) {
	return operate.Done{Result: a.state.Point()}, nil
}

// leaderlessMax is after how many looks without a leader, one each second, a voter
// starts again from a newer state that another node keeps: elections take less.
const leaderlessMax = 5

// learnState asks a member that knows a newer cluster state for it. A node that was
// away may not know whoever leads now, would refuse it, and so would never get the log
// from which it learns the same. What it is told is for whom it talks to alone: Raft's
// configuration and cluster.json follow the log, unless that has brought no leader for
// long.
func (a *Agent) learnState(ctx context.Context) {
	own := a.board.State().Version
	a.leaderless++
	if a.node.Role().Leader != 0 {
		a.leaderless = 0
	}
	stuck := a.leaderless > leaderlessMax
	for _, n := range a.board.Nodes() {
		if n.ID == a.self.ID || !n.Reachable || n.StateVersion == nil {
			continue
		}
		if *n.StateVersion <= own && (!stuck || n.StateKept <= a.state.Point().Index) {
			continue
		}
		var p cluster.StatePoint
		if err := (&joiner{a: a}).request(ctx, n.ID, stateRequest, struct{}{}, &p); err != nil {
			a.logger.Debug("ask for the newer cluster state", "node", n.Name, "error", err)
			continue
		}
		if stuck && p.TakenUpBy(a.self.ID, a.data.Own().Instance, a.state.Point()) {
			a.leave(membership.Departure{State: &p})
			return
		}
		if p.State.Version > own {
			a.logger.Info("the members are others than this node's log says so far",
				"from", n.Name, "version", p.State.Version, "was", own)
			a.followMembers(p, false)
			return
		}
	}
}
