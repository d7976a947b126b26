package sim

import (
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
)

// losing is the part of a node that has to do with recoveries.
type losing struct {
	// off: the machine is gone, perhaps for good. held: an operator has stopped the agent.
	off, held bool
	// rejected is the content of refused.json.
	rejected recovery.Rejected
	// out runs instead of the agent when the node has accepted a recovery without it.
	out        *host
	rejectedAt time.Duration
	// stateBefore is the cluster state that the recovery of this node has replaced.
	stateBefore cluster.StatePoint
	// upAt is when the agent was last started.
	upAt time.Duration
}

// formerMember is a process as package quorumloss uses it.
type formerMember struct{ *host }

// Leave implements quorumloss.Node.
func (f formerMember) Leave(d membership.Departure) {
	f.n.check.givesUp(f.n, &d)
	f.departing.Leave(d)
}

// refusals are refused.json of a node.
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

// report returns what a node answers when an operator wants to recover another node without it.
func (a *agent) report() (*recovery.Report, error) {
	leader := ""
	if id := a.Raft.Role().Leader; id != 0 {
		leader = a.w.node(id).member.Name
	}
	r, err := quorumloss.ReportOf(a.n.member, a.log, a.Raft.Committed(), leader, a.board.Nodes())
	return &r, err
}

func (n *node) startOutsider() {
	n.log("recovery", "out, by the recovery on %s", n.home.Own().Superseded.Node)
	p, err := n.newHost(n.state(1).State)
	if err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
	n.out, p.door.Checker = p, quorumloss.Outside{By: n.home.Own().Superseded}
	p.departing = leaver{host: p, end: func() {
		if n.out == p {
			n.endOutsider()
			n.persistExit(p.departing)
		}
	}}.departing()
	p.life.start(p.runDial)
}

func (n *node) endOutsider() {
	if n.out != nil {
		n.out.life.end()
		n.out = nil
	}
}
