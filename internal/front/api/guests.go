package api

import (
	"net"
	"net/http"
	"sync"

	"github.com/quorate/quorate/internal/sys/strangers"
)

// roomListener accepts connections that stay strangers until they end: nobody logs in here.
type roomListener struct {
	net.Listener
	room *strangers.Room
}

// Accept waits for a connection, never for a place.
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

// asked makes a guest that asks for something the newest one: the others have to go first.
func asked(conn net.Conn, state http.ConnState) {
	g, ok := conn.(*guest)
	if !ok || state != http.StateActive {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stay.Leave() { // else it is closed already
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
