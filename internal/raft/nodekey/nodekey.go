package nodekey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
)

// pemType is the type of the file's one block (RFC 7468 §10).
const pemType = "PRIVATE KEY"

// fileBytesMax bounds the size of a file that is read. A file of a key has some 240 bytes.
const fileBytesMax = 16 << 10

// Key is a node's key with its certificate. It does not change.
type Key struct {
	name    cluster.Key
	private *ecdsa.PrivateKey // nil: an authority issued the key, which is not saved
	cert    tls.Certificate
}

// New returns a new key.
func New() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return withCertificate(private)
}

func withCertificate(private *ecdsa.PrivateKey) (*Key, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // no expiry: RFC 5280 §4.1.2.5
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of a key: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of a key: %w", err)
	}
	return &Key{
		name: cluster.KeyOf(leaf.RawSubjectPublicKeyInfo), private: private,
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf},
	}, nil
}

// Name returns the name by which the key is known.
func (k *Key) Name() cluster.Key { return k.name }

// Certificate returns the certificate that TLS connections show. It must not be changed.
func (k *Key) Certificate() *tls.Certificate { return &k.cert }

// Of returns the name of the key in a peer's certificate. It refuses a key of another kind than New makes.
func Of(cert *x509.Certificate) (cluster.Key, error) {
	public, ok := cert.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return "", errors.New("the key is not of the kind that nodes have (ECDSA on P-256)")
	}
	return cluster.KeyOf(cert.RawSubjectPublicKeyInfo), nil
}

// Load reads a key. The error wraps fs.ErrNotExist if there is no file. A file that other accounts may read is
// refused: whoever has read it can pose as this node.
func Load(path string) (*Key, error) {
	text, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	return parse(path, text)
}

// parse returns the key from the text of a file.
func parse(path string, text []byte) (*Key, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return nil, fmt.Errorf("read the node's key: %s holds no key in PEM", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the node's key %s: %w", path, err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("read the node's key: %s holds a key of another kind than ECDSA on P-256", path)
	}
	return withCertificate(private)
}

// ErrOpen means that other accounts may read the file of a key.
var ErrOpen = errors.New("others may read the node's key")

// readSecret reads a small file that no other account may read.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the node's key: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the node's key: %w", err)
	case !info.Mode().IsRegular() || info.Size() > fileBytesMax:
		return nil, fmt.Errorf("read the node's key: %s is no file of a key", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%w %s (mode %04o): set it to 0600, and change the key if somebody may have read it", ErrOpen, path, info.Mode().Perm())
	}
	text := make([]byte, info.Size())
	if _, err := f.ReadAt(text, 0); err != nil {
		return nil, fmt.Errorf("read the node's key: %w", err)
	}
	return text, nil
}

// Save writes the key to a new file. If the file exists, the error wraps fs.ErrExist. When Save returns nil the
// file is on disk. The file belongs to owner from the first moment on; nil = the account that writes it. The
// owner is never changed by path: somebody could put a link there.
func (k *Key) Save(path string, owner *vfs.Owner) error {
	err := k.save(vfs.OS{}, path, owner)
	if errors.Is(err, fs.ErrExist) { // it is of a link, which says nothing to people
		return fmt.Errorf("write the node's key: %w", &fs.PathError{Op: "make", Path: path, Err: syscall.EEXIST})
	}
	return err
}

func (k *Key) save(fs vfs.FS, path string, owner *vfs.Owner) error {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err == nil {
		err = vfs.WriteNew(vfs.As(fs, 0o600, owner), path, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}))
	}
	if err != nil {
		return fmt.Errorf("write the node's key: %w", err)
	}
	return nil
}

// LoadOrMake reads a key. If there is no file, it makes a key and its file, for owner as in Save, and returns
// made=true.
func LoadOrMake(path string, owner *vfs.Owner) (k *Key, made bool, err error) {
	if k, err = Load(path); !errors.Is(err, fs.ErrNotExist) {
		return k, false, err
	}
	if k, err = New(); err != nil {
		return nil, false, err
	}
	if err = k.Save(path, owner); errors.Is(err, fs.ErrExist) { // another process was faster
		k, err = Load(path)
		return k, false, err
	}
	return k, err == nil, err
}
