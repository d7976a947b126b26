package router

import (
	"encoding/binary"
	"net"
	"time"
)

const (
	// loginBytesMax is how many of mysqld's first bytes are searched for the refusal of a
	// login.
	loginBytesMax = 2 << 10
	// errAccessDenied is ER_ACCESS_DENIED_ERROR.
	errAccessDenied = 1045
)

// record writes a log line about a session that has ended. mysqld sees every client at an
// address of the router (local_port), so only the router knows the client's address. A client
// that came through another node has a line there, too, with its own address.
func (r *Router) record(s *session) {
	atLogin := s.denied || s.login.ended()
	if atLogin && s.from == 0 {
		r.stats.denied.Add(1)
	}
	bound, without := &r.ended, "sessions_without_a_line"
	if atLogin {
		bound, without = &r.refusals, "refused_without_a_line"
	}
	ok, left := bound.Take(time.Now())
	if !ok {
		return
	}
	attributes := []any{"client", s.client.RemoteAddr().String(), "routed", s.from != 0,
		"seconds", time.Since(s.began).Round(time.Millisecond).Seconds(), "bytes_in", s.bytesIn, "bytes_out", s.bytesOut}
	if local, is := s.server.LocalAddr().(*net.TCPAddr); is && s.Local {
		attributes = append(attributes, "local_port", local.Port)
	}
	if s.from == 0 {
		attributes = append(attributes, "node", r.config.Name(s.Node))
	}
	if left > 0 {
		attributes = append(attributes, without, left)
	}
	if s.denied {
		r.config.Logger.Warn("a client's login was refused", attributes...)
		return
	}
	if atLogin {
		r.config.Logger.Warn("a client's TLS session ended with the answer to its login", attributes...)
		return
	}
	r.config.Logger.Info("client session ended", attributes...)
}

// isDenied tells whether a chunk from mysqld begins with the refusal of a login. The refusal is
// never the first packet of mysqld. In TLS it cannot be read: see login.ended.
func isDenied(chunk []byte) bool {
	return len(chunk) >= 7 && chunk[3] >= 2 && chunk[4] == 0xff && binary.LittleEndian.Uint16(chunk[5:]) == errAccessDenied
}
