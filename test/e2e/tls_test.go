package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// serverName is the name by which the clients of TestClientTLS know every node.
const serverName = "shop.db.test"

// TestClientTLS has clients that check the server's certificate and name, as
// docs/dba.md tells to set it up: before and after a failover, through any node.
func TestClientTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) { // a mysqld of another account reads them
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	roots := writeCertificates(t, dir)
	f := newFixture(t, devcluster.Options{Nodes: 3, Variables: map[string]string{
		"ssl_ca":   filepath.Join(dir, "ca.pem"),
		"ssl_cert": filepath.Join(dir, "server-cert.pem"), "ssl_key": filepath.Join(dir, "server-key.pem"),
	}})
	f.scenario(t, "Failover", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		f.mustVerify(t, ctx, roots)
		if err := f.KillBoth(primary); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WaitPrimary(ctx); err != nil {
			t.Fatal(err)
		}
		f.mustVerify(t, ctx, roots)
		f.heal(t, ctx)
		f.mustVerify(t, ctx, roots)
	})
	f.scenario(t, "NoKey", func(t *testing.T, ctx context.Context) {
		f.withoutKey(t, ctx, filepath.Join(dir, "server-key.pem"))
	})
}

// withoutKey: a mysqld whose key is gone starts without TLS. The check of the
// configuration and the status say so, the status until it has it again.
func (f *fixture) withoutKey(t *testing.T, ctx context.Context, key string) {
	t.Helper()
	replica := f.others(f.heal(t, ctx))[0]
	for _, gone := range []bool{true, false} {
		from, to := key, key+".gone"
		if !gone {
			from, to = to, from
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(ctx, os.Getenv(binaryVariable), "config", "check", f.ConfigPath(replica)).CombinedOutput()
		if err != nil || strings.Contains(string(out), "would start without TLS: mysql.variables.ssl_key: ") != gone {
			t.Errorf("the key is gone: %t: %v, %s", gone, err, out)
		}
		f.must(t, ctx, replica, "restart-mysqld", f.Name(replica))
		if err := f.WaitNode(ctx, replica, "it says whether it has TLS", func(n status.Node) bool {
			return n.Role == status.RoleReplica && strings.Contains(n.Reason, "mysqld runs without TLS although mysql.variables sets ssl_ca") == gone
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// mustVerify connects through every node that runs: a client that knows the CA
// trusts the primary, whichever it is, and a client that does not refuses it.
func (f *fixture) mustVerify(t *testing.T, ctx context.Context, roots *x509.CertPool) {
	t.Helper()
	for i := range f.Len() {
		if f.AgentPID(i) == 0 {
			continue
		}
		if version, err := f.tlsVersion(ctx, i, &tls.Config{RootCAs: roots, ServerName: serverName}); err != nil || version != "TLSv1.3" {
			t.Errorf("through %s with the CA: %q, %v", f.Name(i), version, err)
		}
		if _, err := f.tlsVersion(ctx, i, &tls.Config{RootCAs: roots, ServerName: "other.db.test"}); err == nil {
			t.Errorf("through %s: the certificate passes for a name that is not in it", f.Name(i))
		}
		if _, err := f.tlsVersion(ctx, i, &tls.Config{RootCAs: x509.NewCertPool(), ServerName: serverName}); err == nil {
			t.Errorf("through %s: the certificate passes without its CA", f.Name(i))
		}
	}
}

// tlsVersion connects as the application through node i, and returns what
// protects the connection.
func (f *fixture) tlsVersion(ctx context.Context, i int, conf *tls.Config) (name string, err error) {
	cfg, err := mysql.ParseDSN(f.DSN(i))
	if err != nil {
		return "", err
	}
	cfg.TLS, cfg.Logger = conf, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	var variable string
	err = db.QueryRowContext(ctx, "SHOW SESSION STATUS LIKE 'Ssl_version'").Scan(&variable, &name)
	return name, err
}

// writeCertificates writes one CA and one server certificate for all nodes into
// dir, and returns the CA.
func writeCertificates(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "quorate test CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, key := newKey(t), newKey(t)
	caDER, err := x509.CreateCertificate(rand.Reader, &template, &template, caKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		t.Fatal(err)
	}
	server := x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &server, ca, key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.pem":          {Type: "CERTIFICATE", Bytes: caDER},
		"server-cert.pem": {Type: "CERTIFICATE", Bytes: der},
		"server-key.pem":  {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return roots
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
