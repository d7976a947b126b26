package nodekey

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// LoadIssued reads a key and the certificate that an operator's authority has issued for it, both in PEM. The
// key's name is the certificate's URI. A certificate that has expired is accepted: Ends says when it expires.
func LoadIssued(certificateFile, keyFile string) (*Key, error) {
	text, err := readSecret(keyFile)
	if err != nil {
		return nil, err
	}
	certs, err := os.ReadFile(certificateFile)
	if err != nil {
		return nil, fmt.Errorf("read the node's certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certs, text)
	if err != nil {
		return nil, fmt.Errorf("read the node's certificate %s and its key %s: %w", certificateFile, keyFile, err)
	}
	name, err := issuedName(pair.Leaf)
	if err == nil && len(pair.Certificate) > chainMax {
		err = fmt.Errorf("it has %d certificates, and nodes look at %d at most", len(pair.Certificate), chainMax)
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's certificate %s: %w", certificateFile, err)
	}
	return &Key{name: name, cert: pair}, nil
}

// chainMax bounds the certificates that a node shows, and chainBytes their size. Anybody may show some, and package x509
// may check the signature of each with each.
const (
	chainMax   = 4
	chainBytes = 32 << 10
)

// issuedName returns the one URI of a certificate.
func issuedName(cert *x509.Certificate) (cluster.Key, error) {
	if len(cert.URIs) != 1 || cluster.IssuedKey(cert.URIs[0]) == "" {
		return "", fmt.Errorf("it names %v, and a node's certificate names one URI, quorate://CLUSTER/NODE", cert.URIs)
	}
	return cluster.IssuedKey(cert.URIs[0]), nil
}

// Ends returns when an issued certificate expires; zero = the key is the node's own, which never expires.
func (k *Key) Ends() time.Time {
	if !k.name.Issued() {
		return time.Time{}
	}
	return k.cert.Leaf.NotAfter
}

// Same tells whether both keys have the same certificate.
func (k *Key) Same(as *Key) bool { return k.cert.Leaf.Equal(as.cert.Leaf) }

// Authority knows to which node a key belongs, by the authority's certificates in a PEM file. The file is read
// again when it has changed. Its methods may be called from any goroutine.
type Authority struct {
	file string

	mu    sync.Mutex
	as    os.FileInfo // the file as it was read
	roots *x509.CertPool
}

// NewAuthority reads the authority's certificates.
func NewAuthority(file string) (*Authority, error) {
	a := &Authority{file: file}
	return a, a.read()
}

// read reads the file, if it has changed. After an error the certificates that were read before stay. mu is
// held, except in NewAuthority.
func (a *Authority) read() error {
	info, err := os.Stat(a.file)
	if err != nil {
		return fmt.Errorf("read the authority of nodes: %w", err)
	}
	if a.as != nil && os.SameFile(a.as, info) && info.ModTime().Equal(a.as.ModTime()) && info.Size() == a.as.Size() {
		return nil
	}
	text, err := os.ReadFile(a.file)
	if err != nil {
		return fmt.Errorf("read the authority of nodes: %w", err)
	}
	roots, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			roots.AddCert(always(c))
			n++
		}
	}
	if n == 0 {
		return fmt.Errorf("read the authority of nodes: %s holds no certificate in PEM", a.file)
	}
	a.as, a.roots = info, roots
	return nil
}

// always returns a copy of a certificate that is valid at any time. Package x509 has no other way to check only
// signatures: there may be no moment at which a whole chain is valid, if the authority's own certificate was
// issued again.
func always(c *x509.Certificate) *x509.Certificate {
	at := *c
	at.NotBefore, at.NotAfter = time.Time{}, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	return &at
}

// Name returns the name of a peer's key, by the certificates that the peer shows; "" = the authority has not
// issued the first of them for a node, or they are too many. The time does not matter for any of the certificates. The
// member list decides which nodes are members.
func (a *Authority) Name(shown []*x509.Certificate) cluster.Key {
	name, err := issuedName(shown[0])
	size := 0
	for _, c := range shown {
		size += len(c.Raw)
	}
	if err != nil || len(shown) > chainMax || size > chainBytes {
		return ""
	}
	a.mu.Lock()
	_ = a.read() // after an error the certificates from before are used
	roots := a.roots
	a.mu.Unlock()
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(always(c))
	}
	if _, err := always(shown[0]).Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return ""
	}
	return name
}
