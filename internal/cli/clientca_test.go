package cli

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/config"
)

// TestInitClientCA: with the CA clients can verify each node, by each of the names.
func TestInitClientCA(t *testing.T) {
	out := filepath.Join(t.TempDir(), "cluster")
	args := []string{"init", "--nodes", "a=10.0.0.1,b=db2.example:7500,c=[fd00::3]:7400", "--logger", "c", "--out", out, "--client-ca", "--client-name", "orders.db.example,*.apps.example"}
	code, stdout, stderr := run(t, args...)
	if code != 0 || !strings.Contains(stdout, "keep "+filepath.Join(out, "client-ca-key.pem")+" offline") {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(out, "client-ca.pem"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("%v, %s", err, ca)
	}
	serials := map[string]bool{}
	for _, node := range []string{"a", "b", "c"} {
		dir := filepath.Join(out, node)
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server-cert.pem"), filepath.Join(dir, "server-key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"10.0.0.1", "db2.example", "fd00::3", "orders.db.example", "shop.apps.example", "localhost", "127.0.0.1", "::1"} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: time.Now().AddDate(9, 11, 0)}); err != nil {
				t.Errorf("node %s by %s: %v", node, name, err)
			}
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "db3.example"}); err == nil {
			t.Errorf("node %s passes for a name that it has not", node)
		}
		serials[pair.Leaf.SerialNumber.String()] = true
		own, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
		if err != nil || string(own) != string(ca) {
			t.Errorf("node %s has another CA: %v", node, err)
		}
		c, err := config.Load(filepath.Join(dir, "node.toml"))
		if err != nil {
			t.Fatal(err)
		}
		if v := c.MySQL.Variables; v["ssl_ca"] != "/etc/quorate/ca.pem" || v["ssl_cert"] != "/etc/quorate/server-cert.pem" || v["ssl_key"] != "/etc/quorate/server-key.pem" {
			t.Errorf("node %s: %v", node, v)
		}
	}
	if len(serials) != 3 {
		t.Errorf("serial numbers: %v", serials)
	}
	for _, secret := range []string{"client-ca-key.pem", "a/server-key.pem"} {
		if info, err := os.Stat(filepath.Join(out, secret)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", secret, info.Mode(), err)
		}
	}
	if keys, _ := filepath.Glob(filepath.Join(out, "*", "*ca-key*")); keys != nil {
		t.Errorf("a node gets the CA's key: %s", keys)
	}

	if code, _, stderr := run(t, args...); code == 0 || !strings.Contains(stderr, "file exists") {
		t.Errorf("again: exit code %d, %s", code, stderr)
	}
	if now, err := os.ReadFile(filepath.Join(out, "client-ca.pem")); err != nil || string(now) != string(ca) {
		t.Errorf("the CA was replaced: %v", err)
	}
}

func TestInitClientNames(t *testing.T) {
	for _, c := range []struct{ name, ca, want string }{
		{"db.example", "--client-ca=false", "is for the certificates of --client-ca"},
		{"db example", "--client-ca", "neither a host's name nor an address"},
		{"db.example:6446", "--client-ca", "neither a host's name nor an address"},
		{"", "--client-ca", ""},
	} {
		code, _, stderr := run(t, "init", "--nodes", "a=10.0.0.1,b=10.0.0.2,c=10.0.0.3", "--out", filepath.Join(t.TempDir(), "x"), c.ca, "--client-name", c.name)
		if want := map[bool]int{true: 0, false: exitUsage}[c.want == ""]; code != want || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit code %d, %s", c.name, code, stderr)
		}
	}
}
