package api

import (
	"net"
	"net/http"
	"sync"

	"github.com/quorate/quorate/internal/sys/strangers"
)

// roomListener accepts connections that count as strangers until they end, because nobody logs
// in here.
type roomListener struct {
	net.Listener
	room *strangers.Room
}

// Accept waits for a connection, but never for a place in the room.
func (l roomListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: conn, room: l.room}
	g.stay = l.room.Enter(conn.RemoteAddr(), func() { _ = conn.Close() })
	return g, nil
}

// guest is a connection in the room.
type guest struct {
	net.Conn
	room *strangers.Room

	mu   sync.Mutex
	stay *strangers.Stay
}

// asked makes a guest that sends a request the newest one, so that other guests are expelled
// before it.
func asked(conn net.Conn, state http.ConnState) {
	g, ok := conn.(*guest)
	if !ok || state != http.StateActive {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stay.Leave() { // else it was expelled and closed already
		g.stay = g.room.Enter(g.RemoteAddr(), func() { _ = g.Conn.Close() })
	}
}

// Close gives the place back.
func (g *guest) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stay.Leave()
	return g.Conn.Close()
}
