package switchover

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// restart starts this node's mysqld again. A primary moves first, unless the
// restart is to be done in place.
func (v *Service) restart(ctx context.Context, r control.Request, args cluster.RestartRequest) (operate.Done, error) {
	args.Node = v.self.Name
	d := operate.Done{What: args.String()}
	p := v.node.Process()
	switch {
	case v.self.Kind == cluster.KindLogger:
		return d, control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", v.self.Name)
	case p == nil:
		return d, control.Errorf(control.CodeFailed, "no mysqld runs on node %s, whose role is %s", v.self.Name, v.board.Own().Role)
	case args.MaxPause < maxPauseMin || args.MaxPause > maxPauseMax:
		return d, control.Errorf(control.CodeInvalid, "--max-pause must be %s to %s, not %s", units.Duration(maxPauseMin), units.Duration(maxPauseMax), units.Duration(args.MaxPause))
	}
	d.ReadOnly = args.DryRun
	ends := time.Now().Add(cluster.RestartMax - applierWait) // bounds all waits, so that the client hears the end
	result := cluster.Restarted{Node: v.self.Name, DryRun: args.DryRun}
	was := v.board.Own().Role
	if was == status.RolePrimary && !args.InPlace {
		s, err := v.move(ctx, r.By, cluster.SwitchoverRequest{DryRun: args.DryRun, MaxPause: args.MaxPause, Wait: control.Timeout})
		if err != nil {
			return d, fmt.Errorf("move the primary first: %w", err)
		}
		result.Moved = &s
	}
	began := time.Now()
	m := primary.NewOrder(r.By, false, args.MaxPause, clock.Machine{})
	if err := v.runPlan(role.Restart{Reason: "restart asked for by " + r.By, DryRun: args.DryRun}, m, time.Until(ends)); err != nil {
		if args.InPlace {
			err = v.calledOff(m, err)
		}
		return d, err
	}
	if args.DryRun {
		primary := "" // another node is the primary, and stays it
		if result.Moved != nil {
			primary = result.Moved.To
		} else if was == status.RolePrimary {
			primary = v.self.Name
		}
		if result.Moved == nil || len(result.Moved.Blocks) == 0 {
			result.Notes = status.RestartNotes(v.node.Sight(), v.self.Name, primary)
		}
		d.Result = result
		return d, nil
	}
	inc, err := v.awaitMysqld(p.Incarnation(), args.InPlace && was == status.RolePrimary, ends)
	result.Incarnation, result.Seconds = inc, time.Since(began).Seconds()
	if err == nil {
		result.Notes = v.replicationNotes(ctx)
	}
	d.Result = result
	return d, err
}

// awaitMysqld waits, until ends, for a mysqld that is newer than an incarnation and replicates or serves.
// serves: it has to serve again, unless another node leads; its node has to be elected again for that.
func (v *Service) awaitMysqld(than uint64, serves bool, ends time.Time) (incarnation uint64, err error) {
	ctx, cancel := context.WithTimeout(v.node.Base(), min(v.promotionTimeout, time.Until(ends)))
	defer cancel()
	for {
		changed := v.board.Changes()
		role := v.board.Own().Role
		raft := v.node.Raft().Role()
		there := role == status.RolePrimary || role == status.RoleReplica && (!serves || raft.Leader != 0 && !raft.Leading)
		if p := v.node.Process(); p != nil && p.Incarnation() > than && there {
			return p.Incarnation(), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, control.Errorf(control.CodeUncertain, "mysqld was stopped and started, and is still %s: see the status", role)
		}
	}
}

// replicationNotes says that a replica's applier still stands after mysqld was started
// again. It waits for the polls that would see it move.
func (v *Service) replicationNotes(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, applierWait)
	defer cancel()
	ticker := time.NewTicker(applierWait / 20)
	defer ticker.Stop()
	for {
		stopped := v.board.Own().ApplierStopped
		if stopped == "" {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return []string{fmt.Sprintf("node %s does not apply, and cannot take over: %s; see the status", v.self.Name, stopped)}
		}
	}
}
