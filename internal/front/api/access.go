package api

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/front/control"
)

// bearer returns the token of a request; "" = it has none.
func bearer(r *http.Request) string {
	scheme, said, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(said)
}

// reading answers requests that may read: all requests, unless there is a token with the role
// read.
func (s *Server) reading(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.mayRead(w, r) {
			answer(w, r)
		}
	}
}

// closed tells whether reading needs a token. It is true also where the file of tokens cannot
// be read.
func (s *Server) closed() bool {
	list, err := s.tokens.current()
	return err != nil || slices.ContainsFunc(list, func(t token) bool { return t.role == roleRead })
}

// mayRead tells whether a request may read; if not, it answers with a refusal. On the control
// socket the kernel has checked the account already.
func (s *Server) mayRead(w http.ResponseWriter, r *http.Request) bool {
	if _, ok := r.Context().Value(peerKey{}).(*peer); ok {
		return true
	}
	list, err := s.tokens.current()
	switch {
	case err != nil:
		s.refuse(w, http.StatusServiceUnavailable, control.CodeFailed, "the file of tokens cannot be read: the agent's log says why")
		return false
	case slices.ContainsFunc(list, func(t token) bool { return t.role == roleRead }):
		_, ok := s.holder(w, r, list)
		return ok
	case rebound(r):
		s.turnAway(w, r, http.StatusForbidden, control.CodeForeignHost, "to its own host the agent answers for addresses, localhost and the host's name, not for "+printable(r.Host))
		return false
	}
	return true
}

// operating answers requests with a token of the role operate, from this host alone: the port has no
// TLS, so a token that comes over a network could be read on its way. by names the token's owner. It
// checks the token before the address, so that the owner of a read token is told so from any host.
func (s *Server) operating(answer func(w http.ResponseWriter, r *http.Request, by string)) http.HandlerFunc {
	foreign := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) {
		list, err := s.tokens.current()
		switch {
		case err != nil:
			s.refuse(w, http.StatusServiceUnavailable, control.CodeFailed, "the file of tokens cannot be read: the agent's log says why")
			return
		case len(list) == 0:
			s.turnAway(w, r, http.StatusForbidden, control.CodeNoTokens, "no token may operate: requests are taken on the control socket alone: "+s.config.Socket)
			return
		}
		t, ok := s.holder(w, r, list)
		if !ok {
			return
		}
		switch {
		case t.role != roleOperate:
			s.turnAway(w, r, http.StatusForbidden, control.CodeReadOnlyToken, "the token of "+t.name+" may only read")
		case !sameHost(r):
			s.turnAway(w, r, http.StatusForbidden, control.CodeNotFromHere, "requests are taken from this node's own host alone, as the port has no TLS: use ssh -L, or a proxy with TLS on this host. "+
				"If the token has come over a network, make a new one")
		case !isHere(r.Host):
			s.turnAway(w, r, http.StatusForbidden, control.CodeForeignHost, "Host must be localhost or an address, not "+printable(r.Host)+": a proxy has to send it so")
		case foreign.Check(r) != nil:
			s.turnAway(w, r, http.StatusForbidden, control.CodeForeignOrigin, "the request is from a page of another origin")
		default:
			host, _ := os.Hostname()
			answer(w, r, "token "+t.name+"@"+host)
		}
	}
}

// holder returns the token of a request from the list; if there is none, it answers with a
// refusal.
func (s *Server) holder(w http.ResponseWriter, r *http.Request, list []token) (token, bool) {
	said := bearer(r)
	t, ok := find(list, said)
	if ok {
		return t, true
	}
	text := "a token is needed: Authorization: Bearer TOKEN"
	if said != "" {
		text = "this token is not in api.tokens_file"
		s.denied.Add(1)
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="quorate"`)
	s.turnAway(w, r, http.StatusUnauthorized, control.CodeUnauthorized, text)
	return token{}, false
}

// turnAway refuses a request that is not allowed, and logs that.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, status int, code control.Code, text string) {
	s.logRefused(r, text)
	s.refuse(w, status, code, text)
}

// logRefused logs that a request was refused at the port. It never logs a token.
func (s *Server) logRefused(r *http.Request, reason string) {
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		s.strangers.Warn(net.TCPAddrFromAddrPort(from), "refused a request at the api port",
			"request", r.Method+" "+printable(r.URL.Path), "reason", reason)
	}
}

// rebound tells whether a request from this host has a Host header with a foreign name: it may come
// from a foreign page whose name points here by DNS. Requests from other hosts do not count: a
// network that can reach the port may read.
func rebound(r *http.Request) bool {
	if !sameHost(r) || isHere(r.Host) || r.Host == "" { // every browser sends Host
		return false
	}
	name, err := os.Hostname()
	host, _, split := net.SplitHostPort(r.Host)
	if split != nil {
		host = r.Host
	}
	return err != nil || !strings.EqualFold(host, name)
}

// isHere tells whether a Host header has an address or localhost, which no foreign page can have.
func isHere(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// printable makes one printable word of a header's value, for an answer or the log.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, text[:min(len(text), 100)])
}

// fromHere tells whether a request comes from this host, with a Host header that no foreign page
// can have.
func fromHere(r *http.Request) bool { return sameHost(r) && isHere(r.Host) }

// sameHost tells whether a request comes from this host: over loopback, or from the same address
// that it was sent to.
func sameHost(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	own := netip.AddrPort{}
	if local != nil {
		own, _ = netip.ParseAddrPort(local.String()) // if it is no TCP address: the zero value, which equals no address
	}
	return remote.Addr().Unmap().IsLoopback() || remote.Addr().Unmap() == own.Addr().Unmap()
}
