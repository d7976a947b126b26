package agent

import (
	"context"
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
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/notify"
)

// memberRequests are the requests between members, and the requests of a node that joins.
func (a *Agent) memberRequests() map[string]operate.Handler {
	return map[string]operate.Handler{
		recoverRequest:         {Apart: true, Run: a.controlRecoverReport},
		quorumloss.WordRequest: {Apart: true, Run: operate.Typed(a.controlWord)},
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
func (n followed) Hangup(id cluster.NodeID) bool { return n.peers.Hangup(id) }

// AskState implements member.Peers.
func (n followed) AskState(ctx context.Context, of cluster.NodeID) (p cluster.StatePoint, err error) {
	err = n.requests.Request(ctx, of, stateRequest, struct{}{}, &p)
	n.noteNewer(err)
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

// added is the peers' handler of a node that asks them.
type added struct {
	stranger
	a *Agent
}

// CheckPeer implements transport.Handler. It pins nothing.
func (h added) CheckPeer(id transport.Identity) error { return h.a.data.known.Compare(id) }

// askAdded asks nodes in [[added]] for the cluster state: see membership.Added. A newer state decides only with whom this
// node talks, as with a member's answer (membership.Follower).
func (a *Agent) askAdded(ctx context.Context) {
	ask, past := membership.Added(a.board.State(), a.cfg.AddedMembers(), a.board.SinceLeader())
	for _, m := range past {
		a.board.SetTrouble(m.Name, "")
	}
	if len(ask) == 0 {
		return
	}
	asking := transport.New(a.transportConfig(added{a: a}, transport.PeersOf(ask)))
	for _, peer := range ask {
		var p cluster.StatePoint
		err := a.askBy(ctx, asking, peer.ID, stateRequest, &p)
		if r, ok := errors.AsType[*transport.RejectedError](err); ok {
			a.stance.Refused(peer.Name, r)
		}
		if err == nil && a.Follower.Told(peer.Name, p) {
			return
		}
	}
}

// askBy asks a node by a transport that may know others than the members.
func (a *Agent) askBy(ctx context.Context, by *transport.Transport, of cluster.NodeID, request string, result any) error {
	ctx, cancel := context.WithTimeout(ctx, joinAskTimeout)
	defer cancel()
	err := operate.AskFor(ctx, by, of, a.requests.Question(request), result)
	a.noteNewer(err)
	return err
}

func (a *Agent) controlStateKept(context.Context, control.Request) (operate.Done, error) {
	return operate.Done{Result: a.state.Point()}, nil
}

// openMembers takes the members from the state on disk. A node that has yet to join
// joins first.
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
	return membership.SelfOf(a.self, a.data.Home, a.board.State())
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

// setFail sets what ends Run from now on. If the node has found out already, while it was
// healed or joined, that it has to go, Run ends at once.
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
	noted, err := a.departing.PersistExit()
	a.again = a.again || noted
	return err
}

// SeedNotes implements operate.Node, as far as this node knows.
func (a operated) SeedNotes(ctx context.Context, c cluster.MembershipChange) []string {
	begin, logBytes, err := a.AsMember(nil).Begin(c.Name)
	if err != nil {
		return nil
	}
	data := int64(0)
	if admin, err := a.local.Admin(); err == nil {
		data, _ = admin.DataBytes(ctx) // 0 = not known
	}
	return []string{seedNote(c.Kind, begin.First, logBytes, data)}
}

// seedNote says what a new node will copy: a log that begins at entry first, and data of so many bytes (0 = not known).
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

// runRemoved shows that this node was removed, until ctx ends.
func (a *Agent) runRemoved(ctx context.Context) error {
	a.board.Update(func(s *status.Node) {
		s.Role, s.Mysqld = status.RoleRemoved, status.MysqldStopped
		s.Reason = "it was removed from the cluster; its data are in " + a.cfg.DataDir
	})
	a.logger.Error("this node was removed from the cluster: only its status is served", "data_dir", a.cfg.DataDir)
	a.buildAPI()
	if err := apiPort.opened(a.api.Listen()); err != nil {
		return err
	}
	defer a.api.Unlisten()
	defer a.notifying(ctx, notify.New(os.Getenv, os.Getpid()))()
	return a.api.Run(ctx)
}
