package mysqld

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// writePair writes a certificate, which is its own CA, and its key.
func writePair(t *testing.T, cert, key string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckTLSFiles: reasons for which a server would start without TLS are found before.
func TestCheckTLSFiles(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	writePair(t, in("cert"), in("key"))
	writePair(t, in("other"), in("otherkey"))
	for _, c := range []struct {
		name string
		set  map[string]string
		want string
	}{
		{"none", nil, ""},
		{"all well", map[string]string{"ssl_ca": in("cert"), "ssl-cert": in("cert"), "loose_ssl_key": in("key")}, ""},
		{"missing", map[string]string{"ssl_cert": in("cert"), "ssl_key": in("none")}, "ssl_key: this account cannot read it: open " + in("none")},
		{"below the data directory", map[string]string{"ssl_ca": "ca.pem"}, "ssl_ca: this account cannot read it: open " + filepath.Join(dir, "data", "ca.pem")},
		{"of another certificate", map[string]string{"ssl_cert": in("cert"), "ssl_key": in("otherkey")}, "do not go together: "},
		{"no key in the certificate's file", map[string]string{"ssl_cert": in("cert")}, "do not go together: "},
		{"no CA", map[string]string{"ssl_ca": in("key")}, "ssl_ca: " + in("key") + " holds no certificate"},
	} {
		texts, err := Config{DataDir: dir, Variables: c.set}.CheckTLSFiles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(texts, "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	public := Config{DataDir: dir, OSUser: "nobody", Variables: map[string]string{"ssl_cert": in("cert"), "ssl_key": in("key")}}
	if os.Geteuid() != 0 {
		public.OSUser = "root"
		if got, err := public.CheckTLSFiles(t.Context()); !errors.Is(err, ErrConfig) {
			t.Errorf("by a normal user: %q, %v", got, err)
		}
		return
	}
	if got, err := public.CheckTLSFiles(t.Context()); err != nil || len(got) != 2 || !strings.HasSuffix(got[1], "ssl_key: nobody cannot read it: "+in("key")+": Permission denied") {
		t.Errorf("of another account: %q", got)
	}
}

// TestServerCertificate: it returns the certificate that the server shows, its own or the
// operator's.
func TestServerCertificate(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: t.TempDir(), Variables: map[string]string{"ssl_cert": "cert", "ssl-key": "key"}}
	if err := os.Mkdir(c.paths().data, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no such file", ""} {
		got, err := c.ServerCertificate(ctx(t))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || c.OwnTLS() {
			t.Errorf("%v, %v, want %q", got, err, want)
		}
		writePair(t, filepath.Join(c.paths().data, "cert"), filepath.Join(c.paths().data, "key"))
	}
	c.Variables = map[string]string{"ssl_ca": "cert"}
	if _, err := c.ServerCertificate(ctx(t)); !errors.Is(err, ErrConfig) {
		t.Errorf("without a certificate: %v", err)
	}
	p := start(t, newServer(t))
	own, err := p.server.cfg.ServerCertificate(ctx(t))
	if err != nil || !p.server.cfg.OwnTLS() || !strings.Contains(own.Leaf.Subject.CommonName, "Auto_Generated_Server_Certificate") {
		t.Fatalf("of the server's own: %v, %v", own, err)
	}
	var ends string
	if err := p.admin.db.QueryRowContext(ctx(t), "SELECT value FROM performance_schema.tls_channel_status WHERE channel = 'mysql_main' AND property = 'Ssl_server_not_after'").Scan(&ends); err != nil ||
		ends != own.Leaf.NotAfter.UTC().Format("Jan _2 15:04:05 2006 GMT") {
		t.Errorf("the server's ends %q, this one %v, %v", ends, own.Leaf.NotAfter, err)
	}
}

// TestShown: for servers with certificates of one CA it returns the same CA, however the operator
// has configured it, and the names by which clients may reach them.
func TestShown(t *testing.T) {
	now := time.Now()
	signed := func(c x509.Certificate, by *x509.Certificate, byKey ed25519.PrivateKey) (*x509.Certificate, ed25519.PrivateKey) {
		t.Helper()
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if c.SerialNumber, c.NotBefore, c.BasicConstraintsValid = big.NewInt(now.UnixNano()), now.Add(-2*time.Hour), true; by == nil {
			by, byKey, c.IsCA = &c, private, true
		}
		der, err := x509.CreateCertificate(rand.Reader, &c, by, public, byKey)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, private
	}
	name := pkix.Name{CommonName: "orders"}
	ca, caKey := signed(x509.Certificate{Subject: pkix.Name{CommonName: "CA"}, NotAfter: now.Add(time.Hour)}, nil, nil)
	other, otherKey := signed(x509.Certificate{Subject: pkix.Name{CommonName: "CA"}, NotAfter: now.Add(time.Hour)}, nil, nil)
	show := func(by *x509.Certificate, byKey ed25519.PrivateKey, withCA bool, c x509.Certificate) Shown {
		t.Helper()
		cert, key := signed(c, by, byKey)
		dir := t.TempDir()
		cfg := Config{DataDir: dir, Variables: map[string]string{"ssl_cert": filepath.Join(dir, "cert"), "ssl_key": filepath.Join(dir, "key")}}
		if withCA {
			cfg.Variables["ssl_ca"] = filepath.Join(dir, "ca")
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{"ca": {Type: "CERTIFICATE", Bytes: by.Raw}, "cert": {Type: "CERTIFICATE", Bytes: cert.Raw}, "key": {Type: "PRIVATE KEY", Bytes: secret}} {
			if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		shown, err := cfg.Shown(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		return shown
	}
	names := x509.Certificate{Subject: name, NotAfter: now.Add(time.Hour), DNSNames: []string{"a.example", "localhost"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1), net.IPv6loopback}}
	ended := x509.Certificate{Subject: name, NotAfter: now.Add(-time.Hour)}
	for _, withCA := range []bool{false, true} {
		a, b, c := show(ca, caKey, withCA, names), show(ca, caKey, withCA, ended), show(other, otherKey, withCA, names)
		if a.CA != b.CA || a.CA == c.CA || a.CA == "" {
			t.Errorf("with ssl_ca %t: CAs %q, %q, and another %q", withCA, a.CA, b.CA, c.CA)
		}
		if !slices.Equal(a.Names, []string{"a.example", "10.0.0.1"}) || !slices.Equal(b.Names, []string{"orders"}) {
			t.Errorf("names %q, %q", a.Names, b.Names)
		}
	}
	many := names
	for i := range 1000 {
		many.DNSNames = append(many.DNSNames, fmt.Sprintf("host%d.example", i))
	}
	if got := show(ca, caKey, true, many); got.Names != nil {
		t.Errorf("%d names", len(got.Names))
	}
	if got, err := (Config{DataDir: t.TempDir()}).Shown(ctx(t)); err != nil || got.CA != "" {
		t.Errorf("of its own: %+v, %v", got, err)
	}
}

// TestTLS: a server that cannot read its key still starts, and TLS reports it. For a server
// that can, TLS returns when its certificate expires.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	p := start(t, newServer(t, func(c *Config) { c.Variables["ssl_cert"], c.Variables["ssl_key"] = cert, key }))
	if options, _, err := p.TLS(ctx(t)); err != nil || !slices.Equal(options, []string{"ssl_cert", "ssl_key"}) {
		t.Errorf("without its files: %q, %v", options, err)
	}
	writePair(t, cert, key)
	if _, err := p.admin.db.ExecContext(ctx(t), "ALTER INSTANCE RELOAD TLS"); err != nil {
		t.Fatal(err)
	}
	options, ends, err := p.TLS(ctx(t))
	if left := time.Until(ends); err != nil || options != nil || left < 50*time.Minute || left > time.Hour {
		t.Errorf("with them: %q, ends %v, %v", options, ends, err)
	}
}
