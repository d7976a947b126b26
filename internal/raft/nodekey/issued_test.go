package nodekey_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
