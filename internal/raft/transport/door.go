package transport

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/quorate/quorate/internal/cluster"
)

// Checker checks the peers of a Door, after all other checks: see Handler.CheckPeer. A Checker may also be a
// CallChecker.
type Checker interface {
	CheckPeer(id Identity) error
}

// UnknownChecker is a Checker that also checks nodes that dial and are no peer of the Door.
type UnknownChecker interface {
	// CheckUnknown is called instead of CheckPeer for such a node, if it is of the same cluster.
	CheckUnknown(id Identity) error
}

// AnswerChecker is a Checker that checks a node which answers a dial by other rules than a node that dials.
type AnswerChecker interface {
	// CheckAnswer is called instead of CheckPeer for a node that answers.
	CheckAnswer(id Identity) error
}

// Door decides who may connect to a node, and to whom the node talks, by what both sides say of themselves.
type Door struct {
	// Self is what this node says of itself.
	Self Identity
	// Peer returns a peer as this node knows it.
	Peer    func(id cluster.NodeID) (p Peer, ok bool)
	Checker Checker
	// Holder returns the peer that has a key; nil = the Door goes by names alone.
	Holder func(k cluster.Key) (id cluster.NodeID, ok bool)
	// Hears is Hearer.Hears; nil = nobody hears who dials.
	Hears func() bool

	former atomic.Pointer[Former]
}

// SetFormer works like Transport.SetFormer.
func (d *Door) SetFormer(f Former) { d.former.Store(&f) }

// KnowsKey tells whether a node with that key is answered at all. It must be the key of a peer or of a former
// member. A node without data answers any key, because others may know more than it does. So does a node that hears
// who dials: it refuses a key that is not known here once it has heard whose it is.
func (d *Door) KnowsKey(k cluster.Key) bool {
	if _, checks := d.Checker.(UnknownChecker); checks || d.Hears != nil && d.Hears() {
		return true
	}
	_, ok := d.holder(k)
	return ok
}

// tells tells whether a node that has shown a key ("" = none) may learn why it is refused. Else it learns only a code.
func (d *Door) tells(k cluster.Key) bool {
	_, known := d.holder(k)
	_, checks := d.Checker.(UnknownChecker)
	return k == "" || known || checks
}

func (d *Door) holder(k cluster.Key) (id cluster.NodeID, ok bool) {
	if d.Holder != nil {
		if id, ok = d.Holder(k); ok {
			return id, true
		}
	}
	if f := d.former.Load(); f != nil {
		id, ok = f.Keys[k]
	}
	return id, ok
}

func (d *Door) isPeer(id cluster.NodeID) bool {
	_, ok := d.Peer(id)
	return ok
}

// admitKey decides by the key that a node has shown; nil = the key is that node's. A node whose key is not
// known here learns nothing but a code.
func (d *Door) admitKey(id Identity, key cluster.Key) *RejectedError {
	holder, known := d.holder(key)
	u, checks := d.Checker.(UnknownChecker)
	switch {
	case known && id.ClusterID != d.Self.ClusterID && d.isPeer(holder):
		return d.checkCluster(id)
	case known && holder == id.Node:
		return d.checkMember(id) // a removed node is told only that
	case known:
		return reject(CodeKey, "node %q shows the key of another node: put its own key back", id.NodeName)
	}
	r := reject(CodeKey, "node %q shows the key %s, which is not known here", id.NodeName, key)
	r.Untold = true
	if !checks || id.ClusterID != d.Self.ClusterID {
		return r
	}
	if said, ok := errors.AsType[*RejectedError](u.CheckUnknown(id)); ok {
		r.Code = said.Code
	}
	return r
}

// Admit decides on a node that dials target here and has shown a key; "" = no key. call: it only has a
// question. nil = it is welcome.
func (d *Door) Admit(target cluster.NodeID, id Identity, key cluster.Key, call bool) *RejectedError {
	if key != "" {
		if r := d.admitKey(id, key); r != nil {
			return r
		}
	}
	r := d.check(target, id)
	check := d.Checker.CheckPeer
	c, asks := d.Checker.(CallChecker)
	u, checks := d.Checker.(UnknownChecker)
	switch {
	case r != nil && r.Code == CodeUnknown && checks:
		check = u.CheckUnknown
	case r != nil:
		return r
	case asks && call:
		check = c.CheckCaller
	}
	err := check(id)
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*RejectedError](err); ok {
		return r
	}
	return &RejectedError{Code: CodePeer, Text: err.Error()}
}

// Accept decides on the node that answers a dial to p; nil = it is p.
func (d *Door) Accept(id Identity, p Peer) *RejectedError {
	if r := d.checkCluster(id); r != nil {
		return r
	}
	if id.Node != p.ID {
		return reject(CodeTarget, "node %q (id %d) answers at %s, the address of node %q (id %d)",
			id.NodeName, id.Node, p.Addr, p.Name, p.ID)
	}
	if r := d.checkMember(id); r != nil {
		return r
	}
	check := d.Checker.CheckPeer
	if c, ok := d.Checker.(AnswerChecker); ok {
		check = c.CheckAnswer
	}
	// The error's own code would be an order to this node.
	if err := check(id); err != nil {
		return &RejectedError{Code: CodePeer, Text: err.Error()}
	}
	return nil
}

// check makes all checks of Admit but those by key and by the Checker.
func (d *Door) check(target cluster.NodeID, id Identity) *RejectedError {
	if r := d.checkCluster(id); r != nil {
		return r
	}
	if target != d.Self.Node {
		return reject(CodeTarget, "node %q looked for node %d at this address, where node %q (id %d) answers",
			id.NodeName, target, d.Self.NodeName, d.Self.Node)
	}
	if id.Node == d.Self.Node || id.NodeName == d.Self.NodeName {
		return reject(CodeDuplicate, "the node at this address has the name %q and the id %d itself: two nodes cannot share one of them",
			d.Self.NodeName, d.Self.Node)
	}
	return d.checkMember(id)
}

func (d *Door) checkCluster(id Identity) *RejectedError {
	if id.ClusterID == d.Self.ClusterID {
		return nil
	}
	return reject(CodeCluster, "node %q belongs to cluster %q (id %x), this is cluster %q (id %x)",
		id.NodeName, id.ClusterName, id.ClusterID, d.Self.ClusterName, d.Self.ClusterID)
}

func (d *Door) checkMember(id Identity) *RejectedError {
	p, ok := d.Peer(id.Node)
	if !ok {
		if f := d.former.Load(); f != nil {
			if r := f.reject(id, d.Self.ClusterName); r != nil {
				return r
			}
		}
		return reject(CodeUnknown, "node %q (id %d) is not a member of cluster %q as node %q knows it",
			id.NodeName, id.Node, d.Self.ClusterName, d.Self.NodeName)
	}
	if p.Name != id.NodeName {
		return reject(CodeUnknown, "node id %d is called %q here, not %q", id.Node, p.Name, id.NodeName)
	}
	return nil
}

// Former are the nodes that are told that they are members no more.
type Former struct {
	Removed []cluster.NodeID
	// Keys are the keys of former members, with the node that had each.
	Keys map[cluster.Key]cluster.NodeID
	// Recovery is the recovery by which this cluster goes on; nil = there was none.
	Recovery *cluster.Recovery
}

// reject returns what a node is told that is no peer; nil = it was never a member.
func (f Former) reject(id Identity, clusterName string) *RejectedError {
	if slices.Contains(f.Removed, id.Node) {
		r := reject(CodeRemoved, "node %q was removed from cluster %q", id.NodeName, clusterName)
		r.Order.Recovery = f.Recovery
		return r
	}
	if f.Recovery == nil {
		return nil
	}
	for _, m := range f.Recovery.Without {
		if m.ID == id.Node {
			return &RejectedError{Code: CodeRecovered, Text: f.Recovery.Sentence(m.Name), Order: Order{Recovery: f.Recovery}}
		}
	}
	return nil
}
