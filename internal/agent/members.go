package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/notify"
)

// membersTimeout bounds a request that changes the members: two changes, one of them
// through joint consensus.
const membersTimeout = 3 * control.Timeout

// memberRequests are the requests that change the members, and those of a node that
// joins.
func (a *Agent) memberRequests() map[string]operate.Handler {
	change := func(run func(context.Context, control.Request) (operate.Done, error)) operate.Handler {
		return operate.Handler{Leader: true, Audited: true, Timeout: membersTimeout, Run: run}
	}
	return map[string]operate.Handler{
		"node.add":             change(a.controlNodeAdd),
		"node.promote":         change(a.controlNodePromote),
		"node.demote":          change(a.controlNodeDemote),
		"node.remove":          change(a.controlNodeRemove),
		"node.rebuild":         change(a.controlNodeRebuild),
		recoverRequest:         {Apart: true, Run: a.controlRecoverReport},
		quorumloss.WordRequest: {Apart: true, Run: a.controlWord},
		seedPlanRequest:        {Run: a.controlSeedPlan},
		seedDataRequest:        {Run: a.controlSeedData, Then: a.serveSeedData},
		stateRequest:           {Run: a.controlStateKept},
	}
}

// followed is this node's way to the other members. It implements member.Peers.
type followed struct{ *Agent }

// AsSelf implements member.Peers.
func (n followed) AsSelf() membership.Self { return n.asSelf() }

// SetPeers implements member.Peers.
func (n followed) SetPeers(former transport.Former) {
	n.peers.SetPeers(n.transportPeers())
	n.peers.SetSecurity(n.board.State().PeerSecurity)
	n.peers.SetFormer(former)
}

// Hangup implements member.Peers.
func (n followed) Hangup(id cluster.NodeID) { n.peers.Hangup(id) }

// AskState implements member.Peers.
func (n followed) AskState(ctx context.Context, of cluster.NodeID) (p cluster.StatePoint, err error) {
	err = n.requests.Request(ctx, of, stateRequest, struct{}{}, &p)
	return p, err
}

// Change implements member.Peers.
func (n followed) Change(ctx context.Context, c cluster.Change) error {
	ctx, cancel := context.WithTimeout(ctx, control.Timeout)
	defer cancel()
	_, err := n.requests.ChangeState(ctx, n.records.ByItself(), c)
	return err
}

// stateRequest asks another agent for the cluster state that it has on its disk.
const stateRequest = "state.kept"

func (a *Agent) controlStateKept(context.Context, control.Request) (operate.Done, error) {
	return operate.Done{Result: a.state.Point()}, nil
}

// openMembers makes the members known as this node knew them last, or has the node
// join first.
func (a *Agent) openMembers(ctx context.Context) error {
	if a.data.Life() == datadir.Joining {
		if err := a.join(ctx); err != nil {
			return err
		}
		if a.runsMysqld() { // it has a durable mark now
			return a.openMysqld()
		}
		return nil
	}
	last, err := a.data.LastState()
	if err == nil && len(last.State.Members) > 0 && last.State.Version > 0 {
		a.Follower.Follow(last, true)
	}
	return err
}

// asSelf is this node as package membership sees it.
func (a *Agent) asSelf() membership.Self {
	id := a.data.Own()
	return membership.Self{
		ID: a.self.ID, Name: a.self.Name, Instance: id.Instance, Blank: a.data.Blank(),
		Fenced: a.fencedFromRebuild(), State: a.board.State(), Superseded: id.Superseded,
	}
}

// fencedFromRebuild tells whether this node, which is to begin anew, is kept as it is by
// an operator's fence: nobody waits for what it has any more, and made anew, fenced, it
// would hold the logs of all again.
func (a *Agent) fencedFromRebuild() bool {
	f, err := a.data.Fence()
	return f != nil || err != nil
}

// leaver is this node as a membership.Departing drives it.
type leaver struct{ *Agent }

// End implements membership.Leaver.
func (l leaver) End(because error) { l.end(because) }

// Confirm implements membership.Leaver.
func (l leaver) Confirm(r cluster.Recovery) (accepted bool, err error) { return l.stance.Confirm(r) }

// WriteState implements membership.Leaver.
func (l leaver) WriteState(p cluster.StatePoint) error { return l.writeState(p) }

func (a *Agent) newDeparting() *membership.Departing {
	return membership.NewDeparting(membership.DepartingConfig{
		Node: leaver{a}, Home: a.data, Clock: clock.Machine{}, Now: time.Now, Logger: a.logger.With("data_dir", a.cfg.DataDir),
	})
}

// setFail says what ends Run from now on. A node that found out while it was healed,
// or joined, that it has to go ends at once.
func (a *Agent) setFail(fail context.CancelCauseFunc) {
	a.fail.Store(&fail)
	if d := a.departing.Because(); d != nil {
		fail(d)
	}
}

// end ends Run, if there is anything to end.
func (a *Agent) end(err error) {
	if fail := a.fail.Load(); fail != nil {
		(*fail)(err)
	}
}

// persistExit notes durably what this node is now, if it cannot go on as it was.
func (a *Agent) persistExit() error {
	settled, err := a.departing.PersistExit()
	a.again = a.again || settled
	return err
}

// controlNodeAdd adds a node, which joins as soon as its agent runs.
func (a *Agent) controlNodeAdd(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.MembershipRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	c := &args.Change
	if err := config.CheckName(c.Name); err != nil {
		return operate.Done{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	if err := operate.CheckAddress(c.Peer); err != nil {
		return operate.Done{}, err
	}
	c.Op, c.ID = cluster.OpAdd, config.MemberID(a.cfg.Cluster, c.Name)
	d, err := a.changeMembers(ctx, r.By, args)
	if result, ok := d.Result.(cluster.ChangeResult); ok && err == nil && args.DryRun {
		result.Notes = append(a.seedNotes(ctx, *c), result.Notes...)
		d.Result = result
	}
	return d, err
}

// seedNotes say what a node that is added would copy, as far as this node knows.
func (a *Agent) seedNotes(ctx context.Context, c cluster.MembershipChange) []string {
	begin, logBytes, err := a.AsMember(nil).Begin(c.Name)
	if err != nil {
		return nil
	}
	data := int64(0)
	if admin, err := a.admin(); err == nil {
		data, _ = admin.DataBytes(ctx) // 0 = not known
	}
	return []string{seedNote(c.Kind, begin.First, logBytes, data)}
}

// seedNote says it, of a log that begins at first.
func seedNote(kind cluster.Kind, first uint64, logBytes, data int64) string {
	size := ""
	switch {
	case kind == cluster.KindLogger || first == 1:
		return fmt.Sprintf("it begins without a vote, and copies the log: about %s", units.Size(logBytes))
	case data > 0:
		size = fmt.Sprintf(" (about %s)", units.Size(data))
	}
	return fmt.Sprintf("it begins without a vote, and copies the data of a mysqld%s, then the log from there on (about %s)", size, units.Size(logBytes))
}

// controlNodePromote gives a learner a vote.
func (a *Agent) controlNodePromote(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.MembershipRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	args.Change.Op = cluster.OpPromote
	n, err := a.statusOf(args.Change.Name)
	if err != nil {
		return operate.Done{}, err
	}
	m, err := a.board.State().Member(args.Change.Name)
	if err != nil {
		return operate.Done{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	args.Change.Instance = m.Instance  // what is judged here
	if n.Kind == cluster.KindLearner { // else that is refused
		switch why, invalid := membership.RefuseVote(m, n, args.Change.Kind, a.Raft.Committed().Mark().Index); {
		case invalid:
			return operate.Done{}, control.Errorf(control.CodeInvalid, "%s", why)
		case why != "":
			return operate.Done{}, control.Errorf(control.CodeFailed, "%s", why)
		}
	}
	return a.changeMembers(ctx, r.By, args)
}

// controlNodeDemote takes a node's vote.
func (a *Agent) controlNodeDemote(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.MembershipRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	args.Change.Op = cluster.OpDemote
	return a.changeMembers(ctx, r.By, args)
}

// controlNodeRebuild has a node make its data anew, from those of the others. It has
// no vote meanwhile: what it had promised counts no more. Its new data directory has
// an instance that this change names, so nobody takes the old one for it.
func (a *Agent) controlNodeRebuild(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.MembershipRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	args.Change.Op, args.Change.Instance = cluster.OpRebuild, datadir.NewInstance()
	return a.changeMembers(ctx, r.By, args)
}

// controlNodeRemove takes a node out. One with a vote loses that first: while the
// change of the voters is not complete, those of before are needed, and known.
func (a *Agent) controlNodeRemove(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.MembershipRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	state := a.Raft.Committed().State().State
	m, err := state.Member(args.Change.Name)
	if err != nil && !state.LeftBehind(args.Change.Name) {
		return operate.Done{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	args.Change.Op = cluster.OpRemove
	if err == nil && m.Votes() {
		c := cluster.Change{Membership: &args.Change}
		plan, err := a.requests.PlanChange(c) // before its vote is gone
		if err != nil {
			return operate.Done{What: c.String()}, operate.RefusedChange(err)
		}
		demote := cluster.MembershipRequest{Change: cluster.MembershipChange{Op: cluster.OpDemote, Name: m.Name}, Ask: args.Ask}
		if _, err := a.changeMembers(ctx, r.By, demote); err != nil {
			return operate.Done{What: c.String()}, err
		}
		if args.DryRun { // that it has no vote is not so yet
			plan.Notes = append(plan.Notes, "it loses its vote first, then it is removed: that is two changes")
			return a.requests.Planned(c, plan), nil
		}
		if err := a.votersSettled(ctx); err != nil {
			return operate.Done{}, control.Errorf(control.CodeUncertain, "node %s has lost its vote and is a learner, no more was done: %v; ask again", m.Name, err)
		}
		d, err := a.changeMembers(ctx, r.By, args)
		if result, ok := d.Result.(cluster.ChangeResult); ok {
			result.Notes = plan.Notes
			d.Result = result
		}
		return d, err
	}
	return a.changeMembers(ctx, r.By, args)
}

// votersSettled waits until a change of the voters is complete.
func (a *Agent) votersSettled(ctx context.Context) error {
	for {
		point, changed := a.Raft.Committed().StateChanged()
		if len(point.Outgoing) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of the change of the voters: %w", ctx.Err())
		}
	}
}

// changeMembers has a change of the members committed, or only judged.
func (a *Agent) changeMembers(ctx context.Context, by string, r cluster.MembershipRequest) (operate.Done, error) {
	c := cluster.Change{Membership: &r.Change}
	if !r.DryRun {
		return a.requests.ChangeAs(ctx, by, r.Ask, c)
	}
	if err := a.requests.MayPropose(c); err != nil {
		return operate.Done{}, err
	}
	c.ID = rand.Text()
	err := a.Raft.CheckState(ctx, c)
	switch {
	case errors.Is(err, consensus.ErrNotLeader), errors.Is(err, consensus.ErrNotReady):
		return operate.Done{}, err
	case err != nil:
		return operate.Done{}, operate.RefusedChange(err)
	}
	plan, err := a.requests.PlanChange(c)
	if err != nil {
		return operate.Done{}, operate.RefusedChange(err)
	}
	return a.requests.Planned(c, plan), nil
}

// statusOf returns what is known of a member.
func (a *Agent) statusOf(name string) (status.Node, error) {
	for _, n := range a.nodes() {
		if n.Name == name {
			return n, nil
		}
	}
	_, err := a.board.State().Member(name)
	if err == nil {
		err = fmt.Errorf("nothing is known of node %s", name)
	}
	return status.Node{}, control.Errorf(control.CodeInvalid, "%v", err)
}

// runRemoved shows that this node was removed, until ctx ends.
func (a *Agent) runRemoved(ctx context.Context) error {
	a.board.Update(func(s *status.Node) {
		s.Role, s.Mysqld = status.RoleRemoved, status.MysqldStopped
		s.Reason = "it was removed from the cluster; its data are in " + a.cfg.DataDir
	})
	a.logger.Error("this node was removed from the cluster: only its status is served", "data_dir", a.cfg.DataDir)
	a.buildAPI()
	if err := a.api.Listen(); err != nil {
		return fmt.Errorf("open api port: %w", err)
	}
	defer a.api.Unlisten()
	defer a.notifying(ctx, notify.New(os.Getenv, os.Getpid()))()
	return a.api.Run(ctx)
}
