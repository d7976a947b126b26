package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/strangers"
)

// The status byte between two routers (see the package comment). 0 is neither, so that a stream
// of zeros is never taken for a yes.
const (
	statusAccepted = 1
	statusRefused  = 2
)

var (
	errMoved   = errors.New("the node takes no clients any more")
	errRefused = errors.New("the other node's router refused")
	errClosed  = errors.New("closed while connecting")
)

// session is one client connection and its connection to a server.
type session struct {
	client net.Conn
	// If Target is Local, Backend.Serving is asked for each chunk.
	Target
	// passed counts the client's chunks with a request that were passed to the server. answered is the
	// value of passed when the server sent the bytes that the client got last.
	passed, answered atomic.Int64
	// from is the node whose router has sent the client here; 0 = the client connected to this
	// port.
	from   cluster.NodeID
	began  time.Time
	number uint64 // by the order of registration, from 1
	// For its log line. bytesIn belongs to copyToServer, bytesOut and denied belong to copyToClient.
	denied            bool
	bytesIn, bytesOut int64
	// stay is its place among the strangers, from the greeting to the login. It is nil for a routed client, which
	// counts at the router that has sent it.
	stay  atomic.Pointer[strangers.Stay]
	login login
	known bool // the server has answered the login, so stay has ended; belongs to copyToClient
	// cancelDial ends the dial of the server side.
	cancelDial context.CancelFunc

	mu     sync.Mutex
	server net.Conn // nil until connected
	closed bool
}

// waits tells whether the client has sent a request and has got no bytes since.
func (s *session) waits() bool { return s.passed.Load() > s.answered.Load() }

// The commands that have no answer.
const (
	comStmtSendLongData = 0x18
	comStmtClose        = 0x19
)

// wantsAnswer returns false for a chunk that has only whole commands without an answer. It
// returns true for bytes that it cannot read (TLS, part of a command). A mistake does little
// harm: a session that is wrongly taken to wait costs a settling primary 0.2 s; the other
// mistake closes a session without its answer, which clients must expect at any time.
func wantsAnswer(chunk []byte) bool {
	for len(chunk) > 0 {
		if len(chunk) < 5 || chunk[3] != 0 || chunk[4] != comStmtSendLongData && chunk[4] != comStmtClose {
			return true
		}
		end := 4 + (int(chunk[0]) | int(chunk[1])<<8 | int(chunk[2])<<16)
		if end < 5 || end > len(chunk) {
			return true
		}
		chunk = chunk[end:]
	}
	return false
}

// close ends the session at once. If its server side is still being dialled, only the dial
// ends: the client has not seen a byte and may be held. close returns true the first time.
func (s *session) close() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	s.cancelDial()
	if s.server != nil {
		s.server.Close()
		s.client.Close()
	}
	return true
}

// connected gives the session its server side. It returns false, and closes
// the connection, if the session was closed during the dial.
func (s *session) connected(server net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		server.Close()
		return false
	}
	s.server = server
	return true
}

// connect dials t for a client that the node from has sent here (0 = none). It returns a session
// that is connected and registered; splice ends it.
func (r *Router) connect(ctx context.Context, client net.Conn, from cluster.NodeID, t Target, timeout time.Duration) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s := &session{client: client, from: from, Target: t, cancelDial: cancel, began: time.Now()}
	if !r.register(s) {
		return nil, errClosed
	}
	server, err := r.dial(ctx, t)
	if err == nil && !s.connected(server) {
		err = errClosed
	}
	if err != nil {
		r.unregister(s)
		return nil, err
	}
	return s, nil
}

func (r *Router) dial(ctx context.Context, t Target) (net.Conn, error) {
	// Ask again now that the session is registered. watch has not seen a change before the
	// registration, but will see any change after it.
	if !r.backend.Takes(t) {
		return nil, errMoved
	}
	if t.Local {
		return r.backend.DialLocal(ctx)
	}
	conn, err := r.backend.DialPeer(ctx, t.Node)
	if err != nil {
		return nil, err
	}
	if err := readStatus(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// readStatus reads the status byte, for as long as ctx allows.
func readStatus(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	var status [1]byte
	_, err := io.ReadFull(conn, status[:])
	if !stop() { // ctx has ended, and the deadline may be set at any moment
		return ctx.Err()
	}
	switch {
	case err != nil:
		return fmt.Errorf("read status byte: %w", err)
	case status[0] == statusRefused:
		return errRefused
	case status[0] != statusAccepted:
		return fmt.Errorf("read status byte: %d is unknown", status[0])
	}
	return nil
}

// HandleRouted takes a client stream that the router of node from has forwarded. The client is
// served only while this node serves, and is never forwarded again. HandleRouted returns at
// once; the Router owns conn from then on.
func (r *Router) HandleRouted(conn net.Conn, from cluster.NodeID) {
	if !r.start(func(ctx context.Context) { r.serveRouted(ctx, conn, from) }) {
		r.refuse(conn)
	}
}

func (r *Router) serveRouted(ctx context.Context, conn net.Conn, from cluster.NodeID) {
	s, err := r.connect(ctx, conn, from, Target{Local: true}, routedDialTimeout)
	if err != nil {
		r.config.Logger.Debug("refused a routed client", "err", err)
		r.refuse(conn)
		return
	}
	conn.SetWriteDeadline(time.Now().Add(errorWriteTimeout))
	if _, err := conn.Write([]byte{statusAccepted}); err != nil {
		s.close()
	}
	conn.SetWriteDeadline(time.Time{})
	r.stats.routed.Add(1)
	r.splice(s)
}

func (r *Router) refuse(conn net.Conn) {
	r.stats.routedRefused.Add(1)
	conn.SetWriteDeadline(time.Now().Add(errorWriteTimeout))
	conn.Write([]byte{statusRefused}) // if this is lost, the peer gives up by itself
	conn.Close()
}

// splice passes bytes in both directions until one side or the lease ends, or the session is
// closed.
func (r *Router) splice(s *session) {
	r.stats.sessions.Add(1)
	var pair sync.WaitGroup
	pair.Go(func() {
		defer s.close()
		r.copyToClient(s)
	})
	r.copyToServer(s)
	s.close()
	pair.Wait()
	if stay := s.stay.Load(); stay != nil {
		stay.Leave()
	}
	r.unregister(s)
	r.stats.sessions.Add(-1)
	r.record(s)
}

// copyToServer passes the client's bytes on. I5: the lease is asked after a
// chunk was read, so it covers the moment at which the client sent it.
func (r *Router) copyToServer(s *session) {
	buf := r.buffers.Get().(*[bufferBytes]byte)
	defer r.buffers.Put(buf)
	for owed := false; ; {
		n, err := s.client.Read(buf[:])
		if n > 0 {
			if r.closeWithoutLease(s) {
				return
			}
			s.bytesIn += int64(n)
			s.login.sent(buf[:n])
			if wantsAnswer(buf[:n]) {
				s.passed.Add(1)
			}
			if _, werr := s.server.Write(buf[:n]); werr != nil {
				return
			}
			if stay := s.stay.Load(); !owed && stay != nil && s.login.whole.Load() {
				owed = true
				stay.Leave()
			}
		}
		if err != nil {
			return
		}
	}
}

// copyToClient passes the server's bytes on. It writes everything that it has read, even
// without a lease (see the package comment).
func (r *Router) copyToClient(s *session) {
	buf := r.buffers.Get().(*[bufferBytes]byte)
	defer r.buffers.Put(buf)
	for chunks := 1; ; chunks++ {
		n, err := s.server.Read(buf[:])
		if n > 0 {
			r.meet(s, chunks == 1)
			s.login.answered(buf[:n])
			passed := s.passed.Load()
			s.denied = s.denied || s.bytesOut < loginBytesMax && isDenied(buf[:n])
			s.bytesOut += int64(n)
			if _, werr := s.client.Write(buf[:n]); werr != nil {
				return
			}
			s.answered.Store(passed)
			// A request that came under the lease during this write may still get its answer.
			if !s.waits() && r.closeWithoutLease(s) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// meet counts a client as a stranger from the greeting on, until its whole login was passed on, or the server sends its
// first bytes after the begin of the login: an OK, an error that ends the connection, or a step of the login. So who waits
// for the server is no stranger: mysqld may hold all logins for long, while a GRANT waits for its ACK.
func (r *Router) meet(s *session, greeting bool) {
	switch {
	case s.from != 0:
	case greeting:
		stay := r.strangers.Enter(s.client.RemoteAddr(), func() { s.close() })
		s.stay.Store(stay)
		if s.login.whole.Load() { // sent before the greeting
			stay.Leave()
		}
	case !s.known && s.login.begun.Load():
		s.known = true
		s.stay.Load().Leave()
	}
}

// closeWithoutLease closes a session with the local mysqld if this node does not serve. It
// returns true if the session is over.
func (r *Router) closeWithoutLease(s *session) bool {
	if !s.Local || r.backend.Serving() {
		return false
	}
	if s.close() {
		r.stats.closedByLease.Add(1)
	}
	return true
}
