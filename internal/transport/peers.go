package transport

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// peer returns the peer of an id, nil if there is none.
func (t *Transport) peer(id cluster.NodeID) *peer { return t.allPeers()[id] }

// allPeers returns the peers as they are now. The map is never changed.
func (t *Transport) allPeers() map[cluster.NodeID]*peer { return *t.peers.Load() }

// DialError says why the newest attempt to connect to a peer has failed; "" = it has not,
// or there was none.
func (t *Transport) DialError(id cluster.NodeID) string {
	if p := t.peer(id); p != nil {
		if text := p.links[classControl-1].dialError.Load(); text != nil {
			return strings.TrimPrefix(strings.TrimPrefix(*text, "dial peer at "+p.Addr+": "), "dial peer: ")
		}
	}
	return ""
}

func (t *Transport) newPeer(c Peer) *peer {
	p := &peer{Peer: c, stop: func() {}, reading: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}
	p.links = [2]*link{newLink(t, p, classControl), newLink(t, p, classAppend)}
	return p
}

// SetPeers makes these the peers, while Run is under way or before: connections to
// new ones are opened, those to and from others than these are closed. A peer whose
// name or address is another one is a new one. Of one that is none any more the
// handler hears nothing, not even PeerDown. Routed, bulk and call streams go on
// until they end.
func (t *Transport) SetPeers(peers []Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.allPeers()
	next := make(map[cluster.NodeID]*peer, len(peers))
	for _, c := range peers {
		if c.ID == t.cfg.Identity.Node {
			continue
		}
		p := old[c.ID]
		if p == nil || p.Peer != c {
			p = t.newPeer(c)
		}
		next[c.ID] = p
	}
	t.peers.Store(&next)
	for id, p := range old {
		if next[id] == p {
			continue
		}
		p.removed = true
		p.stop()
		for _, in := range p.inbound {
			if in != nil {
				_ = in.conn.Close()
			}
		}
	}
	for id, p := range next {
		if old[id] != p {
			t.startLinks(p)
		}
	}
}

// removedNodes are former members, and what they are told behind the sentence.
type removedNodes struct {
	ids    []cluster.NodeID
	suffix string
}

// SetRemoved says who was a member once: a node that dials and is among these, and
// no peer, is rejected with CodeRemoved. suffix goes behind the sentence that says so.
func (t *Transport) SetRemoved(ids []cluster.NodeID, suffix string) {
	t.removed.Store(&removedNodes{ids: slices.Clone(ids), suffix: suffix})
}

// SetLeftBehind says which nodes a recovery went on without, and what each of them is
// told: a node that dials and is among these, and no peer, is rejected with
// CodeRecovered.
func (t *Transport) SetLeftBehind(orders map[cluster.NodeID]string) {
	orders = maps.Clone(orders)
	t.leftBehind.Store(&orders)
}

// startLinks starts a peer's links, if Run is under way. t.mu is held.
func (t *Transport) startLinks(p *peer) {
	if t.running == nil || t.closing {
		return
	}
	ctx, cancel := context.WithCancel(t.running)
	p.stop = cancel
	for _, l := range p.links {
		t.outgoing.Go(func() { l.run(ctx) })
	}
}
