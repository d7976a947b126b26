package transport

import (
	"context"
	"fmt"
	"net"

	"github.com/quorate/quorate/internal/cluster"
)

// callStreamsMax bounds the calls that one peer may have open here. A call is an operator's request. It takes
// seconds; a restart takes minutes, but a node has only one at a time. If a dialler opens more, its stream is
// closed at once.
const callStreamsMax = 8

// DialCall opens a stream for one question and one answer between agents (package control): the peer's
// Handler.Call gets the other end. Everything else is as with DialBulk. A peer that knows no calls is not
// asked: a *RejectedError says so.
func (t *Transport) DialCall(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	return t.open(ctx, id, classCall)
}

// AnswersAt shakes hands at an address as if peer id were there, by that peer's key. nil = the peer is there.
func (t *Transport) AnswersAt(ctx context.Context, id cluster.NodeID, addr string) error {
	p := t.peer(id)
	if p == nil {
		return fmt.Errorf("look for node %d: %w", id, ErrUnknownPeer)
	}
	at := p.Peer
	at.Addr = addr
	conn, _, err := t.connect(ctx, at, classCall)
	if err != nil {
		return err
	}
	_ = conn.Close()
	return nil
}

// knows returns a *RejectedError if the control connection to p uses a version that lacks a class.
func (p *peer) knows(c class) error {
	if v := uint16(p.version.Load()); v != 0 && v < c.since() {
		return reject(CodeVersion, "node %q speaks protocol version %d, which has no %ss: upgrade it first", p.Name, v, c)
	}
	return nil
}
