package cluster

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// Key names the key of a node: "q1:" and the SHA-256 of its public part (SubjectPublicKeyInfo, DER,
// RFC 5280 §4.1) in base64url without padding. "" = none. It is no secret.
type Key string

const keyPrefix = "q1:"

// KeyOf names the key with that public part.
func KeyOf(spki []byte) Key {
	sum := sha256.Sum256(spki)
	return Key(keyPrefix + base64.RawURLEncoding.EncodeToString(sum[:]))
}

// Check refuses what is no name of a key.
func (k Key) Check() error {
	sum, ok := strings.CutPrefix(string(k), keyPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sum)
	if !ok || err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("a key is %q and 43 letters, digits, '-' and '_', as \"quorate key show\" prints it, not %q", keyPrefix, string(k))
	}
	return nil
}
