package agent

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
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// applierWait bounds the wait for a restarted mysqld to apply, which stood before.
	applierWait = 4 * time.Second
)

// actions are the requests for what operators do to nodes.
func (a *Agent) actions() map[string]operate.Handler {
	return map[string]operate.Handler{
		"switchover":           {Leader: true, Audited: true, Timeout: switchoverTimeout, Run: a.controlSwitchover},
		"switchover.target":    {Timeout: waitMax, Run: a.controlTarget},
		"log.purge":            {Audited: true, Timeout: purgeTimeout, Run: a.controlPurge},
		"restart":              {OnNode: true, Audited: true, Timeout: switchoverTimeout, Run: a.controlRestart},
		cluster.ArchiveReached: {Run: a.controlArchiveReached},
		"mysqld.installed":     {OnNode: true, Run: a.controlInstalled},
		"sessions":             {OnNode: true, Run: a.controlSessions},
		"secrets.rotate":       {Audited: true, Run: a.controlSecretsRotate},
	}
}

// controlSecretsRotate makes new internal passwords for this node. Its agent's next start
// takes them: a mysqld that is read-only lets nobody change an account while it runs.
func (a *Agent) controlSecretsRotate(_ context.Context, r control.Request) (operate.Done, error) {
	d := operate.Done{What: "rotate the secrets of " + a.self.Name, Result: cluster.SecretsRotated{Node: a.self.Name}}
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return d, err
	}
	if !a.runsMysqld() {
		return d, control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", a.self.Name)
	}
	return d, mysqld.RotateSecrets(a.data.Join(secretsFile))
}

// controlInstalled says which mysqld the next start would take.
func (a *Agent) controlInstalled(_ context.Context, r control.Request) (operate.Done, error) {
	var args cluster.InstalledRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	if !a.runsMysqld() {
		return operate.Done{}, control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", a.self.Name)
	}
	found := cluster.Installed{Node: a.self.Name}
	in, err := mysqld.Discover(a.cfg.MySQL.BaseDir, a.cfg.MySQL.User)
	if err != nil {
		return operate.Done{}, fmt.Errorf("find mysqld: %w", err)
	}
	found.Version = in.Version.String()
	// What cannot be read is not known, as before 8.4 sometimes.
	if v, err := mysqld.New(mysqld.Config{DataDir: a.data.Join("mysql")}).DataVersion(); err == nil && v != (install.Version{}) {
		found.Data = v.String()
	}
	return operate.Done{Result: found, ReadOnly: true}, nil
}

// controlRestart starts this node's mysqld again. A primary moves first, unless it
// is to be done in place.
func (a *Agent) controlRestart(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.RestartRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	args.Node = a.self.Name
	d := operate.Done{What: args.String()}
	p := a.currentProcess()
	switch {
	case !a.runsMysqld():
		return d, control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", a.self.Name)
	case p == nil:
		return d, control.Errorf(control.CodeFailed, "no mysqld runs on node %s, whose role is %s", a.self.Name, a.board.Own().Role)
	case args.MaxPause < maxPauseMin || args.MaxPause > maxPauseMax:
		return d, control.Errorf(control.CodeInvalid, "--max-pause must be %s to %s, not %s", units.Duration(maxPauseMin), units.Duration(maxPauseMax), units.Duration(args.MaxPause))
	}
	d.ReadOnly = args.DryRun
	result := cluster.Restarted{Node: a.self.Name, DryRun: args.DryRun}
	was := a.board.Own().Role
	if was == status.RolePrimary && !args.InPlace {
		s, err := a.switchover(ctx, r.By, cluster.SwitchoverRequest{DryRun: args.DryRun, MaxPause: args.MaxPause, Wait: control.Timeout})
		if err != nil {
			return d, fmt.Errorf("move the primary first: %w", err)
		}
		result.Moved = &s
	}
	began := time.Now()
	m := primary.NewOrder(r.By, false, args.MaxPause, clock.Machine{})
	if err := a.runPlan(role.Restart{Reason: "restart asked for by " + r.By, DryRun: args.DryRun}, m); err != nil {
		if args.InPlace {
			err = a.calledOff(m, err)
		}
		return d, err
	}
	if args.DryRun {
		primary := "" // another one, which it stays
		if result.Moved != nil {
			primary = result.Moved.To
		} else if was == status.RolePrimary {
			primary = a.self.Name
		}
		if result.Moved == nil || len(result.Moved.Blocks) == 0 {
			result.Notes = status.RestartNotes(a.sight(a.ownStatus()), a.self.Name, primary)
		}
		d.Result = result
		return d, nil
	}
	inc, err := a.awaitMysqld(p.Incarnation(), args.InPlace && was == status.RolePrimary)
	result.Incarnation, result.Seconds = inc, time.Since(began).Seconds()
	if err == nil {
		result.Notes = a.replicationNotes(ctx)
	}
	d.Result = result
	return d, err
}

// awaitMysqld waits until a newer mysqld than the given one replicates or serves: serves
// again, if it is to and no other node leads. Its node is elected anew for that.
func (a *Agent) awaitMysqld(than uint64, serves bool) (incarnation uint64, err error) {
	ctx, cancel := context.WithTimeout(a.ctx, a.cfg.MySQL.PromotionTimeout)
	defer cancel()
	for {
		changed := a.board.Changes()
		role := a.board.Own().Role
		raft := a.Raft.Role()
		there := role == status.RolePrimary || role == status.RoleReplica && (!serves || raft.Leader != 0 && !raft.Leading)
		if p := a.currentProcess(); p != nil && p.Incarnation() > than && there {
			return p.Incarnation(), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, control.Errorf(control.CodeUncertain, "mysqld was stopped and started, and is still %s: see the status", role)
		}
	}
}

// replicationNotes says that a replica's applier still stands, as it did before mysqld
// was started again, after the polls that would have seen it move.
func (a *Agent) replicationNotes(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, applierWait)
	defer cancel()
	ticker := time.NewTicker(applierWait / 20)
	defer ticker.Stop()
	for {
		stopped := a.board.Own().ApplierStopped
		if stopped == "" {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return []string{fmt.Sprintf("node %s does not apply, and cannot take over: %s; see the status", a.self.Name, stopped)}
		}
	}
}

// fencedBefore tells the role machine of a fence from before this start.
func (a *Agent) fencedBefore() (role.Fenced, error) {
	f, err := a.data.Fence()
	if f == nil {
		return role.Fenced{}, err
	}
	return role.Fenced{Reason: f.String()}, nil
}

// mayOpen says whether maintenance lets this node open for writes, by what is
// committed: the caller has passed a barrier.
func (a *Agent) mayOpen() error {
	m := a.Raft.Committed().State().State.Maintenance
	if m == nil || m.Primary == a.self.Name {
		return nil
	}
	return fmt.Errorf("maintenance is on since %s, by %s: only %q may open", units.Time(m.Since), m.By, m.Primary)
}
