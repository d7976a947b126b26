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

// LoadIssued reads a key and the certificate that an operator's authority has issued for it, both in PEM.
// Its name is the certificate's URI. A certificate that has ended is good: Ends says when.
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
	if err != nil {
		return nil, fmt.Errorf("read the node's certificate %s: %w", certificateFile, err)
	}
	return &Key{name: name, cert: pair}, nil
}

// issuedName is the one URI of a certificate.
func issuedName(cert *x509.Certificate) (cluster.Key, error) {
	if len(cert.URIs) != 1 || cluster.IssuedKey(cert.URIs[0]) == "" {
		return "", fmt.Errorf("it names %v, and a node's certificate names one URI, quorate://CLUSTER/NODE", cert.URIs)
	}
	return cluster.IssuedKey(cert.URIs[0]), nil
}

// Ends is when an issued certificate ends; zero = the key is the node's own, and never does.
func (k *Key) Ends() time.Time {
	if !k.name.Issued() {
		return time.Time{}
	}
	return k.cert.Leaf.NotAfter
}

// Same tells whether two keys are shown by the same certificate.
func (k *Key) Same(as *Key) bool { return k.cert.Leaf.Equal(as.cert.Leaf) }

// Authority is who says whose keys are whose: the certificates in a file, in PEM. The file is read again
// when it has changed. Its methods may be called from any goroutine.
type Authority struct {
	file string

	mu    sync.Mutex
	as    os.FileInfo // the file as it was read
	roots *x509.CertPool
}

// NewAuthority reads an authority's certificates.
func NewAuthority(file string) (*Authority, error) {
	a := &Authority{file: file}
	return a, a.read()
}

// read takes what the file holds now. If it cannot, what it held before stays. mu is held, but by
// NewAuthority.
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

// always is a certificate that is good at any time. Package x509 has no other way to look at signatures alone:
// one moment at which a whole chain is good there need not be, if the authority's own was issued anew.
func always(c *x509.Certificate) *x509.Certificate {
	at := *c
	at.NotBefore, at.NotAfter = time.Time{}, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	return &at
}

// Name returns the name of a peer's key by the certificates that it shows; "" = the authority has not
// issued the first one for a node. The time is not asked for, of no certificate. Who may be a member is the
// member list's to say.
func (a *Authority) Name(shown []*x509.Certificate) cluster.Key {
	a.mu.Lock()
	_ = a.read() // else the former one
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
	name, _ := issuedName(shown[0])
	return name
}
