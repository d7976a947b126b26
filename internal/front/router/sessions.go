package router

import (
	"maps"
	"net"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// Session describes a client at one moment.
type Session struct {
	// Client is the address of the client, and From is 0. For a client that another node's router has sent
	// here, Client is that router's end of the stream, and From is that node.
	Client net.Addr
	From   cluster.NodeID
	// Target is the node that the client is connected to. Server is the local address of that connection; nil
	// = the client waits.
	Target Target
	Server net.Addr
	Since  time.Time
}

// Sessions returns all present clients, in no order.
func (r *Router) Sessions() []Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := maps.Clone(r.waiting)
	all := make([]Session, 0, len(r.sessions)+len(waiting))
	for s := range r.sessions {
		is := s.now()
		client, _ := s.client.(*net.TCPConn)
		if _, waits := waiting[client]; waits && is.Server == nil {
			continue // an attempt of a client that is held
		}
		delete(waiting, client)
		all = append(all, is)
	}
	for client, since := range waiting {
		all = append(all, Session{Client: client.RemoteAddr(), Since: since})
	}
	return all
}

// now describes the session at this moment.
func (s *session) now() Session {
	is := Session{Client: s.client.RemoteAddr(), From: s.from, Since: s.began}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		is.Target, is.Server = s.Target, s.server.LocalAddr()
	}
	return is
}

// wait notes that a client is held. The caller must call leave when the client is held no more.
func (r *Router) wait(client *net.TCPConn) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[client] = time.Now()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, client)
	}
}
