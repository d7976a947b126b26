package nodekey

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

// TestSavedAndLoaded: a key is the same after it was written and read, and is not replaced.
func TestSavedAndLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.key")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no file: %v", err)
	}
	k, made, err := LoadOrMake(path, nil)
	if err != nil || !made {
		t.Fatalf("made %t, %v", made, err)
	}
	again, made, err := LoadOrMake(path, nil)
	if err != nil || made || again.Name() != k.Name() {
		t.Fatalf("made %t, %v", made, err)
	}
	if name, err := Of(again.Certificate().Leaf); err != nil || name != k.Name() || name.Check() != nil {
		t.Errorf("its certificate is of %q, %v, want %q", name, err, k.Name())
	}
	if err := again.Save(path, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a key was replaced: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("files beside the key: %v, %v", left, err)
	}
}

// TestMadeOnce: several callers make the key at the same time, and all get the same key.
func TestMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.key")
	var all sync.WaitGroup
	var names sync.Map
	for range 8 {
		all.Go(func() {
			k, _, err := LoadOrMake(path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			names.Store(k.Name(), true)
		})
	}
	all.Wait()
	n := 0
	names.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d keys", n)
	}
}

// TestLoadRefuses: a file that is no key is refused, and so is a file that others may have read.
func TestLoadRefuses(t *testing.T) {
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	larger, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(key any) string {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}))
	}
	for _, c := range []struct {
		name, text string
		mode       fs.FileMode
		says       string
	}{
		{"empty", "", 0o600, "no key in PEM"},
		{"not PEM", "q1:abc\n", 0o600, "no key in PEM"},
		{"torn", "-----BEGIN PRIVATE KEY-----\nMIGHAgEA\n-----END PRIVATE KEY-----\n", 0o600, "read the node's key"},
		{"another kind", encode(other), 0o600, "another kind"},
		{"another curve", encode(larger), 0o600, "another kind"},
		{"large", strings.Repeat("x", fileBytesMax+1), 0o600, "no file of a key"},
		{"group may read", encode(larger), 0o640, "0600"},
	} {
		path := filepath.Join(t.TempDir(), "node.key")
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a directory is a key")
	}
}

// TestOfRefuses: a peer's key of another kind has no name here.
func TestOfRefuses(t *testing.T) {
	for _, cert := range []*x509.Certificate{{}, {PublicKey: ed25519.PublicKey{}}, {PublicKey: &ecdsa.PublicKey{Curve: elliptic.P384()}}} {
		if name, err := Of(cert); err == nil {
			t.Errorf("%T: %q", cert.PublicKey, name)
		}
	}
}

// TestKeyOfAnotherAccount: root makes a key for another account. The file belongs to that account from its first
// moment on: it is not given away by its path afterwards.
func TestKeyOfAnotherAccount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	const nobody = 65534
	path := filepath.Join(t.TempDir(), "node.key")
	k, made, err := LoadOrMake(path, &vfs.Owner{UID: nobody, GID: nobody})
	if err != nil || !made {
		t.Fatalf("made %t, %v", made, err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid != nobody || st.Gid != nobody || info.Mode().Perm() != 0o600 {
		t.Errorf("it belongs to %d:%d, mode %#o", st.Uid, st.Gid, info.Mode().Perm())
	}
	if again, made, err := LoadOrMake(path, nil); err != nil || made || again.Name() != k.Name() {
		t.Errorf("read again: made %t, %v", made, err)
	}
}
