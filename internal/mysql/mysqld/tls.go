package mysqld

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tlsFiles are the options that name files for TLS. A server that cannot use one of these files
// starts without TLS, and only logs that.
func tlsFiles() []string { return []string{"ssl_ca", "ssl_cert", "ssl_key", "ssl_crl"} }

// tlsSet returns the operator's options of tlsFiles.
func (c Config) tlsSet() map[string]string {
	set := map[string]string{}
	for name, value := range c.Variables {
		set[normalizeOption(name)] = value
	}
	files := map[string]string{}
	for _, name := range tlsFiles() {
		if set[name] != "" {
			files[name] = set[name]
		}
	}
	return files
}

// CheckTLSFiles says why a server with this configuration would start without TLS on this host,
// in one sentence for each reason; nil = nothing is wrong, or no file is named. It needs
// DataDir, OSUser and Variables. An error means that the files could not be checked: ErrConfig
// where only root can do it, another error where the account does not exist.
func (c Config) CheckTLSFiles(ctx context.Context) (texts []string, err error) {
	files := c.tlsSet()
	if len(files) == 0 {
		return nil, nil
	}
	id, err := c.identity()
	if err != nil {
		return nil, err
	}
	content := map[string][]byte{} // by the value of the option
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if content[files[name]], err = id.readFile(ctx, c.inData(files[name])); err != nil {
			texts = append(texts, fmt.Sprintf("%s: %s cannot read it: %v", name, cmp.Or(c.OSUser, "this account"), err))
		}
	}
	if ca := content[files["ssl_ca"]]; ca != nil && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		texts = append(texts, fmt.Sprintf("ssl_ca: %s holds no certificate", files["ssl_ca"]))
	}
	cert, key := pair(files)
	if len(texts) > 0 || cert == "" {
		return texts, nil
	}
	if _, err := tls.X509KeyPair(content[cert], content[key]); err != nil {
		texts = append(texts, fmt.Sprintf("ssl_cert %s and ssl_key %s do not go together: %v", cert, key, err))
	}
	return texts, nil
}

// inData returns the absolute path of an option's value: the server takes it as relative to its
// data directory.
func (c Config) inData(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.paths().data, path)
}

// pair returns the files of the certificate and its key. If only one of the options is set, the
// server uses that file for both.
func pair(files map[string]string) (cert, key string) {
	return cmp.Or(files["ssl_cert"], files["ssl_key"]), cmp.Or(files["ssl_key"], files["ssl_cert"])
}

// OwnTLS tells whether the operator has set no TLS file. The server then makes a certificate in
// its data directory, with a CA of its own.
func (c Config) OwnTLS() bool { return len(c.tlsSet()) == 0 }

// ServerCertificate reads the certificate that the server shows to its clients, and its key. It
// needs the same fields as CheckTLSFiles.
func (c Config) ServerCertificate(ctx context.Context) (*tls.Certificate, error) {
	certFile, keyFile := pair(c.tlsSet())
	if c.OwnTLS() {
		certFile, keyFile = "server-cert.pem", "server-key.pem"
	}
	if certFile == "" {
		return nil, fmt.Errorf("%w: mysql.variables sets neither ssl_cert nor ssl_key", ErrConfig)
	}
	id, err := c.identity()
	if err != nil {
		return nil, err
	}
	cert, err := id.readFile(ctx, c.inData(certFile))
	if err != nil {
		return nil, fmt.Errorf("read the server's certificate: %w", err)
	}
	key, err := id.readFile(ctx, c.inData(keyFile))
	if err != nil {
		return nil, fmt.Errorf("read the key of the server's certificate: %w", err)
	}
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the server's certificate %s with the key %s: %w", certFile, keyFile, err)
	}
	return &both, nil
}

// Shown is what clients verify of the server's certificate.
type Shown struct {
	// CA identifies the CA that signed it; it is the same for all servers of one CA. "" = the
	// server has made the certificate and the CA itself.
	CA string
	// Names are the names and addresses in it by which clients of other hosts may reach the
	// server; nil = there are none, or too many.
	Names []string
}

// shownBytesMax bounds the total length of the names.
const shownBytesMax = 4 << 10

// Shown reads what clients verify of the server's certificate.
func (c Config) Shown(ctx context.Context) (Shown, error) {
	if c.OwnTLS() {
		return Shown{}, nil
	}
	pair, err := c.ServerCertificate(ctx)
	if err != nil {
		return Shown{}, err
	}
	s := Shown{CA: c.signer(ctx, pair), Names: clientNames(pair.Leaf)}
	if len(strings.Join(s.Names, "")) > shownBytesMax {
		s.Names = nil
	}
	return s, nil
}

// signer identifies the CA of a certificate: by the key of the CA in ssl_ca that verifies it, or
// else by the issuer of the last certificate in its own file. It does not matter which of the two
// is used, because all nodes of a cluster are set up alike.
func (c Config) signer(ctx context.Context, pair *tls.Certificate) string {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if path := c.tlsSet()["ssl_ca"]; path != "" {
		if id, err := c.identity(); err == nil {
			if text, err := id.readFile(ctx, c.inData(path)); err == nil {
				roots.AppendCertsFromPEM(text)
			}
		}
	}
	last := pair.Leaf
	for _, der := range pair.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(cert)
			last = cert
		}
	}
	by := append(slices.Clone(last.RawIssuer), last.AuthorityKeyId...)
	if chains, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		CurrentTime: pair.Leaf.NotBefore, // a certificate that has expired is reported elsewhere
	}); err == nil {
		by = chains[0][len(chains[0])-1].RawSubjectPublicKeyInfo
	}
	sum := sha256.Sum256(by)
	return hex.EncodeToString(sum[:8])
}

// clientNames returns the names that a client's VERIFY_IDENTITY accepts, without localhost and
// loopback addresses. A certificate without any such name is valid for the subject's name.
func clientNames(c *x509.Certificate) (names []string) {
	names = slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		if !ip.IsLoopback() {
			names = append(names, ip.String())
		}
	}
	if len(c.DNSNames)+len(c.IPAddresses) == 0 && c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "localhost" })
}

// readFile reads a file as the account that mysqld runs as.
func (id osIdentity) readFile(ctx context.Context, path string) ([]byte, error) {
	if id.credential == nil {
		return os.ReadFile(path)
	}
	cmd := exec.CommandContext(ctx, "cat", "--", path)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: id.credential}
	var said bytes.Buffer
	cmd.Stderr = &said
	content, err := cmd.Output()
	if err != nil && said.Len() > 0 {
		err = fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(said.String()), "cat: "))
	}
	return content, err
}

// Shown reads what clients verify of the server's certificate.
func (p *Process) Shown(ctx context.Context) (Shown, error) { return p.server.cfg.Shown(ctx) }

// TLS returns in off, sorted, the operator's options for TLS if the server runs without TLS all
// the same; nil = there are no such options, or TLS is on. If TLS is on, ends is when the
// certificate expires; zero = not known, or the server made the certificate itself.
func (p *Process) TLS(ctx context.Context) (off []string, ends time.Time, err error) {
	files := p.server.cfg.tlsSet()
	if len(files) == 0 {
		return nil, ends, nil
	}
	var on bool
	var notAfter string
	err = p.admin.query1(ctx, "how TLS is", `SELECT COALESCE(MAX(property = 'Enabled' AND value = 'Yes'), 0),
			COALESCE(MAX(IF(property = 'Ssl_server_not_after', value, NULL)), '')
		FROM performance_schema.tls_channel_status WHERE channel = 'mysql_main'`, nil, &on, &notAfter)
	switch {
	case err != nil:
		return nil, ends, err
	case !on:
		return slices.Sorted(maps.Keys(files)), ends, nil
	}
	ends, err = time.Parse("Jan _2 15:04:05 2006 MST", notAfter)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the end of the server's certificate: %w", err)
	}
	return nil, ends, nil
}
