package router

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/testkit/hostile"
)

// FuzzSession lets a client and mysqld send anything to each other through the router. The client is one of
// this node, or one that another node passes on. Each gets what the other sends, and nothing of the session
// stays behind.
func FuzzSession(f *testing.F) {
	denied := []byte("\x17\x00\x00\x02\xff\x15\x04#28000Access denied")
	login := []byte("\x05\x00\x00\x01login")
	for _, routed := range []bool{false, true} {
		f.Add(routed, login, []byte("\x01\x00\x00\x00\x0a"))
		f.Add(routed, login, denied)
		f.Add(routed, []byte("\x05\x00\x00\x00\x19abcd\x05\x00\x00\x00\x18abcd"), []byte{})
		f.Add(routed, []byte{0xff, 0xff, 0xff, 0, comStmtClose}, []byte{0xff})
		f.Add(routed, []byte("GET / HTTP/1.1\r\n\r\n"), []byte{})
		f.Add(routed, []byte{}, bytes.Repeat([]byte{1}, 3*bufferBytes))
	}
	f.Fuzz(func(t *testing.T, routed bool, sent, answer []byte) {
		b := &fakeBackend{changed: make(chan struct{})}
		b.serving.Store(true)
		b.set(Target{Node: 1, Local: true}, true)
		var got []byte
		var mysqld sync.WaitGroup
		b.dialLocal = func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			mysqld.Go(func() {
				defer func() { _ = far.Close() }()
				if _, err := far.Write(answer); err == nil {
					got = make([]byte, len(sent))
					n, _ := io.ReadFull(far, got)
					got = got[:n]
				}
			})
			return near, nil
		}
		r := New(Config{HoldMax: 1, Logger: slog.New(slog.DiscardHandler)}, b)
		r.base = context.Background()
		heard := make([]byte, len(answer))
		hostile.Talk(t, 4<<20+8*uint64(len(sent)+len(answer)), func(conn *net.UnixConn) {
			if routed {
				r.HandleRouted(conn, 9)
				r.workers.Wait()
				return
			}
			if s, _ := r.attempt(r.base, hostile.Remote{UnixConn: conn}); s != nil {
				r.splice(s)
			}
		}, func(conn *net.UnixConn) {
			defer func() { _ = conn.Close() }()
			status := [1]byte{statusAccepted}
			if routed {
				_, _ = io.ReadFull(conn, status[:])
			}
			_, err := io.ReadFull(conn, heard)
			if err != nil || status[0] != statusAccepted || !bytes.Equal(heard, answer) {
				t.Errorf("status %d, %q, %v", status[0], heard, err)
			}
			_, _ = conn.Write(sent)
			_, _ = io.Copy(io.Discard, conn) // mysqld hangs up when it has all
		})
		mysqld.Wait()
		if !bytes.Equal(got, sent) {
			t.Errorf("mysqld got %q", got)
		}
		if s := r.Stats(); s.Sessions+s.Open != 0 || len(r.sessions) > 0 || r.strangers.Stats().Inside > 0 {
			t.Errorf("left: %+v", s)
		}
	})
}
