package mysqlwire

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestForeignLogin: the answers of an account with another plugin, and where no TLS protects the password. (Those with
// caching_sha2_password are tried with a server, in package following and test/e2e.)
func TestForeignLogin(t *testing.T) {
	challenge := []byte("0123456789abcdefghij")
	request := func(plugin string) []byte {
		return append(append(append([]byte{headerEOF}, plugin...), 0), append(bytes.Clone(challenge), 0)...)
	}
	var nonce []byte
	_, answer, err := sourceAuth(request(nativePlugin), &nonce, ForeignConfig{Password: "secret"})
	if err != nil || !bytes.Equal(nonce, challenge) {
		t.Fatalf("%v, and the challenge is %q", err, nonce)
	}
	// The check of the server (check_scramble in sql/auth/password.cc), which knows only
	// SHA1(SHA1(password)).
	once := sha1.Sum([]byte("secret"))
	stored := sha1.Sum(once[:])
	mask := sha1.Sum(append(bytes.Clone(challenge), stored[:]...))
	got := make([]byte, len(mask))
	subtle.XORBytes(got, mask[:], answer)
	if again := sha1.Sum(got); again != stored {
		t.Error("the server would refuse the answer of mysql_native_password")
	}
	if _, _, err := sourceAuth(request("dialog"), &nonce, ForeignConfig{Password: "secret"}); err == nil {
		t.Error("a plugin that sends the password is answered")
	}
	full := []byte{headerAuthMore, authFull}
	if _, answer, err := sourceAuth(full, &nonce, ForeignConfig{Password: "secret"}); err != nil || !bytes.Equal(answer, []byte{keyRequest}) {
		t.Errorf("without TLS the answer is %q: %v", answer, err)
	}
	if _, answer, err := sourceAuth(full, &nonce, ForeignConfig{Password: "secret", TLS: &tls.Config{}}); err != nil || string(answer) != "secret\x00" {
		t.Errorf("with TLS the answer is %q: %v", answer, err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	sent := append([]byte{headerAuthMore}, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})...)
	_, answer, err = sourceAuth(sent, &nonce, ForeignConfig{Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := rsa.DecryptOAEP(sha1.New(), nil, key, answer, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range plain {
		plain[i] ^= challenge[i%len(challenge)]
	}
	if string(plain) != "secret\x00" {
		t.Errorf("the server would read the password %q", plain)
	}
	if _, _, err := sourceAuth(append([]byte{headerAuthMore}, "no key"...), &nonce, ForeignConfig{Password: "secret"}); err == nil {
		t.Error("what is no key is taken for one")
	}
}

// TestForeignSlowEvent: an event comes for longer than a source may be silent. Before, it was never read whole.
func TestForeignSlowEvent(t *testing.T) {
	for name, offered := range map[string]bool{"clear": false, "TLS": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { readSlowly(t, offered) }) })
	}
}

func readSlowly(t *testing.T, offered bool) {
	const period = 5 * time.Second
	cfg := ForeignConfig{User: "rep", Password: "x", ServerID: 77, HeartbeatPeriod: period, Exclude: &gtid.Set{}}
	l := welcome{version: "8.0.36", verify: isAccount("rep", "x"), admit: func() bool { return true }}
	if offered {
		certificate, roots := newCertificate(t)
		l.tls = &tls.Config{Certificates: []tls.Certificate{*certificate}}
		l.turn = func() (func(), error) { return func() {}, nil }
		cfg.TLS = &tls.Config{RootCAs: roots, ServerName: readersName}
	}
	event := binlogtest.New("q.000001").Rows(1 << 20)[3]
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- serveSlowly(there, l, event) }()
	f, err := openForeign(t.Context(), &sourceConn{Conn: here}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got, err := f.Next()
	if took := time.Since(began); err != nil || !bytes.Equal(got, event) || took < 2*silenceMax*period {
		t.Errorf("an event of %d bytes after %v: %v, want %d bytes after more than %v", len(got), took, err, len(event), 2*silenceMax*period)
	}
	began = time.Now()
	if _, err := f.Next(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != silenceMax*period {
		t.Errorf("a silent source after %v: %v", time.Since(began), err)
	}
	_ = here.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// serveSlowly is a source that sends one event, with a pause of 15 s behind each piece.
func serveSlowly(conn net.Conn, l welcome, event []byte) error {
	w := &wire{conn: conn, in: newPacketReader(conn, commandBufferBytes, loginBytesMax)}
	if err := l.greet(w); err != nil {
		return err
	}
	for range 2 { // settings, register
		if _, err := w.read(); err != nil {
			return err
		}
		if err := w.write(okPayload()); err != nil {
			return err
		}
	}
	if _, err := w.read(); err != nil { // dump
		return err
	}
	for piece := range slices.Chunk(frame(append([]byte{headerOK}, event...), 1), 100_000) {
		if _, err := w.conn.Write(piece); err != nil {
			return err
		}
		time.Sleep(15 * time.Second)
	}
	return nil
}
