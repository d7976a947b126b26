package role

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// Two nodes whose mysqlds differ by no more than this count as equally far, and their weights decide. What is
// known of another node is as old as a poll of mysqld and a message between agents, half a second each.
// Meanwhile 4000 entries a second may be committed. So a smaller difference says nothing.
const (
	lagEqual     = 500 * time.Millisecond
	entriesEqual = 4096
)

// unfit says why a node cannot take leadership over; "" = it can.
func (p Peer) unfit() string {
	switch {
	case p.Kind == cluster.KindLogger || p.Kind == cluster.KindLearner:
		return "is a " + string(p.Kind)
	case p.Weight == 0:
		return "has weight 0"
	case !p.Live:
		return "is not heard of"
	case p.LogBad:
		return "has trouble with its log"
	case p.Role != status.RoleReplica:
		return "is " + string(p.Role)
	case p.Stopped:
		return "does not apply"
	}
	return ""
}

// asFarAs tells whether this peer's mysqld is about as far as a mysqld with the given applied index and lag.
func (p Peer) asFarAs(applied uint64, lag time.Duration) bool {
	return p.Applied+entriesEqual >= applied && p.Lag <= lag+lagEqual
}

// candidate returns the node to hand over to. All live replicas are considered that may open. Nodes that were
// not asked to lead lately come first, and of these the nodes that name tables as the last primary. Of these, the nodes
// that are about as far as the furthest are left. Of these, the heaviest is taken, then the furthest.
func (in Peers) candidate(askedAt func(cluster.NodeID) time.Duration) (Peer, bool) {
	fit := slices.DeleteFunc(slices.Clone(in.Peers), func(p Peer) bool {
		return p.ID == in.Own.ID || p.unfit() != "" || in.Held && p.ID != in.HeldFor
	})
	if len(fit) == 0 {
		return Peer{}, false
	}
	first := askedAt(slices.MinFunc(fit, func(a, b Peer) int { return cmp.Compare(askedAt(a.ID), askedAt(b.ID)) }).ID)
	fit = slices.DeleteFunc(fit, func(p Peer) bool { return askedAt(p.ID) != first })
	if like := slices.DeleteFunc(slices.Clone(fit), func(p Peer) bool { return p.Unlike }); len(like) > 0 {
		fit = like
	}
	furthest := slices.MaxFunc(fit, func(a, b Peer) int { return cmp.Compare(a.Applied, b.Applied) }).Applied
	// Each node measures its lag by what it knows to be committed. So lags are comparable only among nodes
	// whose logs go equally far.
	fit = slices.DeleteFunc(fit, func(p Peer) bool { return p.Applied+entriesEqual < furthest })
	least := slices.MinFunc(fit, func(a, b Peer) int { return cmp.Compare(a.Lag, b.Lag) }).Lag
	fit = slices.DeleteFunc(fit, func(p Peer) bool { return !p.asFarAs(furthest, least) })
	return slices.MaxFunc(fit, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Weight, b.Weight), cmp.Compare(a.Applied, b.Applied),
			cmp.Compare(a.LogLast, b.LogLast), cmp.Compare(b.ID, a.ID))
	}), true
}

// whyNobody says why no other node can take over.
func (in Peers) whyNobody() string {
	why := []string{}
	for _, p := range in.Peers {
		if p.Kind != cluster.KindLogger && p.Kind != cluster.KindLearner && (!in.Held || p.ID == in.HeldFor) {
			why = append(why, p.Name+" "+p.unfit())
		}
	}
	if len(why) == 0 {
		return "no other node can lead"
	}
	return "no other node can take over: " + strings.Join(why, ", ")
}

// peer returns what is known of a node.
func (in Peers) peer(id cluster.NodeID) Peer {
	for _, p := range in.Peers {
		if p.ID == id {
			return p
		}
	}
	return Peer{ID: id}
}

// Choice is the node to which a switchover would go, or why it can go to none.
type Choice struct {
	To Peer
	// Why says in a few words why To was chosen.
	Why string
	// Refused says why no node may lead, or why the named node may not; "" = To is set.
	Refused string
}

// Choose returns the node to which a primary would hand over in order: the node named to, or the best node if
// to is empty.
func Choose(self cluster.NodeID, peers []Peer, to string) Choice {
	nodes := Peers{Own: Peer{ID: self}, Peers: peers}
	if to == "" {
		best, ok := nodes.candidate(func(cluster.NodeID) time.Duration { return 0 })
		if !ok {
			return Choice{Refused: nodes.whyNobody()}
		}
		return Choice{To: best, Why: "it is the best by log, lag and weight"}
	}
	for _, p := range peers {
		switch {
		case p.Name != to:
		case p.unfit() != "":
			return Choice{Refused: fmt.Sprintf("node %s cannot take over: it %s", to, p.unfit())}
		default:
			return Choice{To: p, Why: "it was named"}
		}
	}
	return Choice{Refused: fmt.Sprintf("node %s cannot take over: this cluster has no other node of that name", to)}
}
