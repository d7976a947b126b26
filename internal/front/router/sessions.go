package router

import (
	"maps"
	"net"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// Session is a client at one moment.
type Session struct {
	// Client is where the client is. Of one that another node's router has sent here, it is that router's end
	// of the stream, and From is that node; else From is 0.
	Client net.Addr
	From   cluster.NodeID
	// Target is where the client goes, Server this node's end of the connection there; nil = the client waits.
	Target Target
	Server net.Addr
	Since  time.Time
}

// Sessions returns all clients of the moment, in no order.
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

// now is the session as it is.
func (s *session) now() Session {
	is := Session{Client: s.client.RemoteAddr(), From: s.from, Since: s.began}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		is.Target, is.Server = s.Target, s.server.LocalAddr()
	}
	return is
}

// wait notes that a client is held. The caller calls leave when it is so no more.
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
