package transport

import (
	"context"
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

// routed is a routed stream. The handler owns it.
type routed struct {
	net.Conn
	stop func()
}

// Close implements net.Conn.
func (r routed) Close() error {
	r.stop()
	return r.Conn.Close()
}

// serveRoute gives the handler a routed stream.
func (t *Transport) serveRoute(conn net.Conn, p *peer, read bool) {
	stream := routed{conn, p.closeWhenGone(conn, func() {}, 0)}
	if read {
		t.cfg.Handler.RouteRead(stream, p.ID)
		return
	}
	t.cfg.Handler.Route(stream, p.ID)
}
