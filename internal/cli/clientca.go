package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/config"
)

const (
	// certificateYears is long, because no client can connect when the certificates have ended: the status
	// warns 30 days before. certificateEarly is for clients whose clock is late.
	certificateYears = 10
	certificateEarly = 24 * time.Hour
	// serialBits random bits make each serial number unique (RFC 5280 §4.1.2.2
	// allows 160, with the first bit 0).
	serialBits = 127
)

// clientCA is a CA that clients trust. It signs the certificate of each node's mysqld.
type clientCA struct {
	cert    *x509.Certificate
	private *ecdsa.PrivateKey
	now     time.Time
}

// pemPair is a certificate and its key in PEM, as they are written to files.
type pemPair struct{ cert, key []byte }

// newClientCA makes the CA of a cluster.
func newClientCA(clusterName string, now time.Time) (clientCA, error) {
	ca := clientCA{now: now, cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "quorate CA of " + clusterName}, IsCA: true, BasicConstraintsValid: true,
		MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}}
	private, der, err := ca.sign(ca.cert)
	if err != nil {
		return clientCA{}, err
	}
	ca.private = private
	ca.cert, err = x509.ParseCertificate(der)
	return ca, err
}

// sign makes a key, and completes and signs the certificate c for it. While the CA has no key yet, c is the CA's own
// certificate, which signs itself.
func (ca clientCA) sign(c *x509.Certificate) (private *ecdsa.PrivateKey, der []byte, err error) {
	if private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits)); err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	c.NotBefore, c.NotAfter = ca.now.Add(-certificateEarly), ca.now.AddDate(certificateYears, 0, 0)
	signer := ca.private
	if signer == nil {
		signer = private
	}
	if der, err = x509.CreateCertificate(rand.Reader, c, ca.cert, private.Public(), signer); err != nil {
		return nil, nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return private, der, nil
}

// issue makes a node's certificate, with the names and addresses by which clients may reach it.
func (ca clientCA) issue(node string, names []string) (pemPair, error) {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: node}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	private, der, err := ca.sign(c)
	if err != nil {
		return pemPair{}, err
	}
	return toPEM(der, private)
}

func toPEM(cert []byte, private *ecdsa.PrivateKey) (pemPair, error) {
	key, err := x509.MarshalPKCS8PrivateKey(private)
	return pemPair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}, err
}

// clientNames are the names and addresses by which clients may know a node. All nodes have the same ones: a client of one
// node's port 6446 is led to the primary, whichever node that is, and verifies the primary's certificate.
func (n newCluster) clientNames(members []config.Member) (names []string) {
	for _, m := range members {
		host, _, err := net.SplitHostPort(m.Peer)
		if err == nil { // Validate reports an error
			names = append(names, host)
		}
	}
	names = append(append(names, n.clientNamesToo...), "localhost", "127.0.0.1", "::1")
	slices.Sort(names)
	return slices.Compact(names)
}

// certificates makes the CA and the nodes' certificates, if the flags ask for them.
func (n newCluster) certificates(members []config.Member) (ca pemPair, nodes []pemPair, err error) {
	if !n.clientCA {
		return pemPair{}, make([]pemPair, len(members)), nil
	}
	authority, err := newClientCA(n.name, time.Now())
	if err != nil {
		return pemPair{}, nil, fmt.Errorf("make the clients' CA: %w", err)
	}
	names := n.clientNames(members)
	for _, m := range members {
		pair, err := authority.issue(m.Name, names)
		if err != nil {
			return pemPair{}, nil, fmt.Errorf("make the certificate of node %s: %w", m.Name, err)
		}
		nodes = append(nodes, pair)
	}
	ca, err = toPEM(authority.cert.Raw, authority.private)
	return ca, nodes, err
}
