package nodekeytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"testing"
	"time"
)

// Authority issues certificates.
type Authority struct {
	// File holds the authority's own certificate, in PEM.
	File    string
	cert    *x509.Certificate
	private *ecdsa.PrivateKey
	issued  int64
}

// NewAuthority makes an Authority and its file.
func NewAuthority(t testing.TB, file string) *Authority {
	t.Helper()
	a := &Authority{File: file, private: newKey(t), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.Renew(t, time.Now().Add(-48*time.Hour))
	return a
}

// Renew issues the authority's own certificate again, for its present key, and writes its file. The certificate
// is valid for 96 hours.
func (a *Authority) Renew(t testing.TB, begins time.Time) {
	t.Helper()
	a.cert.NotBefore, a.cert.NotAfter = begins, begins.Add(96*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.private.PublicKey, a.private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, a.File, "CERTIFICATE", der, 0o644)
}

// Issue writes a new key, and a certificate for it that expires at ends and has the given URIs.
func (a *Authority) Issue(t testing.TB, certificateFile, keyFile string, ends time.Time, uris ...string) {
	t.Helper()
	a.issued++
	private := newKey(t)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.issued), KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: ends.Add(-24 * time.Hour), NotAfter: ends,
	}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, uri)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &private.PublicKey, a.private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, keyFile, "PRIVATE KEY", secret, 0o600)
	write(t, certificateFile, "CERTIFICATE", der, 0o644)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func write(t testing.TB, file, kind string, der []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		t.Fatal(err)
	}
}
