package sim

import (
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/consensus"
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

// noticesOf judges the recoveries without a node. own is what its process knows.
func (n *node) noticesOf(own func(cluster.Recovery) recovery.Own) recovery.Notices {
	return recovery.Notices{
		Look: func(r cluster.Recovery) recovery.Own {
			o := own(r)
			o.Rejected = n.rejected.Has(r)
			return o
		},
		Reject: func(r cluster.Recovery) error {
			n.w.losses.rejects(n, r)
			n.rejected, n.rejectedAt = n.rejected.With(r), n.w.sched.now
			return nil
		},
	}
}

// notices is package agent's.
func (a *agent) notices() recovery.Notices {
	return a.n.noticesOf(func(r cluster.Recovery) recovery.Own {
		return recovery.Own{News: a.asSelf().Supersedes(r), SinceLeader: a.board.SinceLeader()}
	})
}

// hearOfRecovery takes it that the cluster was recovered without this node, as by says:
// once at a time from each.
func (a *agent) hearOfRecovery(by *node, r cluster.Recovery) {
	if a.hearing[by.id] {
		return
	}
	if a.hearing == nil {
		a.hearing = map[cluster.NodeID]bool{}
	}
	a.hearing[by.id] = true
	a.life.start(func() {
		d, _ := a.notices().Judge(r, func() []recovery.Word { return a.wordsOfOthers(r) })
		a.n.log("recovery", "on %s, told by n%d: %s", r.Node, by.id, d)
		if d == recovery.Accept {
			a.departing.Leave(membership.Departure{Superseded: &r})
		}
		delete(a.hearing, by.id)
	})
}

// wordsOfOthers asks all other members at once what they say of a recovery.
func (a *agent) wordsOfOthers(r cluster.Recovery) (words []recovery.Word) {
	var answered signal
	asked := 0
	for _, m := range a.board.Members() {
		peer := a.w.node(m.ID)
		if peer == a.n || m.Name == r.Node {
			continue
		}
		asked++
		a.w.net.send(a.n.id, peer.id, func() {
			word, ok := peer.say(a.n, r)
			a.w.net.send(peer.id, a.n.id, func() {
				a.life.run(func() {
					if ok {
						words = append(words, word)
					}
					asked--
					answered.fire()
				})
			})
		})
	}
	until := a.n.now() + recovery.AskFor(a.n.timing.election)
	for left := until - a.n.now(); asked > 0 && left > 0; left = until - a.n.now() {
		a.life.await(left, &answered)
	}
	return words
}

// say is what a node answers that is asked for its word.
func (n *node) say(asks *node, r cluster.Recovery) (w recovery.Word, ok bool) {
	switch {
	case n.stalledUntil > n.w.sched.now:
		return w, false
	case n.out != nil:
		w, _ = n.out.notices().Word(r)
		return w, true
	case n.agent == nil || admits(n.agent, asks, true) != nil:
		return w, false
	}
	w, _ = n.agent.notices().Word(r)
	return w, true
}

// stillOut is what a node that has accepted a recovery asks itself once it has stopped.
func (a *agent) stillOut(r cluster.Recovery) (accepted bool, err error) {
	d, err := a.notices().Confirm(r)
	a.n.log("recovery", "on %s: %s, now that it has stopped", r.Node, d)
	if accepted = d == recovery.Accept; accepted {
		a.w.losses.accepts(a, r)
	}
	return accepted, err
}

// report is what a node says that another one is to be recovered beside.
func (a *agent) report() (*recovery.Report, error) {
	log, err := logOf(a.log)
	r := &recovery.Report{Node: a.n.member.Name, Log: log}
	if id := a.loop.role.Leader; id != 0 {
		r.Leader = a.w.node(id).member.Name
	}
	for _, n := range a.board.Nodes() {
		if n.ID != a.n.id && n.Reachable {
			r.Hears = append(r.Hears, n.Name)
		}
	}
	return r, err
}

// logOf is what a log has, committed or not.
func logOf(log *seglog.Log) (l recovery.Log, err error) {
	newest := log.Segments()[len(log.Segments())-1]
	set := newest.GTIDsBefore.Clone()
	if err := consensus.AddTransactions(set, log, newest.FirstIndex, log.LastIndex()); err != nil {
		return l, err
	}
	l = recovery.Log{First: log.FirstIndex(), Last: log.LastIndex(), GTIDs: set.String(), Commit: log.HardState().Commit}
	l.Term, err = log.Term(l.Last)
	return l, err
}

// outsider runs in the place of an agent whose node has accepted a recovery without it.
type outsider struct {
	n         *node
	w         *World
	life      *life
	state     cluster.State
	departing *membership.Departing
	door      *transport.Door
}

func (n *node) startOutsider() {
	n.log("recovery", "out, by the recovery on %s", n.home.Own().Superseded.Node)
	n.out = &outsider{n: n, w: n.w, life: &life{n: n}, state: n.state(1).State}
	o := n.out
	members := func() []cluster.Member { return o.state.Members }
	o.door = n.newDoor(members, o)
	o.departing = leaver{n: n, end: o.leave, confirm: func(r cluster.Recovery) (bool, error) {
		d, err := o.notices().Confirm(r)
		return d == recovery.Accept, err
	}}.departing(o.life)
	o.life.start(func() { n.runDial(o.life, members) })
}

func (n *node) endOutsider() {
	if n.out != nil {
		n.out.life.end()
		n.out = nil
	}
}

func (o *outsider) self() membership.Self { return o.n.self(o.state) }

func (o *outsider) notices() recovery.Notices {
	return o.n.noticesOf(func(r cluster.Recovery) recovery.Own {
		return recovery.Own{News: o.self().Supersedes(r), Superseded: true, SinceLeader: recovery.NeverLed}
	})
}

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
		d, _ := o.notices().Judge(*x.Recovery, func() []recovery.Word { return nil })
		o.n.log("recovery", "on %s, told by n%d: %s", x.Recovery.Node, by.id, d)
		if d == recovery.Accept {
			o.departing.Leave(membership.Departure{Superseded: x.Recovery})
		}
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
