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

// bearer returns the token that a request comes with; "" = it has none.
func bearer(r *http.Request) string {
	scheme, said, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(said)
}

// reading lets in who may read: anybody, unless there is a token with the role read.
func (s *Server) reading(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.mayRead(w, r) {
			answer(w, r)
		}
	}
}

// closed tells whether reading needs a token, or nobody knows.
func (s *Server) closed() bool {
	list, err := s.tokens.current()
	return err != nil || slices.ContainsFunc(list, func(t token) bool { return t.role == roleRead })
}

// mayRead tells whether a request may read, or refuses it. On the control socket the kernel has
// judged that.
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
		s.refuse(w, http.StatusForbidden, control.CodeForbidden, "over loopback the agent answers to addresses, to localhost and to this host's name, not to "+printable(r.Host))
		return false
	}
	return true
}

// operating lets in who has a token with the role operate, on this host alone: the port has no TLS,
// and whoever can read the token on its way has it. It hands on whose it is.
func (s *Server) operating(answer func(w http.ResponseWriter, r *http.Request, by string)) http.HandlerFunc {
	foreign := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) {
		list, err := s.tokens.current()
		switch {
		case err != nil:
			s.refuse(w, http.StatusServiceUnavailable, control.CodeFailed, "the file of tokens cannot be read: the agent's log says why")
			return
		case !slices.ContainsFunc(list, func(t token) bool { return t.role == roleOperate }):
			s.refuse(w, http.StatusForbidden, control.CodeForbidden, "no token may operate: requests are taken on the control socket alone: "+s.config.Socket)
			return
		case !fromHere(r):
			s.refuse(w, http.StatusForbidden, control.CodeForbidden, "requests are taken from this node's own host alone, as the port has no TLS: use ssh -L, or a proxy with TLS on this host. "+
				"If the token has come over a network, make a new one")
			return
		case foreign.Check(r) != nil:
			s.refuse(w, http.StatusForbidden, control.CodeForbidden, "the request is from a page of another origin")
			return
		}
		t, ok := s.holder(w, r, list)
		if !ok {
			return
		}
		if t.role != roleOperate {
			s.refuse(w, http.StatusForbidden, control.CodeForbidden, "the token of "+t.name+" may only read")
			return
		}
		host, _ := os.Hostname()
		answer(w, r, "token "+t.name+"@"+host)
	}
}

// holder returns whose token a request comes with, or refuses it.
func (s *Server) holder(w http.ResponseWriter, r *http.Request, list []token) (token, bool) {
	said := bearer(r)
	t, ok := find(list, said)
	if ok {
		return t, true
	}
	text := "a token is needed: Authorization: Bearer TOKEN"
	if said != "" {
		text = "nobody has this token"
		s.denied.Add(1)
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			s.strangers.Warn(net.TCPAddrFromAddrPort(from), "refused a token at the api port")
		}
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="quorate"`)
	s.refuse(w, http.StatusUnauthorized, control.CodeUnauthorized, text)
	return token{}, false
}

// rebound tells whether a request over loopback asks for a name that is none of this host's: it may
// be a foreign page's, which points here by DNS. A network that may reach the port may read it.
func rebound(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() || isHere(r.Host) || r.Host == "" { // no browser leaves it out
		return false
	}
	name, err := os.Hostname()
	host, _, split := net.SplitHostPort(r.Host)
	if split != nil {
		host = r.Host
	}
	return err != nil || !strings.EqualFold(host, name)
}

// isHere tells whether what is asked for is an address or localhost, which no foreign page can be.
func isHere(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// printable keeps a header's value from being more than a word in an answer.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, text[:min(len(text), 100)])
}

// fromHere tells whether a request comes from this host: over loopback, or from
// the address that it was sent to. The name that it asks for has to be an address
// or localhost: another one may be a foreign page's, which points here by DNS.
func fromHere(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	own := netip.AddrPort{}
	if local != nil {
		own, _ = netip.ParseAddrPort(local.String()) // zero, which is nobody's, if it is none
	}
	if !remote.Addr().Unmap().IsLoopback() && remote.Addr().Unmap() != own.Addr().Unmap() {
		return false
	}
	return isHere(r.Host)
}
