package router

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
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
