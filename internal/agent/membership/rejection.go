package membership

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
)

// Self is what a node knows of itself when it judges what others tell it.
type Self struct {
	ID   cluster.NodeID
	Name string
	// Instance is the id of its data directory.
	Instance string
	// Blank: it has nothing that counts. Its data directory is empty, or it joins.
	Blank bool
	// Fenced: an operator's fence keeps its data as they are.
	Fenced bool
	// State is the newest cluster state that it knows.
	State cluster.State
	// Superseded is the recovery without it that it obeys; nil = there was none.
	Superseded *cluster.Recovery
}

// SelfOf is the node self with its data directory and the cluster state that it knows. A fence that cannot be read
// counts as a fence, and a fenced node is not rebuilt: nobody keeps log for its old data any more, but a node that is
// rebuilt and still fenced would make the logs of all nodes grow.
func SelfOf(self cluster.Member, home *datadir.Home, known cluster.State) Self {
	own := home.Own()
	fence, err := home.Fence()
	return Self{
		ID: self.ID, Name: self.Name, Instance: own.Instance, Blank: home.Blank(), Fenced: fence != nil || err != nil,
		State: known, Superseded: own.Superseded,
	}
}

// Reaction is what a node does about a rejection.
type Reaction struct {
	// Departure is not nil if the node cannot go on as it is.
	Departure *Departure
	// Recovery is not nil if the rejecting cluster was recovered without this node, and
	// this node did not know that.
	Recovery *cluster.Recovery
	// Trouble is for the status, in all other cases; "" = there is none. Refusal: it is the peer's text and no more, which
	// the line of the peer shows, too.
	Trouble string
	Refusal bool
}

// shown is the reaction to a rejection that is only shown.
func shown(trouble string) Reaction { return Reaction{Trouble: trouble, Refusal: true} }

const (
	// notByOthers is why a node does not do what it is told, toJoinOthers what a person does if it should.
	notByOthers  = ": a cluster that was recovered apart from this one says so, and this node keeps its data"
	toJoinOthers = "; if that cluster is to go on, move this node's data directory away and start its agent again"
)

// React says what a node does about the rejection by a peer.
func React(self Self, by string, r *transport.RejectedError) Reaction {
	if o := r.Order.Recovery; o != nil && self.Supersedes(*o) {
		return Reaction{Recovery: o}
	}
	switch r.Code {
	case transport.CodeKey:
		if r.By == self.Name { // this node refuses that one, which may be anybody
			return shown(r.Text)
		}
		return shown(fmt.Sprintf("node %s refuses this node: %s", by, r.Text))
	case transport.CodePeer:
		if r.By == self.Name { // that node's line in the status says that this node refuses it
			return Reaction{}
		}
		return shown(fmt.Sprintf("node %s refuses this node: %s", by, r.Text))
	case transport.CodeUnknown:
		return shown(fmt.Sprintf("node %s refuses this node: %s", by, r.Text))
	case transport.CodeRemoved:
		if self.takes(r.Order) {
			return Reaction{Departure: &Departure{}}
		}
		return Reaction{Trouble: r.Text + notByOthers}
	case transport.CodeRebuild:
		return self.rebuild(r)
	case transport.CodeRecovered:
		return self.recovered(by, r)
	}
	return shown(r.Text)
}

// Supersedes tells whether a recovery without this node is news to it. A node that has
// joined since, or was recovered itself, has a later state.
func (s Self) Supersedes(r cluster.Recovery) bool {
	known := s.State.Version
	if s.Superseded != nil {
		known = max(known, s.Superseded.Version)
	}
	return !s.Blank && r.Version > known
}

// rebuild is the reaction to the order to be rebuilt. A peer that lags may give an old
// order: this node knows better then.
func (s Self) rebuild(r *transport.RejectedError) Reaction {
	version, instance := r.Order.StateVersion, r.Order.Instance
	own, _ := s.State.MemberByID(s.ID)
	news := version > s.State.Version || version == s.State.Version && instance == own.Instance
	switch {
	case instance == "" || !news:
		return shown(r.Text)
	case s.Fenced:
		return Reaction{Trouble: fmt.Sprintf("it is to be rebuilt, and keeps its data until \"quorate unfence %s\"", s.Name)}
	case s.takes(r.Order):
		return Reaction{Departure: &Departure{Instance: instance}}
	}
	return Reaction{Trouble: r.Text + notByOthers + toJoinOthers}
}

// takes tells whether an order to be rebuilt, or the news that this node was removed, comes
// from the node's own cluster; once it has obeyed a recovery, that is the recovered cluster.
// Other clusters were recovered apart: the person who gave the order there may have been
// mistaken. A blank node has nothing to lose.
func (s Self) takes(o transport.Order) bool {
	if s.Blank {
		return true
	}
	own, version := s.State.Recovered, s.State.Version
	if s.Superseded != nil && s.Superseded.Version > version {
		own, version = s.Superseded, s.Superseded.Version
	}
	if o.Recovery != nil {
		return own != nil && own.Is(*o.Recovery)
	}
	return cluster.Generation(o.StateVersion) <= cluster.Generation(version) // an older agent names no recovery
}

// recovered is the reaction to a peer that takes this node for a former member, by a
// recovery that this node knows.
func (s Self) recovered(by string, r *transport.RejectedError) Reaction {
	if o := r.Order.Recovery; o != nil && s.State.Version >= o.Version {
		if o.Excludes(s.State.Recovered) {
			return Reaction{Trouble: fmt.Sprintf("node %s obeys another recovery, on node %s, and no order of this cluster: if this cluster is to go on, "+
				"move the data directory of node %s away and start its agent again, and run \"quorate node rebuild %s\" here if that was not done yet", by, o.Node, by, by)}
		}
		peer, err := s.State.Member(by)
		if err == nil && peer.Instance != "" && !peer.Votes() { // it is being rebuilt
			return Reaction{}
		}
		return Reaction{Trouble: fmt.Sprintf("node %s was a member before the recovery on node %s, and serves nothing until it is rebuilt: \"quorate node rebuild %s\"",
			by, o.Node, by)}
	}
	return shown(r.Text)
}

// RefusalBy is the rejection by a peer as that peer's line in a status shows it. led: this node knows a leader now.
func RefusalBy(self Self, by string, led bool, r *transport.RejectedError) status.Refusal {
	line := status.Refusal{By: r.By, Of: self.Name, Why: r.Text, Key: r.Key, Data: r.Code == transport.CodePeer}
	own, _ := self.State.MemberByID(self.ID)
	rebuilt := own.Instance != "" && own.Instance == self.Instance
	switch older := r.Order.Instance; {
	case r.Elsewhere():
		return status.Refusal{Why: r.Text}
	case r.By == self.Name:
		line.Of = by
	case line.Data && rebuilt && older != "" && older != own.Instance && led:
		line.Data = false // that node was away, or copies its data; without an order it only cannot write something down
		line.Why += fmt.Sprintf(". The cluster has rebuilt node %s since: ", self.Name)
		if peer, _ := self.State.Member(by); !peer.Votes() && peer.Becomes != "" {
			line.Why += fmt.Sprintf("node %s copies its data, and learns of that with them: wait until \"quorate status\" shows it as %s", r.By, peer.Becomes)
		} else {
			line.Why += fmt.Sprintf("\"quorate node rebuild %s\" takes node %s in again", r.By, r.By)
		}
	}
	return line
}

// Weightiest picks the rejection to act on when this node has no cluster state of its own;
// nil = there is none. It picks the one by the newest state, and among equals the most
// careful: "this node was here already" before "it has to wait", and that before "it is to
// begin again". A rejection that a person has to end comes before all others. But a member
// that does not know this node's key comes after them: a member that knows it knows more.
func Weightiest(rejections []*transport.RejectedError) *transport.RejectedError {
	if len(rejections) == 0 {
		return nil
	}
	return slices.MaxFunc(rejections, func(x, y *transport.RejectedError) int {
		xVersion, xCare := weight(x)
		yVersion, yCare := weight(y)
		return cmp.Or(cmp.Compare(xVersion, yVersion), cmp.Compare(xCare, yCare))
	})
}

func weight(r *transport.RejectedError) (version uint64, care int) {
	switch r.Code {
	case transport.CodeRebuild:
		return r.Order.StateVersion, 0
	case transport.CodeReseed:
		return r.Order.StateVersion, 1
	case transport.CodePeer:
		return r.Order.StateVersion, 2
	case transport.CodeRecovered: // this node may have been taken in again since
		if r.Order.Recovery != nil {
			version = r.Order.Recovery.Version
		}
		return version, 3
	case transport.CodeEmpty: // a node that has nothing knows nothing
		return 0, -2
	case transport.CodeKey:
		return 0, -1
	case transport.CodeUnknown: // a learner says that, too, of a node that was removed
		return math.MaxUint64, -1
	}
	return math.MaxUint64, 0
}
