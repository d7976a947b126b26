package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// serverName is the name by which the clients of TestClientTLS know every node.
const serverName = "shop.db.test"

// TestClientTLS: clients check the server's certificate and name, with the CA that
// "quorate init --client-ca" has made, before and after a failover, through any node.
func TestClientTLS(t *testing.T) {
	beside(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, "tls", nodeHere, name) }
	f := newCluster(t, devcluster.Options{Nodes: 3, Variables: map[string]string{
		"ssl_ca": in("ca.pem"), "ssl_cert": in("server-cert.pem"), "ssl_key": in("server-key.pem"),
	}})
	roots := f.initClientCA(t, filepath.Join(dir, "tls"))
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) { // a mysqld of another account reads them
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.StartAll(scenarioContext(t)); err != nil {
		t.Fatal(err)
	}
	f.createTable(t, scenarioContext(t))
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
		f.mysqlVerifies(t, ctx, filepath.Join(dir, "tls", "client-ca.pem"))
		for i := range f.Len() {
			if err := f.WaitNode(ctx, i, "it tells of its certificate", func(n status.Node) bool {
				return n.ClientCA != "" && n.ClientCA != status.OwnCA && slices.Contains(n.ClientNames, serverName)
			}); err != nil {
				t.Fatal(err)
			}
		}
		if text := f.must(t, ctx, primary, "status"); strings.Contains(text, "certificates: ") {
			t.Errorf("a certificate is told of: %s", text)
		}
	})
	f.scenario(t, "NoKey", func(t *testing.T, ctx context.Context) {
		replica := f.others(f.heal(t, ctx))[0]
		f.withoutKey(t, ctx, replica, filepath.Join(dir, "tls", f.Name(replica), "server-key.pem"))
	})
	f.scenario(t, "OtherCA", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		replica := f.Name(f.others(primary)[0])
		cmd := exec.Command(os.Getenv(binaryVariable), "init", "--nodes", replica+"=127.0.0.1", "--client-ca", "--out", filepath.Join(dir, "other"))
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, name := range []string{"ca.pem", "server-cert.pem", "server-key.pem"} {
			text, err := os.ReadFile(filepath.Join(dir, "other", replica, name))
			if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "tls", replica, name), text, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		f.must(t, ctx, primary, "restart-mysqld", replica)
		if err := devcluster.Poll(ctx, "the status tells of another CA", func(ctx context.Context) (bool, string, error) {
			text := f.must(t, ctx, primary, "status")
			return strings.Contains(text, "certificates: mysqld's are of 2 CAs ("), text, nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// nodeHere stands for a node's name in a path of its configuration.
const nodeHere = "NODE"

// initClientCA makes certificates with "quorate init", and gives each node its own.
func (f *fixture) initClientCA(t *testing.T, out string) *x509.CertPool {
	t.Helper()
	var nodes []string
	for i := range f.Len() {
		host, _, err := net.SplitHostPort(f.RouterAddr(i))
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, fmt.Sprintf("%s=%s:%d", f.Name(i), host, 7400+i))
	}
	cmd := exec.Command(os.Getenv(binaryVariable), "init", "--nodes", strings.Join(nodes, ","), "--client-ca", "--client-name", serverName, "--out", out)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for i := range f.Len() {
		text, err := os.ReadFile(f.ConfigPath(i))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("/"+nodeHere+"/"), []byte("/"+f.Name(i)+"/"))
		dir := filepath.Join(out, f.Name(i))
		if err := errors.Join(os.WriteFile(f.ConfigPath(i), text, 0o644), os.Chmod(out, 0o755), os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, "server-key.pem"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "client-ca.pem"))
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatalf("%v: %s", err, text)
	}
	return roots
}

// mysqlVerifies connects as the application with MySQL's own client, which checks that the
// certificate has the address that it connects to.
func (f *fixture) mysqlVerifies(t *testing.T, ctx context.Context, ca string) {
	t.Helper()
	installed, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	argv, err := installed.ClientArgv()
	if err != nil {
		t.Fatal(err)
	}
	user, password := f.Application()
	for i := range f.Len() {
		host, port, err := net.SplitHostPort(f.RouterAddr(i))
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], "--host="+host, "--port="+port, "--user="+user, "--password="+password,
			"--ssl-mode=VERIFY_IDENTITY", "--ssl-ca="+ca, "--execute=SHOW SESSION STATUS LIKE 'Ssl_version'")...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "TLSv1.3") {
			t.Errorf("mysql through %s: %v, %s", f.Name(i), err, out)
		}
	}
}

// withoutKey: a mysqld whose key is gone starts without TLS. The check of the
// configuration says so, and the status until mysqld has the key again.
func (f *fixture) withoutKey(t *testing.T, ctx context.Context, replica int, key string) {
	t.Helper()
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
