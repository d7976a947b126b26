package sim

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/transport"
)

// losing is what a node has to do with recoveries.
type losing struct {
	// off: its machine is gone, for good perhaps. held: an operator has stopped its agent.
	off, held bool
	// rejected is refused.json.
	rejected recovery.Rejected
	// out runs in the agent's place once it has accepted.
	out        *outsider
	rejectedAt time.Duration
	// stateBefore is the cluster state that its recovery has replaced.
	stateBefore cluster.StatePoint
	// upAt is when its agent was started last.
	upAt time.Duration
}

// stance is what a process of a node makes of recoveries without it, or of those who refuse its own.
type stance struct {
	*quorumloss.Stance
	life *life
	// hearing: a peer says of a recovery.
	hearing map[cluster.NodeID]bool
}

// newStance is what a process makes that serves the members in a table.
func (n *node) newStance(l *life, b *board.Board, self func() membership.Self, leave func(membership.Departure)) (s stance, err error) {
	s = stance{life: l, hearing: map[cluster.NodeID]bool{}, Stance: quorumloss.New(quorumloss.Config{
		Node: formerMember{n, l, self, leave}, Board: b, Dir: refusals{n}, ElectionTimeout: n.timing.election, Clock: l, Logger: n.logger("recovery"),
	})}
	return s, s.Load()
}

// hear takes it that the cluster was recovered without this node, as by says: once at a time
// from each.
func (s stance) hear(by *node, r cluster.Recovery) {
	if s.hearing[by.id] {
		return
	}
	s.hearing[by.id] = true
	s.life.start(func() {
		s.Hear(by.member.Name, r)
		delete(s.hearing, by.id)
	})
}

// formerMember is a node as its stance sees it.
type formerMember struct {
	n     *node
	life  *life
	self  func() membership.Self
	leave func(membership.Departure)
}

// AsSelf implements quorumloss.Node.
func (f formerMember) AsSelf() membership.Self { return f.self() }

// Obey implements quorumloss.Node.
func (f formerMember) Obey(r cluster.Recovery) { f.leave(membership.Departure{Superseded: &r}) }

// AskWord implements quorumloss.Node.
func (f formerMember) AskWord(ctx context.Context, of cluster.NodeID, r cluster.Recovery) (recovery.Word, error) {
	peer := f.n.w.node(of)
	return call(ctx, f.life, peer, func(answer func(recovery.Word, error)) {
		switch {
		case peer.stalledUntil > f.n.w.sched.now:
		case peer.out != nil:
			answer(peer.out.stance.Word(r), nil)
		case peer.agent != nil && admits(peer.agent, f.n, true) == nil:
			answer(peer.agent.stance.Word(r), nil)
		}
	})
}

// AskWhoRefuses implements quorumloss.Node.
func (f formerMember) AskWhoRefuses(ctx context.Context, peers []transport.Peer) (answers []*transport.RejectedError) {
	for _, p := range peers {
		peer := f.n.w.node(p.ID)
		r, err := call(ctx, f.life, peer, func(answer func(*transport.RejectedError, error)) {
			if p := peer.process(); p != nil && peer.stalledUntil <= f.n.w.sched.now {
				answer(admits(p, f.n, false), nil)
			}
		})
		if err == nil && r != nil {
			answers = append(answers, r)
		}
	}
	return answers
}

// refusals are refused.json.
type refusals struct{ *node }

// Refused implements quorumloss.Dir.
func (f refusals) Refused() (refused []cluster.Recovery, err error) {
	f.rejected, err = f.home.Refused()
	return f.rejected, err
}

// WriteRefused implements quorumloss.Dir.
func (f refusals) WriteRefused(refused []cluster.Recovery) error {
	f.w.losses.rejects(f.node, refused[len(refused)-1])
	err := f.home.WriteRefused(refused)
	if err == nil {
		f.rejected, f.rejectedAt = refused, f.w.sched.now
	}
	return err
}

// stillOut is what a node that has accepted a recovery asks itself once it has stopped.
func (a *agent) stillOut(r cluster.Recovery) (accepted bool, err error) {
	if accepted, err = a.stance.Confirm(r); accepted {
		a.w.losses.accepts(a, r)
	}
	return accepted, err
}

// report is what a node says that another one is to be recovered beside.
func (a *agent) report() (*recovery.Report, error) {
	leader := ""
	if id := a.loop.driver.Role().Leader; id != 0 {
		leader = a.w.node(id).member.Name
	}
	r, err := quorumloss.ReportOf(a.n.member, a.log, a.group.Committed(), leader, a.board.Nodes())
	return &r, err
}

// outsider runs in the place of an agent whose node has accepted a recovery without it.
type outsider struct {
	n         *node
	w         *World
	life      *life
	state     cluster.State
	departing *membership.Departing
	door      *transport.Door
	stance    stance
}

func (n *node) startOutsider() {
	n.log("recovery", "out, by the recovery on %s", n.home.Own().Superseded.Node)
	n.out = &outsider{n: n, w: n.w, life: &life{n: n}, state: n.state(1).State}
	o := n.out
	members := func() []cluster.Member { return o.state.Members }
	o.door = n.newDoor(members, o)
	table := board.New(board.Config{Self: n.status(), State: o.state, Now: n.clock})
	var err error
	if o.stance, err = n.newStance(o.life, table, o.self, func(d membership.Departure) { o.departing.Leave(d) }); err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
	o.departing = leaver{n: n, end: o.leave, confirm: o.stance.Confirm}.departing(o.life)
	o.life.start(func() { n.runDial(o.life, members) })
}

func (n *node) endOutsider() {
	if n.out != nil {
		n.out.life.end()
		n.out = nil
	}
}

func (o *outsider) self() membership.Self { return o.n.self(o.state) }

func (o *outsider) at() (*life, *transport.Door) { return o.life, o.door }

// CheckPeer implements transport.Checker.
func (o *outsider) CheckPeer(id transport.Identity) error {
	by := o.n.home.Own().Superseded
	return &transport.RejectedError{Code: transport.CodeRecovered, Text: by.Sentence(id.NodeName), Order: transport.Order{Recovery: by}}
}

// rejected takes a peer's rejection of this node: the recovered cluster may want it to be
// rebuilt.
func (o *outsider) rejected(by *node, r *transport.RejectedError) {
	switch x := membership.React(o.self(), by.member.Name, r); {
	case x.Recovery != nil:
		o.stance.hear(by, *x.Recovery)
	case x.Departure != nil:
		o.departing.Leave(*x.Departure)
	}
}

func (o *outsider) leave() {
	if o.n.out == o {
		o.n.endOutsider()
		o.n.settle(o.departing)
	}
}
