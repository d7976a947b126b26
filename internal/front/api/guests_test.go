package api

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/sys/strangers"
)

// Connections without requests make room for a load balancer, and a connection that sends
// requests again stays.
func TestSilentConnectionsKeepNoCheckOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	room := strangers.New(strangers.Limits{Max: 4, PerSource: 4, Spare: time.Hour}, slog.New(slog.DiscardHandler))
	server := &http.Server{ConnState: asked, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(roomListener{l, room}) }()
	defer func() { _ = server.Close(); <-done }()
	dial := func(ip string) net.Conn {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		return conn
	}
	check := func(conn net.Conn) error {
		if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	same, balancer := dial("127.0.0.66"), dial("127.0.0.1")
	for i := range 20 {
		silent := dial("127.0.0.66")
		for room.Stats().Expelled != uint64(max(0, i-1)) || room.Stats().Inside != min(4, i+3) { // until it is accepted
			time.Sleep(time.Millisecond)
		}
		for _, conn := range []net.Conn{same, balancer} {
			if err := check(conn); err != nil {
				t.Fatalf("after %d silent connections: %v", i, err)
			}
		}
		if i < 18 {
			continue
		}
		if err := check(silent); err != nil {
			t.Errorf("a new one: %v", err)
		}
	}
	if s := room.Stats(); s.Inside != 4 || s.Expelled != 18 {
		t.Errorf("%+v", s)
	}
}
