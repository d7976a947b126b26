package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/quorate/quorate/internal/control"
)

// ControlTimeout bounds an operator's request, and so how long whoever sent it
// waits for the answer.
const ControlTimeout = 2 * time.Minute

// httpStatus is the HTTP status of an answer, for callers that look no further.
func httpStatus(code control.Code) int {
	switch code {
	case control.CodeOK:
		return http.StatusOK
	case control.CodeInvalid:
		return http.StatusBadRequest
	case control.CodeUnknown:
		return http.StatusNotFound
	case control.CodeStale:
		return http.StatusConflict
	case control.CodeNoLeader, control.CodeNotLeader:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// control answers POST /control/NAME. There is no authentication: it takes
// requests from this machine alone, and none that a page in a browser can send.
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	if !fromHere(r) {
		http.Error(w, "control requests are taken from this node's own host only", http.StatusForbidden)
		return
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		http.Error(w, "send JSON, with Content-Type: application/json", http.StatusUnsupportedMediaType)
		return
	}
	var request control.Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, control.RequestBytesMax)).Decode(&request); err != nil {
		http.Error(w, fmt.Sprintf("decode request: %v", err), http.StatusBadRequest)
		return
	}
	request.Name = r.PathValue("name")
	ctx, cancel := context.WithTimeout(r.Context(), ControlTimeout)
	defer cancel()
	deadline := time.Now().Add(ControlTimeout + requestTimeout)
	writer := http.NewResponseController(w)
	if err := errors.Join(writer.SetReadDeadline(deadline), writer.SetWriteDeadline(deadline)); err != nil {
		http.Error(w, fmt.Sprintf("give the request time: %v", err), http.StatusInternalServerError)
		return
	}
	answer := s.provider.Control(ctx, request)
	s.reply(w, httpStatus(answer.Code), answer)
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
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	_, err = netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

// Control sends an operator's request to the agent at addr, and returns its
// answer, which may be a refusal.
func Control(ctx context.Context, addr string, r control.Request) (control.Answer, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return control.Answer{}, fmt.Errorf("encode request: %w", err)
	}
	resp, err := request(ctx, addr, "localhost", http.MethodPost, "/control/"+r.Name, body)
	if err != nil {
		return control.Answer{}, fmt.Errorf("ask agent at %s: %w", addr, err)
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/json" {
		return control.Answer{}, fmt.Errorf("ask agent at %s: %w", addr, refusal(resp))
	}
	var answer control.Answer
	if err := json.NewDecoder(io.LimitReader(resp.Body, control.AnswerBytesMax)).Decode(&answer); err != nil {
		return control.Answer{}, fmt.Errorf("ask agent at %s: decode answer: %w", addr, err)
	}
	return answer, nil
}
