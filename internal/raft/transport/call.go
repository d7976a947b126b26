package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/quorate/quorate/internal/cluster"
)

// callStreamsMax bounds the calls that one peer may have open here. A call is an operator's request. It takes
// seconds; a restart takes minutes, but a node has only one at a time. If a dialler opens more, its stream is
// closed at once.
const callStreamsMax = 8

// DialCall opens a stream for one question and one answer between agents (package control): the peer's
// Handler.Call gets the other end. Everything else is as with DialBulk. A peer that knows no calls is not
// asked: a *RejectedError says so. An operator reads the error: it says what does not run, and where to look.
func (t *Transport) DialCall(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	conn, err := t.open(ctx, id, classCall)
	if p := t.peer(id); err != nil && p != nil {
		err = p.unasked(err)
	}
	return conn, err
}

// callError has a text for an operator, and the error behind it for programs.
type callError struct {
	text  string
	cause error
}

func (e *callError) Error() string { return e.text }
func (e *callError) Unwrap() error { return e.cause }

// unasked says why the peer cannot be asked. Only an error of the dial itself has the connection's addresses (withoutPorts).
func (p *peer) unasked(err error) error {
	dialling, is := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, errRefused):
		return &callError{fmt.Sprintf("no agent runs at %s (connection refused): \"systemctl start quorate\" on the host of node %s", p.Addr, p.Name), err}
	case is:
		return &callError{fmt.Sprintf("the host of node %s does not answer at %s: %v", p.Name, p.Addr, dialling.Err), err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &callError{fmt.Sprintf("the host of node %s answers at %s, and its agent does not: it hangs; see its log there (journalctl -u quorate)", p.Name, p.Addr), err}
	}
	return err
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
