package sim

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/transport"
)

// The connections between nodes, and questions, as package transport makes them of the network. The product
// decides which node is admitted, and which is dialled (transport.Door).

// dialEvery is how often a peer is dialled that is not connected.
const dialEvery = 300 * time.Millisecond

// atDoor returns the process that answers on a node; nil = none does.
func (n *node) atDoor() *host {
	if n.joiner != nil {
		return n.joiner.host
	}
	return n.host()
}

// host returns the process that dials on a node: an agent, or what runs instead of it. A node that introduces
// itself only asks, so it is not returned.
func (n *node) host() *host {
	switch {
	case n.agent != nil:
		return n.agent.host
	case n.healer != nil:
		return n.healer.host
	case n.joiner != nil && n.joiner.knocks == nil:
		return n.joiner.host
	}
	return n.out
}

// dials tells whether a process talks to a node.
func dials(p *host, to *node) bool {
	_, ok := p.door.Peer(to.id)
	return ok
}

// admits returns the answer of a process to a node that dials it; call: with a question.
func admits(p *host, from *node, call bool) *transport.RejectedError {
	r := p.door.Admit(p.n.id, from.identity(), "", call)
	if r != nil {
		r.By = p.n.member.Name
	}
	return r
}

// dialled has a process dial a node, unless they are connected; true = they are from now on. Each direction is a
// connection of its own. The other side judges first, and then says who it is.
func (p *host) dialled(to *host) (connected bool) {
	peer, known := p.door.Peer(to.n.id)
	a := p.n.agent
	if !known || a != nil && a.conns[to.n.id] != nil && !a.conns[to.n.id].life.ended {
		return false
	}
	if r := admits(to, p.n, false); r != nil {
		p.life.after(latencyMin, func() { p.rejected(to.n, r) })
		return false
	}
	if r := p.door.Accept(to.n.identity(), peer); r != nil || a == nil || to.n.agent == nil {
		return false
	}
	a.conns[to.n.id] = to.n.agent
	return true
}

// rejected takes a peer's rejection of this node. It takes one at a time from each peer.
func (p *host) rejected(by *node, r *transport.RejectedError) {
	if p.rejecting[by.id] {
		return
	}
	p.rejecting[by.id] = true
	p.life.start(func() {
		p.stance.RefusedDial(by.member.Name, r)
		delete(p.rejecting, by.id)
	})
}

// runDial dials the members that are not connected.
func (p *host) runDial() {
	for {
		p.life.sleep(dialEvery/2 + around(p.n.rng, dialEvery/2))
		for _, m := range p.board.Members() {
			if a := p.n.agent; a == nil || a.conns[m.ID] == nil || a.conns[m.ID].life.ended {
				p.w.connect(p.n, p.w.node(m.ID))
			}
		}
	}
}

// connect makes two nodes find each other, if both run.
func (w *World) connect(a, b *node) {
	if a == b {
		return
	}
	w.sched.after(latencyMin+around(w.net.rng, redialMax/8), func() {
		x, y := a.host(), b.host()
		switch {
		case x != nil && y == nil && b.joiner != nil && b.joiner.knocks != nil && w.net.connected(a.id, b.id) && dials(x, b):
			b.joiner.life.run(func() { admits(b.joiner.host, a, false) })
		case x == nil || y == nil:
		case !w.net.connected(a.id, b.id):
			w.sched.after(redialMax, func() { w.connect(a, b) })
		default:
			there, back := x.dialled(y), y.dialled(x)
			if there {
				a.agent.life.run(func() { a.agent.peerUp(b.id) })
			}
			if back {
				b.agent.life.run(func() { b.agent.peerUp(a.id) })
			}
		}
	})
}

// disconnect tells a node that a peer is gone. If only the peer's process ended, the node learns that at once,
// by a refused dial; if the peer's machine is gone, after a silence.
func (w *World) disconnect(n, gone *node, refused bool) {
	a := n.agent
	if n == gone || a == nil {
		return
	}
	after := 3*latencyMin + around(w.net.rng, time.Millisecond)
	if !refused {
		after = silenceMax
	}
	lost := gone.agent
	w.sched.after(after, func() {
		if refused && (gone.agent != nil || !gone.powered || !w.net.connected(n.id, gone.id)) {
			return // a process listens there again, or nobody answers
		}
		if a.conns[gone.id] != lost {
			return // there is another connection, or there was none
		}
		if gone.agent == nil || gone.agent == lost && !refused && !gone.powered {
			delete(a.conns, gone.id)
			a.life.run(func() { a.peerDown(gone.id, refused) })
		}
	})
}

// watchConnection ends a connection that a cut has silenced for too long. The nodes connect again after the
// cut.
func (w *World) watchConnection(a, b *node) {
	w.sched.after(silenceMax, func() {
		if w.net.connected(a.id, b.id) || a.agent == nil || b.agent == nil {
			return
		}
		delete(a.agent.conns, b.id)
		delete(b.agent.conns, a.id)
		a.agent.life.run(func() { a.agent.peerDown(b.id, false) })
		b.agent.life.run(func() { b.agent.peerDown(a.id, false) })
		w.connect(a, b)
	})
}

// connection is one of the two connections that an agent has from a peer: appends have one of their own.
type connection struct {
	from    cluster.NodeID
	appends bool
}

// reader is the goroutine that reads a connection.
type reader struct {
	came []*pb.Message
	runs bool
}

// read makes the reader of a connection bring a message to raft.
func (a *agent) read(from cluster.NodeID, m *pb.Message) {
	c := connection{from, m.GetType() == pb.MsgApp}
	r := a.readers[c]
	if r == nil {
		r = &reader{}
		a.readers[c] = r
	}
	if r.came = append(r.came, m); r.runs {
		return
	}
	r.runs = true
	a.life.Go(func() {
		for len(r.came) > 0 {
			m, r.came = r.came[0], r.came[1:]
			a.Raft.Step(m, len(r.came) > 0)
		}
		r.runs = false
	})
}

// send gives messages to the network, encoded: two nodes share no memory.
func (a *agent) send(ms []*pb.Message) {
	n, answers := a.n, a.disk.answers
	if a.Slot.Serving() {
		n.check.served(n)
	}
	for _, m := range ms {
		raw, err := proto.Marshal(m)
		if err != nil {
			n.w.fail("sim", "encode message: %v", err)
		}
		to := cluster.NodeID(m.GetTo())
		n.log("send", "%s to n%d term %d index %d entries %d", m.GetType(), to, m.GetTerm(), m.GetIndex(), len(m.GetEntries()))
		if n.w.sources != nil && m.GetType() == pb.MsgApp && len(m.GetEntries()) > 0 {
			n.w.sources.sends(a, to)
		}
		if n.w.membersChange && a.conns[to] == nil {
			continue // there is no connection to write to
		}
		sent := n.w.net.send(n.id, to, func() { n.w.arrived(a, to, raw) })
		if !sent && chance(n.rng, 25) {
			a.life.Go(func() { a.Raft.PeerUnreachable(to) })
		}
	}
	if answers { // the turn is free
		a.life.sleep(n.heldUp())
	}
}

func (w *World) arrived(from *agent, to cluster.NodeID, raw []byte) {
	a := w.node(to).agent
	if a == nil || w.membersChange && from.conns[to] != a {
		return
	}
	a.life.run(func() {
		m := &pb.Message{}
		if err := proto.Unmarshal(raw, m); err != nil {
			w.fail("sim", "decode message: %v", err)
		}
		w.log(to, "receive", "%s from n%d", m.GetType(), from.n.id)
		a.read(from.n.id, m)
	})
}

// hangup ends the connection that a peer has made.
func (a *agent) hangup(id cluster.NodeID) (ended bool) {
	peer := a.w.node(id).agent
	if peer == nil || peer.conns[a.n.id] != a {
		return false
	}
	delete(peer.conns, a.n.id)
	peer.life.after(latencyMin, func() { peer.lost(a.n.id) })
	return true
}

// lost notes that the connection to a peer has ended, unless there is another one by now.
func (a *agent) lost(id cluster.NodeID) {
	if a.conns[id] == nil {
		a.peerDown(id, false)
	}
}

// callTimeout bounds a question to another node, as in the product: the node answers sooner, or not at all.
const callTimeout = 3 * time.Second

var errNoAnswer = errors.New("no answer")

// call makes serve run on another node, and returns the answer. serve may answer later, or never.
func call[T any](ctx context.Context, l *life, peer *node, serve func(answer func(T, error))) (got T, err error) {
	ctx, cancel := l.WithTimeout(ctx, callTimeout)
	defer cancel()
	var done signal
	n, answered := l.n, false
	n.w.net.send(n.id, peer.id, func() {
		serve(func(t T, e error) {
			n.w.net.send(peer.id, n.id, func() { l.run(func() { got, err, answered = t, e, true; done.fire() }) })
		})
	})
	if l.Wait(ctx, 0, done.next()) != nil || !answered {
		return *new(T), errNoAnswer
	}
	return got, err
}

// callAgent makes f run in another node's agent, if each of the two accepts the other.
func callAgent[T any](ctx context.Context, l *life, known *membership.Directories, peer *node, f func(a *agent) (T, error)) (T, error) {
	return call(ctx, l, peer, func(answer func(T, error)) {
		a := peer.agent
		if a == nil && peer.powered {
			answer(*new(T), errNoAnswer) // the dial is refused
		}
		if a == nil {
			return
		}
		a.life.run(func() {
			if r := admits(a.host, l.n, true); r != nil {
				answer(*new(T), r)
				return
			}
			if l.ended {
				return
			}
			if known.Check(peer.identity()) != nil {
				answer(*new(T), errNoAnswer)
				return
			}
			a.life.start(func() { answer(f(a)) })
		})
	})
}

// Introduce implements join.Newcomer.
func (j *joiner) Introduce(ctx context.Context) (i transport.Introduction) {
	for _, m := range j.Members() {
		peer := j.w.node(m.ID)
		if peer == j.n {
			continue
		}
		as, err := call(ctx, j.life, peer, func(answer func(transport.Identity, error)) {
			p := peer.atDoor()
			switch {
			case p != nil:
				p.life.run(func() {
					if r := admits(p, j.n, false); r != nil {
						answer(transport.Identity{}, r)
						return
					}
					answer(peer.identity(), nil)
				})
			case peer.powered: // the dial is refused
				answer(transport.Identity{}, errNoAnswer)
			}
		})
		if err == nil {
			if r := j.door.Accept(as, transport.Peer{ID: m.ID, Name: m.Name, Addr: m.Peer}); r != nil {
				err = r
			}
		}
		i.Add(m.Name, as, err)
	}
	return i
}

// AskWord implements quorumloss.Node.
func (f formerMember) AskWord(ctx context.Context, of cluster.NodeID, r cluster.Recovery) (recovery.Word, error) {
	peer := f.n.w.node(of)
	return call(ctx, f.life, peer, func(answer func(recovery.Word, error)) {
		switch {
		case peer.stalledUntil > f.n.w.sched.now:
		case peer.out != nil:
			answer(peer.out.stance.Word(r), nil)
		case peer.agent != nil && admits(peer.agent.host, f.n, true) == nil:
			answer(peer.agent.stance.Word(r), nil)
		}
	})
}

// AskWhoRefuses implements quorumloss.Node.
func (f formerMember) AskWhoRefuses(ctx context.Context, peers []transport.Peer) (answers []*transport.RejectedError) {
	for _, p := range peers {
		peer := f.n.w.node(p.ID)
		r, err := call(ctx, f.life, peer, func(answer func(*transport.RejectedError, error)) {
			if p := peer.host(); p != nil && peer.stalledUntil <= f.n.w.sched.now {
				answer(admits(p, f.n, false), nil)
			}
		})
		if err == nil && r != nil {
			answers = append(answers, r)
		}
	}
	return answers
}
