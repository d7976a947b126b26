package transport

import (
	"context"
	"math"
	"net"
	"time"
)

// leaverCallTime is how long a call of a removed peer may still take: as long as an agent tries to carry out a
// request (control.Timeout).
const leaverCallTime = 5 * time.Second

// closeWhenGone closes conn and calls end when p has not been a peer for the time after. Calling stop prevents
// that.
func (p *peer) closeWhenGone(conn net.Conn, end func(), after time.Duration) (stop func()) {
	over, cancel := context.WithCancel(context.Background())
	unhook := context.AfterFunc(p.gone, func() {
		select {
		case <-time.After(after):
			end()
			_ = conn.Close()
		case <-over.Done():
		}
	})
	return func() {
		unhook()
		cancel()
	}
}

// handling is later than any time in peer.heard: what has come is being handled, and that may take long
// (Handler.Raft).
const handling = math.MaxInt64

// reach is a time in which a peer is heard. over ends when the peer has been silent, or is a peer no more. The
// streams of that time end then.
type reach struct {
	over context.Context
	end  context.CancelFunc
}

func (p *peer) newReach() {
	over, end := context.WithCancel(p.gone)
	p.reach.Store(&reach{over, end})
}

// now is the time in peer.heard.
func (t *Transport) now() int64 { return int64(time.Since(t.began)) }

// endSilent ends the routed streams of each peer from which nothing has come for idleTimeout. TCP itself would keep
// them for minutes where its host is dead, and a client's transaction would keep its locks. A client that is slow
// changes nothing here: what counts comes on the peer's other connections.
func (t *Transport) endSilent() {
	t.mu.Lock() // a peer that follows must not get a reach that ends here
	defer t.mu.Unlock()
	since := t.now() - int64(t.tune.idleTimeout)
	for _, p := range t.allPeers() {
		if max(p.heard[0].Load(), p.heard[1].Load(), p.shookHands.Load()) < since {
			silent := p.reach.Load()
			p.newReach()
			silent.end()
		}
	}
}

// routed is a routed stream. Its user owns it.
type routed struct {
	net.Conn
	stop func() bool
}

// route returns conn as a stream that is closed when the peer is silent, or no peer any more.
func (p *peer) route(conn net.Conn) net.Conn {
	return routed{conn, context.AfterFunc(p.reach.Load().over, func() { _ = conn.Close() })}
}

// Close implements net.Conn.
func (r routed) Close() error {
	r.stop()
	return r.Conn.Close()
}

// serveRoute gives the handler a routed stream.
func (t *Transport) serveRoute(conn net.Conn, p *peer, read bool) {
	if read {
		t.cfg.Handler.RouteRead(p.route(conn), p.ID)
		return
	}
	t.cfg.Handler.Route(p.route(conn), p.ID)
}
