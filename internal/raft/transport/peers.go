package transport

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/strangers"
)

// peer returns the peer with an id, or nil.
func (t *Transport) peer(id cluster.NodeID) *peer { return t.allPeers()[id] }

// allPeers returns the present peers. The map must not be changed.
func (t *Transport) allPeers() map[cluster.NodeID]*peer { return *t.peers.Load() }

// DialError says why the newest attempt to connect to a peer has failed; "" = it has not failed, or there was
// none.
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
	p.opening = make(chan struct{}, routesOpenedMax)
	host, _, _ := net.SplitHostPort(c.Addr)
	if ip := net.ParseIP(host); ip != nil { // a name has no address yet
		p.at.Store(&[]net.IPAddr{{IP: ip}})
	}
	p.gone, p.leave = context.WithCancel(context.Background())
	p.newReach()
	p.shookHands.Store(t.now())
	p.links = [2]*link{newLink(t, p, classControl), newLink(t, p, classAppend)}
	return p
}

// isPeers tells whether an address may be a peer's. Connections from other addresses come second in the limits
// on handshakes.
func (t *Transport) isPeers(source netip.Addr) bool {
	is := func(ip net.IPAddr) bool { return strangers.Source(&net.TCPAddr{IP: ip.IP}) == source }
	for _, p := range t.allPeers() {
		if at := p.at.Load(); at != nil && slices.ContainsFunc(*at, is) {
			return true
		}
		if from := p.from.Load(); from != nil && *from == source {
			return true
		}
	}
	return false
}

// SetPeers sets the peers, before or during Run. Connections to new peers are opened; connections to and from
// nodes that are no peers any more are closed. A peer with another name, address or key is a new peer. The
// handler hears nothing more of a node that is no peer any more, not even PeerDown. Such a node's routed and
// bulk streams are closed, its calls some seconds later: one of the calls may have asked for the removal, and
// is still to be answered.
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
		switch {
		case p == nil:
			p = t.newPeer(c)
		case p.Peer != c:
			p = t.newPeer(c)
			if p.isAs(old[c.ID].Peer) {
				p.follow(old[c.ID])
			}
		}
		next[c.ID] = p
	}
	t.replacePeers(next)
}

// isAs tells whether p is the same node as the peer before: name and address are equal, and one of its keys is.
func (p Peer) isAs(before Peer) bool {
	same := p.Key == before.Key || p.has(before.Key) || p.has(before.NextKey)
	return same && p.Name == before.Name && p.Addr == before.Addr
}

// follow makes p replace before, which is the same node. The streams that are open with it stay open.
func (p *peer) follow(before *peer) {
	p.leave()
	p.gone, p.leave = before.gone, before.leave
	p.reach.Store(before.reach.Load())
	p.at.Store(before.at.Load())
	before.leave = func() {}
}

// replacePeers closes everything with peers that are not in next, and starts the links of the new ones. t.mu is
// held.
func (t *Transport) replacePeers(next map[cluster.NodeID]*peer) {
	old := t.allPeers()
	t.peers.Store(&next)
	for id, p := range old {
		if next[id] == p {
			continue
		}
		p.removed = true
		p.stop()
		p.leave()
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

// Hangup ends the connections that a peer has made to this node, or whose handshakes are under way. The peer
// dials again, and hears in the handshake what this node has to tell it. ended: there was such a connection.
func (t *Transport) Hangup(id cluster.NodeID) (ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peer(id)
	if p == nil {
		return false
	}
	p.hungUp = t.hangups.Add(1)
	for _, in := range p.inbound {
		if in != nil {
			ended = true
			_ = in.conn.Close()
		}
	}
	return ended
}

// SetFormer sets which nodes are rejected with CodeRemoved or CodeRecovered when they dial and are no peers.
// What f points to must not be changed afterwards.
func (t *Transport) SetFormer(f Former) { t.door.SetFormer(f) }

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
