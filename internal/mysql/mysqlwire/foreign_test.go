package mysqlwire

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"testing"
)

// TestForeignLogin: the answers of an account with another plugin, and where no TLS protects the password. (Those with
// caching_sha2_password are tried with a server, in package following and test/e2e.)
func TestForeignLogin(t *testing.T) {
	challenge := []byte("0123456789abcdefghij")
	request := func(plugin string) []byte {
		return append(append(append([]byte{headerEOF}, plugin...), 0), append(bytes.Clone(challenge), 0)...)
	}
	var nonce []byte
	_, answer, err := sourceAuth(request(nativePlugin), &nonce, ForeignConfig{Password: "secret"})
	if err != nil || !bytes.Equal(nonce, challenge) {
		t.Fatalf("%v, and the challenge is %q", err, nonce)
	}
	// The check of the server (check_scramble in sql/auth/password.cc), which knows only
	// SHA1(SHA1(password)).
	once := sha1.Sum([]byte("secret"))
	stored := sha1.Sum(once[:])
	mask := sha1.Sum(append(bytes.Clone(challenge), stored[:]...))
	got := make([]byte, len(mask))
	subtle.XORBytes(got, mask[:], answer)
	if again := sha1.Sum(got); again != stored {
		t.Error("the server would refuse the answer of mysql_native_password")
	}
	if _, _, err := sourceAuth(request("dialog"), &nonce, ForeignConfig{Password: "secret"}); err == nil {
		t.Error("a plugin that sends the password is answered")
	}
	full := []byte{headerAuthMore, authFull}
	if _, answer, err := sourceAuth(full, &nonce, ForeignConfig{Password: "secret"}); err != nil || !bytes.Equal(answer, []byte{keyRequest}) {
		t.Errorf("without TLS the answer is %q: %v", answer, err)
	}
	if _, answer, err := sourceAuth(full, &nonce, ForeignConfig{Password: "secret", TLS: &tls.Config{}}); err != nil || string(answer) != "secret\x00" {
		t.Errorf("with TLS the answer is %q: %v", answer, err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	sent := append([]byte{headerAuthMore}, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})...)
	_, answer, err = sourceAuth(sent, &nonce, ForeignConfig{Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := rsa.DecryptOAEP(sha1.New(), nil, key, answer, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range plain {
		plain[i] ^= challenge[i%len(challenge)]
	}
	if string(plain) != "secret\x00" {
		t.Errorf("the server would read the password %q", plain)
	}
	if _, _, err := sourceAuth(append([]byte{headerAuthMore}, "no key"...), &nonce, ForeignConfig{Password: "secret"}); err == nil {
		t.Error("what is no key is taken for one")
	}
}
