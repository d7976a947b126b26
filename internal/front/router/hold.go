package router

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
)

// The error codes of the packets that the router makes itself. MySQL Router
// uses the same two, so clients and monitoring know them.
const (
	codeConnCount = 1040 // ER_CON_COUNT_ERROR: too many connections
	codeConnHost  = 2003 // CR_CONN_HOST_ERROR: cannot connect to the server
)

var (
	errHoldMax     = errors.New("too many connections wait already")
	errHoldTimeout = errors.New("no node has taken the client")
	errClientGone  = errors.New("the client hung up")
	errElsewhere   = errors.New("another node would take the client")
)

// serve connects one client, which may take up to HoldTimeout, and passes its bytes until the
// session ends.
func (r *Router) serve(ctx context.Context, client *net.TCPConn) {
	s, known, err := r.find(ctx, client)
	switch {
	case err == nil:
		r.splice(s)
		return
	case errors.Is(err, errHoldMax):
		r.stats.rejected.Add(1)
		lack := r.why(known)
		if r.config.HoldMax > 0 {
			lack += fmt.Sprintf(", and %d connections wait already", r.config.HoldMax)
		}
		reject(client, codeConnCount, "quorate: "+lack)
	case errors.Is(err, errHoldTimeout):
		r.stats.holdTimeouts.Add(1)
		reject(client, codeConnHost, fmt.Sprintf("quorate: waited %v, %s: see `quorate status`", r.config.HoldTimeout, r.why(known)))
	case errors.Is(err, errElsewhere):
		r.stats.rejected.Add(1)
		reject(client, codeConnHost, "quorate: "+r.notHere()+", and this one passes no clients on (router.forward)")
	default:
		client.Close()
	}
}

// why says what was in the way of the last attempt: it may have been another reason before.
func (r *Router) why(known bool) string {
	if known {
		return "the node for this client has too many clients, or cannot be reached"
	}
	return r.lack()
}

// find returns a connected session for a client. While no node takes the client, it is held. If
// too many clients are held, the oldest client of the address that has the most gets an error.
// With an error, known tells whether there was a node for the client at the last attempt.
func (r *Router) find(ctx context.Context, client *net.TCPConn) (s *session, known bool, err error) {
	changed := r.backend.Changed() // taken before the attempt, so no change is missed
	if r.elsewhere() {
		return nil, known, errElsewhere
	}
	if s, known = r.attempt(ctx, client); s != nil {
		return s, true, nil
	}
	if r.config.HoldMax == 0 {
		return nil, known, errHoldMax
	}
	ctx, expel := context.WithCancelCause(ctx)
	defer expel(nil)
	stay := r.held.Enter(client.RemoteAddr(), func() { expel(errHoldMax) })
	defer stay.Leave()
	defer r.wait(client)()
	gone, stop, err := watchHangUp(client)
	if err != nil {
		return nil, known, err
	}
	defer stop()
	limit := time.NewTimer(r.config.HoldTimeout)
	defer limit.Stop()
	for pause := retryMin; ; {
		var retry <-chan time.Time
		if known { // the node refused: it may accept without a change that this node would see
			retry = time.After(pause)
			pause = min(2*pause, retryMax)
		} else {
			pause = retryMin
		}
		select {
		case <-changed:
		case <-retry:
		case <-limit.C:
			return nil, known, errHoldTimeout
		case <-gone:
			return nil, known, errClientGone
		case <-ctx.Done():
			return nil, known, context.Cause(ctx)
		}
		changed = r.backend.Changed()
		if r.elsewhere() {
			return nil, known, errElsewhere
		}
		if s, known = r.attempt(ctx, client); s != nil {
			return s, true, nil
		}
	}
}

// elsewhere tells whether another node is the one for clients, and this router passes no
// clients on (Config.Refuse).
func (r *Router) elsewhere() bool {
	if !r.config.Refuse {
		return false
	}
	t, known := r.backend.Choose(r.sessionsWith, nil)
	return known && r.away(t)
}

// away tells whether t is another node. The read-only port reaches a primary as from another node (t.Local is false),
// even if the primary is this node.
func (r *Router) away(t Target) bool { return !t.Local && t.Node != r.config.Self }

// attempt tries to connect a client to each node that may take it, the best first. known is false if there is
// no such node.
func (r *Router) attempt(ctx context.Context, client net.Conn) (s *session, known bool) {
	var tried []cluster.NodeID
	for {
		t, ok := r.backend.Choose(r.sessionsWith, tried)
		if !ok || r.config.Refuse && r.away(t) {
			return nil, len(tried) > 0
		}
		s, err := r.connect(ctx, client, 0, t, dialTimeout)
		if err == nil {
			return s, true
		}
		r.stats.dialErrors.Add(1)
		r.config.Logger.Debug("cannot connect a client", "node", t.Node, "err", err)
		tried = append(tried, t.Node)
	}
}

// watchHangUp closes gone when the client closes its connection. It only peeks, so no byte is
// lost if a client speaks first; but then it stops watching. The caller must call stop before
// it reads the connection.
func watchHangUp(client *net.TCPConn) (gone <-chan struct{}, stop func(), err error) {
	raw, err := client.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("watch client: %w", err)
	}
	hungUp, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var n int
		var peekErr error
		err := raw.Read(func(fd uintptr) bool {
			var b [1]byte
			for peekErr = unix.EINTR; peekErr == unix.EINTR; {
				n, _, peekErr = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			}
			return peekErr != unix.EAGAIN // false = wait until there is something
		})
		// err is the deadline that stop has set; n is 0 at the end of the stream and -1 after a
		// reset.
		if err == nil && n <= 0 {
			close(hungUp)
		}
	}()
	stop = func() {
		client.SetReadDeadline(time.Unix(1, 0))
		<-done
		client.SetReadDeadline(time.Time{})
	}
	return hungUp, stop, nil
}

// reject sends a client an error in place of the server's greeting and closes
// its connection. The packet has no SQLSTATE: before the greeting the two
// sides have not agreed on a protocol that has one (MySQL's protocol_classic.cc
// sends none either), and clients then show HY000.
//
//	+-----------+-----+------+----------+---------
//	| length u24 | 0  | 0xff | code u16 | message
//	+-----------+-----+------+----------+---------
func reject(client net.Conn, code uint16, message string) {
	packet := make([]byte, 0, 7+len(message))
	packet = binary.LittleEndian.AppendUint32(packet, uint32(3+len(message))) // the sequence number, 0, is the high byte
	packet = append(packet, 0xff)
	packet = binary.LittleEndian.AppendUint16(packet, code)
	packet = append(packet, message...)
	client.SetWriteDeadline(time.Now().Add(errorWriteTimeout))
	client.Write(packet) // an error means that the client has left
	client.Close()
}
