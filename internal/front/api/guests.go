package api

import (
	"net"
	"net/http"

	"github.com/quorate/quorate/internal/sys/strangers"
)

// roomListener accepts connections that stay strangers until they end: nobody logs in here.
type roomListener struct {
	net.Listener
	room *strangers.Room
}

// Accept waits for a connection, never for a place.
func (l roomListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if stay := l.room.Enter(conn.RemoteAddr(), func() { _ = conn.Close() }); stay != nil {
			return &guest{Conn: conn, stay: stay}, nil
		}
		_ = conn.Close()
	}
}

// guest is a connection in the room.
type guest struct {
	net.Conn
	stay *strangers.Stay
}

// asked makes a guest that asks for something the newest one: the others have to go first.
func asked(conn net.Conn, state http.ConnState) {
	if g, ok := conn.(*guest); ok && state == http.StateActive {
		g.stay.Renew()
	}
}

// Close gives the place back.
func (g *guest) Close() error {
	g.stay.Leave()
	return g.Conn.Close()
}
