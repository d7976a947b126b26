package router

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// dialFrom is dial from an address.
func dialFrom(t *testing.T, n *node, ip string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	conn, err := d.Dial("tcp", n.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Clients that send nothing, or only the TLS handshake, take at most half of the places, and none from
// clients that log in, on the primary's node and on another.
func TestSilentClientsKeepNobodyOut(t *testing.T) {
	primary, _ := newPrimary(t, Config{})
	other := newNode(t, Config{ConnMax: 8})
	other.forwardTo(primary)
	here, _ := newPrimary(t, Config{ConnMax: 8})
	for name, n := range map[string]*node{"the primary's node": here, "another node": other} {
		t.Run(name, func(t *testing.T) {
			known := dialFrom(t, n, "127.0.0.1")
			expect(t, known, greeting)
			say(t, known, "hello")
			expect(t, known, "hello")
			for i := range int64(20) {
				silent := dialFrom(t, n, "127.0.0.66")
				expect(t, silent, greeting)
				if i%2 == 1 { // a hello and the end of a handshake of TLS 1.2
					handshake := string(sslRequest) + "\x16\x03\x01\x00\x01h\x14\x03\x03\x00\x01\x01\x16\x03\x03\x00\x18the end of the handshake"
					say(t, silent, handshake)
					expect(t, silent, handshake)
				}
				eventually(t, "there is room", func() bool { return n.Stats().Expelled == max(0, i-3) && n.Stats().Open <= 5 })
			}
			next := dialFrom(t, n, "127.0.0.1")
			expect(t, next, greeting)
			say(t, next, "hello")
			expect(t, next, "hello")
			say(t, known, "still here")
			expect(t, known, "still here")
		})
	}
}

// While mysqld answers no login, as while a GRANT waits for its ACK, the clients that have sent theirs wait: nobody closes
// their connections for the next client. Who has sent a part of a login stays a stranger.
func TestClientsWhoseLoginTheServerHolds(t *testing.T) {
	const more = 13
	for name, c := range map[string]struct {
		say      string
		expelled int64
	}{
		"a login":                  {"\x05\x00\x00\x01hello", 0},
		"a part of a login":        {"\x05\x00\x00\x01hell", more},
		"a login in TLS":           {string(sslRequest) + "\x16\x03\x01\x00\x01h\x17\x03\x03\x00\x18password in its record..", 0},
		"a part of a login in TLS": {string(sslRequest) + "\x16\x03\x01\x00\x01h\x17\x03\x03\x00\x19password in its record..", more},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, Config{})
			holds, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = holds.Close() }()
			defer n.stop()
			n.backend.mysqld = holds.Addr().String()
			n.backend.serving.Store(true)
			n.backend.set(Target{Node: 1, Local: true}, true)
			var got atomic.Int64
			go func() {
				for conn, err := holds.Accept(); err == nil; conn, err = holds.Accept() {
					go func() {
						defer func() { _ = conn.Close() }()
						_, _ = io.WriteString(conn, greeting)
						_, _ = io.ReadFull(conn, make([]byte, len(c.say)))
						got.Add(1)
						_, _ = io.Copy(io.Discard, conn)
					}()
				}
			}()
			for range strangersPerSource + more {
				conn := dialFrom(t, n, "127.0.0.66")
				expect(t, conn, greeting)
				say(t, conn, c.say)
			}
			eventually(t, "all logins have come", func() bool { return got.Load() == strangersPerSource+more })
			time.Sleep(strangersSpare)
			expect(t, dialFrom(t, n, "127.0.0.1"), greeting)
			if got := n.Stats().Expelled; got != c.expelled {
				t.Errorf("%d connections were closed, want %d", got, c.expelled)
			}
		})
	}
}

// While there is no primary, an address with many clients does not take the places of others.
func TestHeldClientsOfOneAddressKeepNobodyOut(t *testing.T) {
	n := newNode(t, Config{HoldMax: 3})
	real := dialFrom(t, n, "127.0.0.1")
	eventually(t, "the client is held", func() bool { return n.Stats().Held == 1 })
	for i := range int64(10) {
		dialFrom(t, n, "127.0.0.66")
		eventually(t, "it is held", func() bool { return n.Stats().Rejected == max(0, i-1) })
	}
	defer n.stop() // before the server that it dials is gone
	m := newMysqld(t)
	n.backend.mysqld = m.listener.Addr().String()
	n.backend.serving.Store(true)
	n.backend.set(Target{Node: 1, Local: true}, true)
	expect(t, real, greeting)
}

// A client from an address that is not allowed gets no byte, and the log has its address.
func TestAllow(t *testing.T) {
	var text bytes.Buffer
	n, _ := newPrimary(t, Config{
		Allow:  []netip.Prefix{netip.MustParsePrefix("127.0.0.5/32")},
		Logger: slog.New(slog.NewTextHandler(&text, nil)),
	})
	if got := expectEnd(t, dialFrom(t, n, "127.0.0.1")); got != "" {
		t.Errorf("a stranger got %q", got)
	}
	expect(t, dialFrom(t, n, "127.0.0.5"), greeting)
	if s := n.Stats(); s.Refused != 1 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
	n.stop() // nothing writes to the log any more
	if got := text.String(); strings.Count(got, "router.allow") != 1 || !strings.Contains(got, "remote=127.0.0.1:") {
		t.Errorf("the log: %s", got)
	}
}
