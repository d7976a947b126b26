package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/frame"
	"github.com/quorate/quorate/internal/sys/strangers"
)

// inbound is an accepted connection of one class from one peer. At most one of them has a reader. The next
// connection closes it and waits until its reader has ended, so that messages of a class arrive in order across
// a reconnect. Only the newest connection waits: the reader may hang in a disk.
type inbound struct {
	conn     net.Conn
	replaced chan struct{}
	// hangups is the value of Transport.hangups when the handshake began.
	hangups uint64
}

// received counts what came in from one peer on one class.
type received struct {
	messages, bytes, corrupt atomic.Uint64
}

// accept takes connections until the listener is closed.
func (t *Transport) accept(ctx context.Context, ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, most likely. Closing the listener would
			// tell the peers that this process is dead, so it stays.
			t.cfg.Logger.Error("cannot accept peer connections", "err", err)
			time.Sleep(acceptRetryWait)
			continue
		}
		stay := t.strangers.Enter(conn.RemoteAddr(), func() { _ = conn.Close() })
		if !t.startInbound(ctx, conn, stay) {
			stay.Leave()
			_ = conn.Close()
		}
	}
}

// startInbound starts the goroutine of an accepted connection, unless the
// transport is closing.
func (t *Transport) startInbound(ctx context.Context, conn net.Conn, stay *strangers.Stay) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The context ends before closing is set, and that ends the connections. A peer that dials again at once
	// must not be answered here.
	if t.closing || ctx.Err() != nil {
		return false
	}
	t.inboundWG.Go(func() { t.serveInbound(ctx, conn, stay) })
	return true
}

// serveInbound makes the handshake on conn and serves it to its end.
func (t *Transport) serveInbound(ctx context.Context, conn net.Conn, stay *strangers.Stay) {
	accepted := conn
	stop := context.AfterFunc(ctx, func() { _ = accepted.Close() })
	hangups := t.hangups.Load()
	conn, h, err := t.shakeHands(ctx, conn, stay)
	if !stay.Leave() && err == nil {
		err = strangers.ErrExpelled
	}
	if err != nil {
		t.handshakeFailed(ctx, conn, err)
		stop()
		_ = conn.Close()
		return
	}
	p := t.peer(h.id.Node)
	if p == nil || !t.mayStay(p, h.key) {
		stop()
		_ = conn.Close()
		return
	}
	p.from.Store(new(strangers.Source(conn.RemoteAddr())))
	p.shookHands.Store(t.now())
	if h.class == classRoute || h.class == classRead {
		if stop() { // else the transport is closing, and closes conn
			t.serveRoute(conn, p, h.class == classRead)
		}
		return
	}
	defer stop()
	if h.class == classBulk || h.class == classCall {
		t.serve(ctx, conn, p, h.class)
		return
	}
	for _, l := range p.links {
		l.peerAlive()
	}
	me := &inbound{conn: conn, replaced: make(chan struct{}), hangups: hangups}
	defer func() { _ = conn.Close() }()
	if !t.enter(p, h.class, me) {
		return
	}
	reading := p.reading[h.class-1]
	select {
	case reading <- struct{}{}:
		defer func() { <-reading }()
	case <-me.replaced:
		return
	}
	err = t.read(conn, p, h.class)
	t.leave(p, h.class, me)
	if ctx.Err() != nil {
		return
	}
	attributes := []any{"peer", p.Name, "class", h.class.String(), "err", err}
	if errors.Is(err, ErrCorrupt) {
		p.received(h.class).corrupt.Add(1)
		t.strangers.Log().Warn(conn.RemoteAddr(), "closed connection from peer", attributes...) // the peer connects again at once
		return
	}
	t.cfg.Logger.Debug("connection from peer ended", attributes...)
}

// serve gives a bulk stream or a call to its handler, and closes it after that. If the peer has as many streams
// open as it may, the stream is only closed.
func (t *Transport) serve(ctx context.Context, conn net.Conn, p *peer, c class) {
	s, most, goneFor, handle := &p.bulk, int64(bulkStreamsMax), time.Duration(0), t.cfg.Handler.Bulk
	if c == classCall {
		s, most, goneFor, handle = &p.calls, callStreamsMax, t.tune.leaverCallTime, t.cfg.Handler.Call
	}
	defer func() { _ = conn.Close() }()
	defer s.open.Add(-1)
	if s.open.Add(1) > most {
		s.refused.Add(1)
		t.warnOfMore(conn, p, c)
		return
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer p.closeWhenGone(conn, end, goneFor)()
	handle(ctx, p.ID, conn)
}

// warnOfMore logs that a peer opens more streams of a class than it may. It is an agent that repeats itself, or
// somebody who has that peer's key.
func (t *Transport) warnOfMore(conn net.Conn, p *peer, c class) {
	t.strangers.Log().Warn(conn.RemoteAddr(), "refused a stream: its peer has as many as it may", "peer", p.Name, "class", c.String())
}

// shakeHands makes the answering side of the handshake under its deadline. It returns the connection to use
// from then on.
func (t *Transport) shakeHands(ctx context.Context, conn net.Conn, stay *strangers.Stay) (net.Conn, hello, error) {
	ctx, end := context.WithTimeout(ctx, t.tune.handshakeTimeout)
	defer end()
	if err := conn.SetDeadline(time.Now().Add(t.tune.handshakeTimeout)); err != nil {
		return conn, hello{}, fmt.Errorf("set handshake deadline: %w", err)
	}
	inner, key, err := t.unwrap(ctx, conn, stay)
	if err != nil {
		return conn, hello{}, err
	}
	h, err := t.welcome(inner, key)
	if err != nil {
		return inner, hello{}, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return inner, hello{}, fmt.Errorf("clear handshake deadline: %w", err)
	}
	h.key = key
	return inner, h, nil
}

// mayStay tells whether a connection that showed a key is still allowed. The peer may have been replaced since
// the handshake looked (replacePeers), and that closed only the connections of the peer before. A replacement
// after this look closes this connection, too.
func (t *Transport) mayStay(p *peer, key cluster.Key) bool {
	if key == "" {
		return t.plainAllowed()
	}
	return p.has(key)
}

// handshakeFailed counts and logs a failed handshake. A rejected node tries again every few seconds, so the
// same sentence from the same source is logged once in rejectionQuiet. The sentence may contain the caller's
// own words. So a source is also logged only a few times a minute.
func (t *Transport) handshakeFailed(ctx context.Context, conn net.Conn, err error) {
	if ctx.Err() != nil {
		return
	}
	var rejected *RejectedError
	if !errors.As(err, &rejected) {
		t.handshakesFailed.Add(1)
		// A probe connects and hangs up: nobody needs to see that.
		t.cfg.Logger.Debug("handshake failed", "remote", conn.RemoteAddr().String(), "err", err)
		return
	}
	t.handshakesRejected.Add(1)
	if said := strangers.Source(conn.RemoteAddr()).String() + " " + rejected.Text; t.saysNew(said, time.Now()) {
		if !t.strangers.Log().Warn(conn.RemoteAddr(), "rejected connection", "reason", rejected.Text) {
			t.unsaid(said) // the source has had its lines for now
		}
	}
}

// saysNew tells whether a rejection was not logged for a while, and notes that it is logged now.
func (t *Transport) saysNew(said string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.rejectionsLogged[said]; ok && now.Sub(at) < rejectionQuiet {
		return false
	}
	if len(t.rejectionsLogged) >= rejectionsLoggedMax {
		clear(t.rejectionsLogged)
	}
	t.rejectionsLogged[said] = now
	return true
}

// unsaid forgets that a rejection was logged.
func (t *Transport) unsaid(said string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rejectionsLogged, said)
}

// enter makes me the connection of class c from p, and ends the connection before it. ok=false: p was removed,
// or p has to shake hands again (Hangup).
func (t *Transport) enter(p *peer, c class, me *inbound) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.removed || me.hangups < p.hungUp {
		return false
	}
	if old := p.inbound[c-1]; old != nil {
		_ = old.conn.Close()
		close(old.replaced)
	}
	p.inbound[c-1] = me
	return true
}

func (t *Transport) leave(p *peer, c class, me *inbound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.inbound[c-1] == me {
		p.inbound[c-1] = nil
	}
}

// idleReader reads from conn. It gives up when nothing has come for limit.
type idleReader struct {
	conn  net.Conn
	limit time.Duration
}

func (r idleReader) Read(p []byte) (int, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(r.limit)); err != nil {
		return 0, err
	}
	n, err := r.conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("nothing received for %v: %w", r.limit, err)
	}
	return n, err
}

// read gives p's frames to the handler until the connection ends. It returns the reason: io.EOF, ErrCorrupt or
// a network error.
func (t *Transport) read(conn net.Conn, p *peer, c class) error {
	count, heard := p.received(c), &p.heard[c-1]
	fr := newFrameReader(idleReader{conn: conn, limit: t.tune.idleTimeout}, c)
	for {
		heard.Store(t.now())
		kind, payload, err := fr.next()
		if err != nil {
			return err
		}
		heard.Store(handling)
		count.bytes.Add(uint64(frame.HeaderBytes + len(payload)))
		if err := t.deliver(conn.RemoteAddr(), p.ID, c, kind, payload, fr.more()); err != nil {
			heard.Store(t.now())
			return err
		}
		if kind == frameRaft || kind == frameAppend {
			count.messages.Add(1)
		}
	}
}

// deliver decodes one frame and gives it to the handler. A Raft message that no agent sends is counted, and
// ends the connection.
func (t *Transport) deliver(remote net.Addr, from cluster.NodeID, c class, kind frameType, payload []byte, more bool) error {
	switch {
	case kind == frameRaft:
		m, err := decodeRaft(payload, from, t.cfg.Identity.Node)
		if err != nil {
			return err
		}
		return t.take(m, more)
	case kind == frameAppend && c == classAppend:
		m, err := decodeAppend(payload, from, t.cfg.Identity.Node)
		if err != nil {
			return err
		}
		return t.take(m, more)
	case kind == frameStatus && c == classControl:
		if err := t.cfg.Handler.Status(from, payload); err != nil {
			t.strangers.Log().Warn(remote, "refused the status of a peer", "err", err)
		}
	case kind == framePing:
	default:
		return fmt.Errorf("%w: type %d on the %v connection", ErrCorrupt, kind, c)
	}
	return nil
}
