package router

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
)

// sslRequest asks for TLS, as a client does after the greeting.
var sslRequest = append([]byte{32, 0, 0, 1, 0x05, 0xae, 0xff, 0x01}, make([]byte, 28)...)

// serverTLS is the TLS of a mysqld that makes its own certificate.
func serverTLS(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// watched passes what a client sends to a login, in pieces of one size.
type watched struct {
	net.Conn
	login *login
	piece int
}

func (w watched) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(w.piece, len(rest))
		w.login.sent(rest[:n])
		rest = rest[n:]
	}
	return w.Conn.Write(b)
}

// dialTLS connects to a server that reads.
func dialTLS(t *testing.T, server *tls.Config) net.Conn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	here, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn := tls.Server(there, server)
		defer conn.Close()
		_, _ = io.Copy(io.Discard, conn)
	}()
	t.Cleanup(func() {
		here.Close()
		<-ended
	})
	return here
}

// answeredConn passes what a server sends to a login.
type answeredConn struct {
	net.Conn
	login *login
}

func (a answeredConn) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	a.login.answered(b[:n])
	return n, err
}

// TestLoginBegins: a client that has only done the TLS handshake has not begun its login. Each message may come in
// any pieces.
func TestLoginBegins(t *testing.T) {
	for name, client := range map[string]*tls.Config{
		"TLS 1.3":                           {},
		"TLS 1.2":                           {MaxVersion: tls.VersionTLS12},
		"TLS 1.3, whose key is asked again": {CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}},
	} {
		for _, piece := range []int{1, 3, 7, 1 << 20} {
			server := serverTLS(t)
			server.ClientAuth = tls.RequestClientCert // as mysqld does
			if client.CurvePreferences != nil {
				server.CurvePreferences = []tls.CurveID{tls.CurveP384}
			}
			client.InsecureSkipVerify = true
			var l login
			here := answeredConn{dialTLS(t, server), &l}
			w := watched{here, &l, piece}
			for rest := sslRequest; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
				l.sent(rest[:min(piece, len(rest))])
			}
			conn := tls.Client(w, client)
			if err := conn.Handshake(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if l.begun.Load() {
				t.Errorf("%s, pieces of %d: the login has begun with the handshake", name, piece)
			}
			say(t, conn, "a login")
			if !l.begun.Load() || l.ended() {
				t.Errorf("%s, pieces of %d: begun %t, answered %t", name, piece, l.begun.Load(), l.ended())
			}
			refusal := append([]byte{recordApplication, 3, 3, 0, 24}, "no, and here is an error"...)
			for rest := refusal; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
				l.answered(rest[:min(piece, len(rest))])
			}
			if !l.ended() {
				t.Errorf("%s, pieces of %d: the answer to the login is not seen", name, piece)
			}
			say(t, conn, "\x01\x00\x00\x00\x01") // COM_QUIT
			if l.ended() {
				t.Errorf("%s, pieces of %d: a client that leaves in order was refused", name, piece)
			}
			for range 3 {
				say(t, conn, "a command")
			}
			if l.answered(refusal); l.ended() {
				t.Errorf("%s, pieces of %d: commands count as a login", name, piece)
			}
		}
	}
}

// TestPlainLoginBegins: without TLS the first packet is the login.
func TestPlainLoginBegins(t *testing.T) {
	for _, c := range []struct {
		sent string
		want bool
	}{
		{"", false},
		{"\x20\x00", false},
		{"\x20\x00\x00\x01", false},
		{"\x60\x00\x00", true},
		{"\x20\x00\x00\x01\x05\xa6\xff\x01", true}, // of that length, without the flag
		{string(sslRequest), false},
	} {
		var l login
		l.sent([]byte(c.sent))
		if l.begun.Load() != c.want || l.ended() {
			t.Errorf("%x: %t", c.sent, l.begun.Load())
		}
	}
}
