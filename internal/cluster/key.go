package cluster

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Key is the name of a node's key. It is no secret; "" = none. There are two kinds:
//
//	q1:…                         "q1:" and the SHA-256 of its public part (SubjectPublicKeyInfo, DER,
//	                             RFC 5280 §4.1) in base64url without padding: this one key
//	ca:quorate://CLUSTER/NODE    any key to which an authority of the operator's gives that URI
type Key string

const (
	keyPrefix    = "q1:"
	issuedPrefix = "ca:"
	// issuedScheme is the scheme of the URI in a certificate.
	issuedScheme = "quorate"
	// issuedBytesMax bounds the name of an issued key: two names of 64 bytes, and the rest of the URI.
	issuedBytesMax = 160
)

// KeyOf returns the name of the key with that public part.
func KeyOf(spki []byte) Key {
	sum := sha256.Sum256(spki)
	return Key(keyPrefix + base64.RawURLEncoding.EncodeToString(sum[:]))
}

// IssuedKey returns the name of the keys to which an authority gives a URI; "" = it is not the URI of a node.
func IssuedKey(uri *url.URL) Key {
	k := Key(issuedPrefix + uri.String())
	if k.Check() != nil {
		return ""
	}
	return k
}

// Issued tells whether an authority issues the key.
func (k Key) Issued() bool { return strings.HasPrefix(string(k), issuedPrefix) }

func (k Key) checkIssued() error {
	text := strings.TrimPrefix(string(k), issuedPrefix)
	uri, err := url.Parse(text)
	if err != nil || len(k) > issuedBytesMax || uri.Scheme != issuedScheme || uri.Host == "" || strings.Count(uri.Path, "/") != 1 || len(uri.Path) < 2 ||
		text != issuedScheme+"://"+uri.Host+uri.Path || !printable(text) {
		return fmt.Errorf("a key that an authority issues is %s%s://CLUSTER/NODE, not %q", issuedPrefix, issuedScheme, string(k))
	}
	return nil
}

// Check refuses a text that is not the name of a key.
func (k Key) Check() error {
	if k.Issued() {
		return k.checkIssued()
	}
	sum, ok := strings.CutPrefix(string(k), keyPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sum)
	if !ok || err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("a key is %q and 43 letters, digits, '-' and '_', as \"quorate key show\" prints it, not %q", keyPrefix, string(k))
	}
	return nil
}

// PeerSecurity says how the connections between agents are protected. It can only be raised.
type PeerSecurity string

const (
	// PeersPlain: connections are not protected.
	PeersPlain PeerSecurity = ""
	// PeersBoth: with TLS if both sides can, while a cluster changes over.
	PeersBoth PeerSecurity = "both"
	// PeersRequire: with TLS; other connections are refused.
	PeersRequire PeerSecurity = "require"
)

// Next returns the next step; "" = there is none.
func (s PeerSecurity) Next() PeerSecurity {
	switch s {
	case PeersPlain:
		return PeersBoth
	case PeersBoth:
		return PeersRequire
	}
	return ""
}

// KeysChange changes the keys of one member: those that are not nil.
type KeysChange struct {
	Name    string `json:"name"`
	Key     *Key   `json:"key,omitempty"`
	NextKey *Key   `json:"next_key,omitempty"`
}

// String says in one line what is set.
func (c KeysChange) String() string {
	var said []string
	if c.Key != nil {
		said = append(said, "key "+string(*c.Key))
	}
	switch {
	case c.NextKey != nil && *c.NextKey == "":
		said = append(said, "no next key")
	case c.NextKey != nil:
		said = append(said, "next key "+string(*c.NextKey))
	}
	return fmt.Sprintf("node %s: %s", c.Name, strings.Join(said, ", "))
}

func (s *State) setKeys(c KeysChange) (changed bool, err error) {
	m, err := s.Member(c.Name)
	if err != nil {
		return false, err
	}
	i := slices.Index(s.Members, m)
	for _, k := range []*Key{c.Key, c.NextKey} {
		if k == nil || k == c.NextKey && *k == "" {
			continue
		}
		if err := s.mayHave(m.ID, m.Name, *k); err != nil {
			return false, err
		}
	}
	set(&m.Key, c.Key)
	set(&m.NextKey, c.NextKey)
	if m.NextKey == m.Key {
		m.NextKey = ""
	}
	changed = m != s.Members[i]
	s.Members[i] = m
	return changed, nil
}

// mayHave refuses a text that is no key, and a key of another node, even of a node that was removed.
func (s State) mayHave(id NodeID, name string, k Key) error {
	if err := k.Check(); err != nil {
		return err
	}
	if k.Issued() && !strings.HasSuffix(string(k), "/"+name) {
		return fmt.Errorf("it is not a key of node %s, because it names another node: %s", name, k)
	}
	for _, m := range s.Members {
		if m.ID != id && m.Has(k) {
			return fmt.Errorf("it is the key of node %s: each node has its own", m.Name)
		}
	}
	for _, removed := range []map[NodeID]Key{s.RemovedKeys, s.RemovedNextKeys} {
		for gone, key := range removed {
			if gone != id && key == k {
				return errors.New("it is the key of a node that was removed: make another one with \"quorate key new\"")
			}
		}
	}
	return nil
}

// Keys returns the member's keys: its own, and during a change the next one.
func (m Member) Keys() (keys []Key) {
	for _, k := range []Key{m.Key, m.NextKey} {
		if k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}

// Has tells whether a key is one of the member's.
func (m Member) Has(k Key) bool { return k != "" && (k == m.Key || k == m.NextKey) }

// setPeerSecurity raises the protection by one step. It checks that all members are ready for it.
func (s *State) setPeerSecurity(to PeerSecurity) error {
	steps := []PeerSecurity{PeersPlain, PeersBoth, PeersRequire}
	from, next := slices.Index(steps, s.PeerSecurity), slices.Index(steps, to)
	switch {
	case next < 0:
		return fmt.Errorf("peer-security must be %s or %s, not %q", PeersBoth, PeersRequire, to)
	case next < from:
		return fmt.Errorf("peer-security is %s, and cannot go back", s.PeerSecurity)
	case next > from+1:
		return fmt.Errorf("peer-security must be %s first: connections without TLS end once all nodes have that", PeersBoth)
	}
	for _, m := range s.Members {
		if next > from && m.Key == "" {
			return fmt.Errorf("the key of node %s is not known", m.Name)
		}
	}
	s.PeerSecurity = to
	return nil
}
