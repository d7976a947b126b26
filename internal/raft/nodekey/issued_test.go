package nodekey_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/raft/nodekey/nodekeytest"
)

// TestIssued: the name of a key is the URI in its certificate, if the authority has issued that certificate. It may
// have ended.
func TestIssued(t *testing.T) {
	dir := t.TempDir()
	ca, other := nodekeytest.NewAuthority(t, filepath.Join(dir, "ca.pem")), nodekeytest.NewAuthority(t, filepath.Join(dir, "other.pem"))
	trust, err := nodekey.NewAuthority(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, "a.pem"), filepath.Join(dir, "a-key.pem")
	for _, c := range []struct {
		by   *nodekeytest.Authority
		uris []string
		ends time.Duration
		want cluster.Key
	}{
		{ca, []string{"quorate://orders/a"}, time.Hour, "ca:quorate://orders/a"},
		{ca, []string{"quorate://orders/a"}, -time.Hour, "ca:quorate://orders/a"},
		{other, []string{"quorate://orders/a"}, time.Hour, ""},
		{ca, []string{"quorate://orders/a", "quorate://orders/b"}, time.Hour, ""},
		{ca, []string{"https://orders/a"}, time.Hour, ""},
		{ca, []string{"quorate://orders/a/b"}, time.Hour, ""},
		{ca, nil, time.Hour, ""},
	} {
		c.by.Issue(t, cert, key, time.Now().Add(c.ends), c.uris...)
		k, err := nodekey.LoadIssued(cert, key)
		if c.want == "" && c.by == ca {
			if err == nil || !strings.Contains(err.Error(), "one URI") {
				t.Errorf("%v: %v", c.uris, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if name := trust.Name([]*x509.Certificate{k.Certificate().Leaf}); name != c.want || k.Ends().IsZero() {
			t.Errorf("%v by %s: %q", c.uris, c.by.File, name)
		}
	}
	// Another authority takes the place of the first.
	if err := os.Rename(other.File, ca.File); err != nil {
		t.Fatal(err)
	}
	other.Issue(t, cert, key, time.Now().Add(time.Hour), "quorate://orders/a")
	k, err := nodekey.LoadIssued(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if name := trust.Name([]*x509.Certificate{k.Certificate().Leaf}); name != k.Name() {
		t.Errorf("the file has changed: %q", name)
	}
	own, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	if name := trust.Name([]*x509.Certificate{own.Certificate().Leaf}); name != "" || !own.Ends().IsZero() {
		t.Errorf("a node's own key: %q", name)
	}
	if err := os.Chmod(key, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := nodekey.LoadIssued(cert, key); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Errorf("others may read it: %v", err)
	}
}

// TestAuthorityIssuedAnew: an authority gets a new certificate of its own, for the same key. The node's certificate
// stays good, whenever the new certificate begins.
func TestAuthorityIssuedAnew(t *testing.T) {
	dir := t.TempDir()
	ca := nodekeytest.NewAuthority(t, filepath.Join(dir, "ca.pem"))
	cert, key := filepath.Join(dir, "a.pem"), filepath.Join(dir, "a-key.pem")
	for _, begins := range []time.Duration{time.Hour, -10 * 24 * time.Hour, 365 * 24 * time.Hour} {
		ca.Issue(t, cert, key, time.Now().Add(-time.Minute), "quorate://orders/a")
		ca.Renew(t, time.Now().Add(begins))
		k, err := nodekey.LoadIssued(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		// A new Authority: an old one may not see that the file has changed within one tick of the file system's clock.
		trust, err := nodekey.NewAuthority(ca.File)
		if err != nil {
			t.Fatal(err)
		}
		if name := trust.Name([]*x509.Certificate{k.Certificate().Leaf}); name != k.Name() {
			t.Errorf("the authority begins %v from now: %q", begins, name)
		}
	}
}

// TestNameOfALongChain: a caller whom nobody knows does not decide how many signatures are checked for it.
func TestNameOfALongChain(t *testing.T) {
	dir := t.TempDir()
	trust, err := nodekey.NewAuthority(nodekeytest.NewAuthority(t, filepath.Join(dir, "ca.pem")).File)
	if err != nil {
		t.Fatal(err)
	}
	self := func(subject, issuer string, uris ...*url.URL) *x509.Certificate {
		key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: subject}, IsCA: true, BasicConstraintsValid: true, URIs: uris}
		der, err := x509.CreateCertificate(rand.Reader, of, &x509.Certificate{Subject: pkix.Name{CommonName: issuer}}, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	shown := []*x509.Certificate{self("a", "between", &url.URL{Scheme: "quorate", Host: "orders", Path: "/a"})}
	for range 110 {
		shown = append(shown, self("between", "between"))
	}
	began := threadTime(t)
	if name := trust.Name(shown); name != "" {
		t.Errorf("a chain that the authority did not sign has the name %q", name)
	}
	if took := threadTime(t) - began; took > 30*time.Millisecond {
		t.Errorf("%d certificates of a stranger cost %v", len(shown), took)
	}
}

// threadTime returns the processor time that this goroutine's thread has had; the goroutine stays on it from now on.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
