package config

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

const (
	// readersMaxMax bounds the connections of downstream readers: each has three
	// goroutines and buffers of about 2 MiB while it reads.
	readersMaxMax = 1000
	// readerNameBytesMax is what mysqld allows the name of an account.
	readerNameBytesMax = 32
)

// Reader is an account for downstream readers of the log. Its password is never
// in the configuration.
type Reader struct {
	User string
	// PasswordFile holds the password, or PasswordHash is SHA256(SHA256(it)).
	PasswordFile string
	PasswordHash [32]byte
	// Allow is where it may connect from; empty = from anywhere.
	Allow []netip.Prefix
	// Decompress is for readers that do not know compressed transactions.
	Decompress bool
	// SQL: the local mysqld executes the reader's statements, as the account of the same name and password.
	SQL bool
	// Site: the reader is the other site, which may close this cluster for writes, to go on in its place.
	Site bool
}

// fields is the schema of one [[reader]].
func (r *Reader) fields() map[string]func(string) error {
	return map[string]func(string) error{
		"user":          setText(&r.User),
		"password_file": setText(&r.PasswordFile),
		"password_hash": func(text string) error {
			// The message must not have even a part of the text: it may be the password.
			b, err := hex.DecodeString(text)
			if err != nil || len(b) != len(r.PasswordHash) {
				return fmt.Errorf("not a hash: write the 64 hexadecimal digits of SHA256(SHA256(password))")
			}
			copy(r.PasswordHash[:], b)
			return nil
		},
		"allow":      setNetworks(&r.Allow),
		"decompress": setBool(&r.Decompress),
		"sql":        setBool(&r.SQL),
		"site":       setBool(&r.Site),
	}
}

// parseNetworks reads addresses and networks with commas between them.
func parseNetworks(text string) (networks []netip.Prefix, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		network, err := netip.ParsePrefix(part)
		if ip, errIP := netip.ParseAddr(part); err != nil && errIP == nil {
			network, err = ip.Prefix(ip.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not an address or network: write, for example, \"10.0.0.0/8, 192.168.1.5\"", part)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}

func (d *decoder) readers(value any) {
	d.list("reader", "user and password_file", value, func(read func(map[string]func(string) error)) {
		var r Reader
		read(r.fields())
		d.config.Readers = append(d.config.Readers, r)
	})
}

func (c Config) validateReaders(l *problemList) {
	if n := c.Feed.ReadersMax; n < 1 || n > readersMaxMax {
		l.add("feed.readers_max", "feed.readers_max %d is out of range: between 1 and %d", n, readersMaxMax)
	}
	if c.Feed.ReadersListen != "" && len(c.Readers) == 0 {
		l.add("feed.readers_listen", "feed.readers_listen has no reader: write a [[reader]] with user and password_file")
	}
	if c.Feed.ReadersListen == "" && len(c.Readers) > 0 {
		l.add("reader[0]", "a reader needs a port: set feed.readers_listen, such as \"0.0.0.0:7403\"")
	}
	seen := make(map[string]bool)
	for i, r := range c.Readers {
		key := fmt.Sprintf("reader[%d]", i)
		checkName(l, key+".user", "reader.user", r.User)
		if len(r.User) > readerNameBytesMax {
			l.add(key+".user", "reader.user %q is longer than %d bytes: shorten it", r.User, readerNameBytesMax)
		}
		if seen[r.User] && r.User != "" {
			l.add(key+".user", "duplicate reader %q: give each reader a name of its own", r.User)
		}
		seen[r.User] = true
		hasHash := r.PasswordHash != [32]byte{}
		switch {
		case r.PasswordFile == "" && !hasHash:
			l.add(key, "reader %q has no password: set password_file or password_hash", r.User)
		case r.SQL && r.PasswordFile == "":
			l.add(key+".sql", "reader %q has sql, and no password_file: the agent needs the password to log in to mysqld", r.User)
		case r.Site && c.Site.Name == "":
			l.add(key+".site", "reader %q has site, and there is no [site]: write one with name, nodes, user, password_file and ca_file", r.User)
		case r.SQL && r.Site:
			l.add(key+".site", "reader %q has sql and site: make a reader of each", r.User)
		case r.PasswordFile != "" && hasHash:
			l.add(key, "reader %q has a password_file and a password_hash: leave one out", r.User)
		case r.PasswordFile != "" && !filepath.IsAbs(r.PasswordFile):
			l.add(key+".password_file", "reader.password_file %q is not an absolute path: write a path that starts with /", r.PasswordFile)
		}
	}
}
