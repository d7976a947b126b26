package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/core"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/units"
)

const (
	// fenceWait bounds the wait for mysqld's end.
	fenceWait = 10 * time.Second
	// applierWait bounds the wait for a restarted mysqld to apply, which stood before.
	applierWait = 4 * time.Second
	// auditTextBytesMax bounds what an audit line says of a request.
	auditTextBytesMax = 500
)

// actions are the requests for what operators do to nodes.
func (a *Agent) actions() map[string]handler {
	return map[string]handler{
		"switchover":        {leader: true, audited: true, timeout: switchoverTimeout, run: a.controlSwitchover},
		"switchover.target": {timeout: waitMax, run: a.controlTarget},
		"restart":           {onNode: true, audited: true, timeout: switchoverTimeout, run: a.controlRestart},
		"fence":             {onNode: true, audited: true, timeout: 2 * fenceWait, run: a.controlFence},
		"unfence":           {onNode: true, audited: true, timeout: 2 * fenceWait, run: a.controlUnfence},
	}
}

// audited writes a line about what became of an operator's request here. What was
// committed has its line by that (onState).
func (a *Agent) audited(h handler, r control.Request, d done, err error) {
	if !h.audited || d.readOnly || err == nil && d.index != 0 || dryRun(r) {
		return
	}
	line := cluster.AuditEntry{At: time.Now().UTC().Truncate(time.Millisecond), By: r.By, What: d.what, Result: "done"}
	if line.What == "" {
		line.What = describe(r)
	}
	if err != nil {
		line.Result = fmt.Sprintf("not done: %.*s", auditTextBytesMax, err)
		if e, ok := errors.AsType[*control.Error](err); ok && e.Code == control.CodeUncertain {
			line.Result = fmt.Sprintf("not known: %.*s", auditTextBytesMax, err)
		}
	}
	if err := a.records.Audit.Append(line); err != nil {
		a.logger.Warn("write the audit log", "line", line.What, "by", line.By, "result", line.Result, "error", err)
	}
}

// dryRun tells whether a request asks only what it would do.
func dryRun(r control.Request) bool {
	var how cluster.Ask
	return json.Unmarshal(r.Args, &how) == nil && how.DryRun
}

// onNode finds the node that a request is about.
func (a *Agent) onNode(r control.Request) (cluster.NodeID, error) {
	var about struct {
		Node string `json:"node"`
	}
	if err := json.Unmarshal(r.Args, &about); err != nil {
		return 0, control.Errorf(control.CodeInvalid, "read the arguments of %s: %v", r.Name, err)
	}
	m, err := a.board.State().Member(about.Node)
	if err != nil {
		return 0, control.Errorf(control.CodeInvalid, "%v", err)
	}
	return m.ID, nil
}

// controlOnNode has the agent of the node that a request is about carry it out.
func (a *Agent) controlOnNode(ctx context.Context, h handler, r control.Request) control.Answer {
	id, err := a.onNode(r)
	if err != nil {
		a.audited(h, r, done{}, err)
		return a.refusal(control.CodeInvalid, "%v", err)
	}
	if id != a.self.ID {
		answer, ok := a.forward(ctx, h, id, r)
		if !ok {
			answer = a.refusal(control.CodeFailed, "node %s cannot be asked, nothing was done: %s", a.board.Name(id), answer.Error)
			a.audited(h, r, done{}, answer.Err())
		}
		return answer
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	return a.carryOut(ctx, h, r)
}

// controlRestart starts this node's mysqld again. A primary moves first, unless it
// is to be done in place.
func (a *Agent) controlRestart(ctx context.Context, r control.Request) (done, error) {
	var args cluster.RestartRequest
	if err := arguments(r, &args); err != nil {
		return done{}, err
	}
	args.Node = a.self.Name
	d := done{what: args.String()}
	p := a.currentProcess()
	switch {
	case !a.runsMysqld():
		return d, control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", a.self.Name)
	case p == nil:
		return d, control.Errorf(control.CodeFailed, "no mysqld runs on node %s, whose role is %s", a.self.Name, a.board.Own().Role)
	case args.MaxPause < maxPauseMin || args.MaxPause > maxPauseMax:
		return d, control.Errorf(control.CodeInvalid, "--max-pause must be %s to %s, not %s", units.Duration(maxPauseMin), units.Duration(maxPauseMax), units.Duration(args.MaxPause))
	}
	d.readOnly = args.DryRun
	result := cluster.Restarted{Node: a.self.Name, DryRun: args.DryRun}
	was := a.board.Own().Role
	if was == cluster.RolePrimary && !args.InPlace {
		s, err := a.switchover(ctx, r.By, cluster.SwitchoverRequest{DryRun: args.DryRun, MaxPause: args.MaxPause, Wait: control.Timeout})
		if err != nil {
			return d, fmt.Errorf("move the primary first: %w", err)
		}
		result.Moved = &s
	}
	began := time.Now()
	m := &moving{by: r.By, limit: args.MaxPause, ended: make(chan string, 1)}
	if err := a.runPlan(core.Restart{Reason: "restart asked for by " + r.By, DryRun: args.DryRun}, m); err != nil {
		if args.InPlace {
			err = a.calledOff(m, err)
		}
		return d, err
	}
	if args.DryRun {
		primary := "" // another one, which it stays
		if result.Moved != nil {
			primary = result.Moved.To
		} else if was == cluster.RolePrimary {
			primary = a.self.Name
		}
		if result.Moved == nil || len(result.Moved.Blocks) == 0 {
			result.Notes = cluster.RestartNotes(a.sight(a.ownStatus()), a.self.Name, primary)
		}
		d.result = result
		return d, nil
	}
	inc, err := a.awaitMysqld(p.Incarnation(), args.InPlace && was == cluster.RolePrimary)
	result.Incarnation, result.Seconds = inc, time.Since(began).Seconds()
	if err == nil {
		result.Notes = a.replicationNotes(ctx)
	}
	d.result = result
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
		raft := a.node.Role()
		there := role == cluster.RolePrimary || role == cluster.RoleReplica && (!serves || raft.Leader != 0 && !raft.Leading)
		if p := a.currentProcess(); p != nil && p.Incarnation() > than && there {
			return p.Incarnation(), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, control.Errorf(control.CodeUncertain, "mysqld was stopped and started, and is %s so far: see the status", role)
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

// controlFence ends this node's mysqld until controlUnfence.
func (a *Agent) controlFence(ctx context.Context, r control.Request) (done, error) {
	var args cluster.FenceRequest
	if err := arguments(r, &args); err != nil {
		return done{}, err
	}
	f := cluster.Fence{By: r.By, At: time.Now().UTC().Truncate(time.Second), Reason: args.Reason}
	result := cluster.FenceResult{Fence: f, Changed: true, DryRun: args.DryRun, Notes: a.withoutNode(a.self.Name)}
	d := done{what: describe(r), result: result, readOnly: args.DryRun}
	before, err := a.data.Fence()
	if err != nil {
		return d, err
	}
	switch {
	case !a.runsMysqld():
		return d, control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", a.self.Name)
	case len(f.Reason) > auditTextBytesMax:
		return d, control.Errorf(control.CodeInvalid, "the reason has %d bytes, at most %d are kept", len(f.Reason), auditTextBytesMax)
	case a.board.Own().Role == cluster.RolePrimary && !args.Force:
		return d, control.Errorf(control.CodeFailed, "node %s is the primary: move it first (quorate switchover), or say --force, which ends its sessions in doubt", a.self.Name)
	case before != nil:
		return done{readOnly: true, result: cluster.FenceResult{Fence: *before, DryRun: args.DryRun}}, nil
	case args.DryRun:
		return d, nil
	}
	if err := a.data.WriteFence(f); err != nil {
		return d, fmt.Errorf("note the fence: %w", err)
	}
	a.input(core.Fenced{Reason: f.String()})
	return d, a.awaitRole(ctx, func(role cluster.Role) bool { return role == cluster.RoleFenced || role == cluster.RoleErrant })
}

// controlUnfence lets mysqld run here again.
func (a *Agent) controlUnfence(ctx context.Context, r control.Request) (done, error) {
	var args cluster.FenceRequest
	if err := arguments(r, &args); err != nil {
		return done{}, err
	}
	before, err := a.data.Fence()
	if err != nil {
		return done{}, err
	}
	d := done{readOnly: args.DryRun}
	own := a.board.Own()
	switch {
	case before == nil && (own.Role == cluster.RoleFenced || own.Role == cluster.RoleErrant):
		return d, control.Errorf(control.CodeFailed, "no operator has fenced node %s, quorate itself has, and ends that when its reason has ended: %s", a.self.Name, own.Reason)
	case before == nil:
		return done{readOnly: true, result: cluster.FenceResult{DryRun: args.DryRun, Notes: []string{fmt.Sprintf("%s is %s", a.self.Name, own.Role)}}}, nil
	}
	d.result = cluster.FenceResult{Fence: *before, Changed: true, DryRun: args.DryRun}
	if args.DryRun {
		return d, nil
	}
	if err = a.data.RemoveFence(); err != nil {
		return d, fmt.Errorf("take the fence away: %w", err)
	}
	a.input(core.Fenced{})
	return d, a.awaitRole(ctx, func(role cluster.Role) bool { return role != cluster.RoleFenced })
}

// awaitRole waits until this node's role is as it should be.
func (a *Agent) awaitRole(ctx context.Context, is func(cluster.Role) bool) error {
	ctx, cancel := context.WithTimeout(ctx, fenceWait)
	defer cancel()
	for {
		changed := a.board.Changes()
		role := a.board.Own().Role
		if is(role) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return control.Errorf(control.CodeUncertain, "it was noted, and the node is %s so far: see the status", role)
		}
	}
}

// fencedBefore tells core of a fence from before this start.
func (a *Agent) fencedBefore() (core.Fenced, error) {
	f, err := a.data.Fence()
	if f == nil {
		return core.Fenced{}, err
	}
	return core.Fenced{Reason: f.String()}, nil
}

// mayOpen says whether maintenance lets this node open for writes, by what is
// committed: the caller has passed a barrier.
func (a *Agent) mayOpen() error {
	m := a.node.Committed().State().State.Maintenance
	if m == nil || m.Primary == a.self.Name {
		return nil
	}
	return fmt.Errorf("maintenance is on since %s, by %s: %q may open alone", units.Time(m.Since), m.By, m.Primary)
}

// endMaintenance switches maintenance off when its time is over.
func (a *Agent) endMaintenance(ctx context.Context) {
	state := a.board.State()
	m := state.Maintenance
	if m == nil || m.Until.IsZero() || time.Now().Before(m.Until) || !a.node.Role().Leading {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, control.Timeout)
	defer cancel()
	by := "quorate, its time is over"
	if _, err := a.changeState(ctx, by, cluster.Change{Judged: state.Version, Maintenance: &cluster.MaintenanceChange{}}); err != nil {
		a.logger.Warn("switch maintenance off, whose time is over: it is tried again", "error", err)
	}
}

// designate names the node that may open while maintenance is on: who is the
// primary, or about to be. This is the leader's agent, and a term's primary is its
// leader: a peer that says that it is the primary has not heard of this term so far.
func (a *Agent) designate(c *cluster.MaintenanceChange) {
	state := a.board.State()
	if m, ok := membership.Find(state, a.self.ID); ok && c.On && c.Primary == "" && state.Maintenance == nil && m.Weight > 0 && a.runsMysqld() {
		c.Primary = a.self.Name
	}
}
