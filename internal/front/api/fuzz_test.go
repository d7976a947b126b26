package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/testkit/hostile"
)

// handed is a listener that accepts the connections that a test hands to it.
type handed struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (*handed) Addr() net.Addr { return &net.TCPAddr{} }

// noted is a log that notes panics, which package http recovers from.
type noted struct {
	slog.Handler
	mu     sync.Mutex
	panics []string
}

func (*noted) Enabled(context.Context, slog.Level) bool { return true }

func (n *noted) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "panic") {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.panics = append(n.panics, r.Message)
	}
	return nil
}

func (n *noted) found() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.panics
}

// post returns the bytes of a request.
func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: agent\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// FuzzRequest gives the API's port, or the control socket, anything. The port carries out no operator's
// request and shows no profile to another host. On the socket a request always has the account that the
// kernel names.
func FuzzRequest(f *testing.F) {
	log := &noted{Handler: slog.DiscardHandler}
	port, socket := &handed{conns: make(chan net.Conn), closed: make(chan struct{})}, &handed{conns: make(chan net.Conn), closed: make(chan struct{})}
	var mu sync.Mutex
	var asked []control.Request
	s := New(Config{Pprof: true, Logger: slog.New(log)}, &fakeProvider{status: statusOf("replica", "running"), control: func(_ context.Context, r control.Request) control.Answer {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r)
		return control.Answer{Code: control.CodeOK, Node: "a"}
	}})
	s.listener, s.control = port, socket
	self := whoAsked(&peer{Ucred: &unix.Ucred{Uid: uint32(os.Geteuid())}}, "")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Errorf("Run: %v", err)
		}
	})
	for _, request := range []string{
		"GET /status HTTP/1.1\r\nHost: a\r\n\r\n", "GET /primary HTTP/1.0\r\n\r\n", "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /debug/pprof/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /debug/pprof/heap?debug=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01",
		post("/control/node.set", `{"by":"ann","args":{"node":"b","weight":3}}`), post("/control/x", `{"name":"fence","from":"b"}`),
		post("/v1/switchover", `{"to":"b"}`), "GET /v1/history?last=3 HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD /v1/events HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\r\n",
		post("/control/x", "[]") + post("/control/y", "{}"),
		"POST /control/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"POST /control/x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
		"POST /control/%2e%2e%2fstatus HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
	} {
		f.Add(true, []byte(request))
		f.Add(false, []byte(request))
	}
	f.Fuzz(func(t *testing.T, operator bool, sent []byte) {
		told := hostile.Say(t, 16<<20+256*uint64(len(sent)), sent, func(conn *net.UnixConn) {
			if operator {
				socket.conns <- conn
			} else {
				port.conns <- hostile.Remote{UnixConn: conn}
			}
		})
		if len(told) > 0 && !bytes.HasPrefix(told, []byte("HTTP/1.")) {
			t.Errorf("told %q", told)
		}
		if bytes.Contains(told, []byte("Types of profiles available")) || bytes.Contains(told, []byte("heap profile:")) {
			t.Error("profiles are shown to another host")
		}
		if panics := log.found(); len(panics) > 0 {
			t.Fatal(panics)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range asked {
			if r.Name == "history" && r.By == "api" {
				continue // it is only read
			}
			if !operator || r.Name == "" || !strings.HasPrefix(r.By, self) || len(r.Args) > control.RequestBytesMax {
				t.Errorf("asked for %+v", r)
			}
		}
		asked = nil
	})
}
