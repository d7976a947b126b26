package mysqlwire

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
)

// Capability flags (include/mysql_com.h).
const (
	capLongPassword     = 1 << 0
	capLongFlag         = 1 << 2
	capConnectWithDB    = 1 << 3
	capProtocol41       = 1 << 9
	capSSL              = 1 << 11
	capTransactions     = 1 << 13
	capSecureConnection = 1 << 15
	capPluginAuth       = 1 << 19

	// capsOurs is what this package speaks, as client and as server. Without
	// CLIENT_DEPRECATE_EOF result sets keep the plain form. CLIENT_SSL is added where TLS is
	// offered.
	capsOurs = capLongPassword | capLongFlag | capProtocol41 | capTransactions |
		capSecureConnection | capPluginAuth
)

const (
	authPlugin = "caching_sha2_password"
	// nonceBytes is the length of the server's random challenge.
	nonceBytes = 20
	// charsetUTF8MB4 is utf8mb4_general_ci.
	charsetUTF8MB4 = 45
	// authStepsMax bounds the packets of one authentication: a switch of the
	// plugin, a full-authentication request, the verdict, and one to spare.
	authStepsMax = 4

	// Values of caching_sha2_password's continuation packet.
	authFastOK = 3
	authFull   = 4
)

// ErrAuthPlugin is returned when a peer insists on another authentication
// plugin than caching_sha2_password.
var ErrAuthPlugin = errors.New("mysqlwire: authentication plugin not supported")

// Errors that end a feed's handshake. The peer got error 1045, 1040 (on which a replica tries again
// later), or 3159.
var (
	errAccessDenied = errors.New("mysqlwire: access denied")
	errTooMany      = errors.New("mysqlwire: too many connections")
	errNoTLS        = errors.New("mysqlwire: a client of another host has to use TLS, and did not: SOURCE_SSL=1, or --ssl-mode=REQUIRED")
)

// scramble answers a challenge of caching_sha2_password: XOR(SHA256(p),
// SHA256(SHA256(SHA256(p)) + nonce)); nothing for an empty password
// (sql/auth/sha2_password.cc).
func scramble(password string, nonce []byte) []byte {
	if password == "" {
		return nil
	}
	once := sha256.Sum256([]byte(password))
	twice := sha256.Sum256(once[:])
	mask := sha256.Sum256(append(twice[:], nonce...))
	subtle.XORBytes(mask[:], mask[:], once[:])
	return mask[:]
}

// login authenticates to mysqld. It may send the password in clear, so the connection must be
// safe for that (a Unix socket): mysqld asks for the password when it has no cached hash of the
// account yet.
func login(w *wire, user, password string) error {
	return loginWith(w, user, password, charsetUTF8MB4)
}

// loginWith is login with the number of a collation, which gives the character set of texts.
func loginWith(w *wire, user, password string, charset byte) error {
	nonce, err := w.greeted()
	if err != nil {
		return err
	}
	response := loginResponse(user, scramble(password, nonce))
	response[charsetAt] = charset
	if err := w.write(response); err != nil {
		return fmt.Errorf("send login: %w", err)
	}
	return w.authenticate(authStepsMax, func(payload []byte) (bool, []byte, error) { return authStep(payload, password) })
}

// greeted reads the server's greeting, and returns its challenge.
func (w *wire) greeted() (nonce []byte, err error) {
	payload, err := w.read()
	if err != nil {
		return nil, fmt.Errorf("read greeting: %w", err)
	}
	if len(payload) > 0 && payload[0] == headerErr {
		return nil, parseServerError(payload)
	}
	return parseGreeting(payload)
}

// authenticate answers the server's packets as step says, until step is done.
func (w *wire) authenticate(stepsMax int, step func(payload []byte) (done bool, answer []byte, err error)) error {
	for range stepsMax {
		payload, err := w.read()
		if err != nil {
			return fmt.Errorf("read login response: %w", err)
		}
		done, answer, err := step(payload)
		if err != nil || done {
			return err
		}
		if answer == nil {
			continue
		}
		if err := w.write(answer); err != nil {
			return fmt.Errorf("send authentication: %w", err)
		}
	}
	return fmt.Errorf("%w: authentication does not end", ErrMalformed)
}

// authStep reads one packet of the server. It returns done, or the answer to send (nil: only
// read on).
func authStep(payload []byte, password string) (done bool, answer []byte, err error) {
	if len(payload) == 0 {
		return false, nil, fmt.Errorf("%w: empty login response", ErrMalformed)
	}
	switch payload[0] {
	case headerOK:
		return true, nil, nil
	case headerErr:
		return false, nil, parseServerError(payload)
	case headerEOF: // here: AuthSwitchRequest
		plugin, nonce, _ := bytes.Cut(payload[1:], []byte{0})
		if string(plugin) != authPlugin {
			return false, nil, fmt.Errorf("%w: %q", ErrAuthPlugin, plugin)
		}
		nonce = bytes.TrimSuffix(nonce, []byte{0})
		return false, append([]byte{}, scramble(password, nonce)...), nil
	case headerAuthMore:
		if len(payload) == 2 && payload[1] == authFastOK {
			return false, nil, nil
		}
		if len(payload) == 2 && payload[1] == authFull {
			return false, append([]byte(password), 0), nil
		}
	}
	return false, nil, fmt.Errorf("%w: login response %#x", ErrMalformed, payload[0])
}

// parseGreeting returns the challenge of a version 10 handshake.
func parseGreeting(payload []byte) ([]byte, error) {
	if len(payload) == 0 || payload[0] != 10 {
		return nil, fmt.Errorf("%w: not a version 10 greeting", ErrMalformed)
	}
	_, rest, ok := bytes.Cut(payload[1:], []byte{0}) // server version
	// connection id 4, challenge 8, 0, capabilities 2, charset 1, status 2,
	// capabilities 2, challenge length 1, reserved 10, challenge 12, 0
	if !ok || len(rest) < 44 {
		return nil, fmt.Errorf("%w: greeting cut short", ErrMalformed)
	}
	caps := uint32(binary.LittleEndian.Uint16(rest[13:])) | uint32(binary.LittleEndian.Uint16(rest[18:]))<<16
	if caps&capsOurs != capsOurs {
		return nil, fmt.Errorf("%w: server capabilities %#x lack some of %#x", ErrMalformed, caps, capsOurs)
	}
	return append(bytes.Clone(rest[4:12]), rest[31:43]...), nil
}

// charsetAt is the offset of the character set in a login: behind capabilities u32 and packet
// size u32.
const charsetAt = 8

func loginResponse(user string, auth []byte) []byte {
	dst := binary.LittleEndian.AppendUint32(nil, capsOurs)
	dst = binary.LittleEndian.AppendUint32(dst, packetBytesMax)
	dst = append(dst, charsetUTF8MB4)
	dst = append(dst, make([]byte, 23)...)
	dst = append(append(dst, user...), 0)
	dst = append(append(dst, byte(len(auth))), auth...)
	return append(append(dst, authPlugin...), 0)
}

// welcome says how a client is let in.
type welcome struct {
	version      string
	connectionID uint32
	// verify tells whether a client's answer is a valid login of an account.
	verify func(got clientLogin, nonce []byte) bool
	// admit takes a place for a client whose login was verified; false = there is no place.
	admit func() bool
	// tls is for clients that ask for TLS; nil = TLS is not offered. tlsRequired refuses clients
	// that do not ask.
	tls         *tls.Config
	tlsRequired bool
	// caps are the capabilities that are offered beside capsOurs.
	caps uint32
	// turn waits until a TLS handshake may begin. The caller calls done after the handshake.
	turn func() (done func(), err error)
}

// greet is the server's side of a login where there is one account, without TLS.
func greet(w *wire, version string, connectionID uint32, user, password string) error {
	return welcome{version: version, connectionID: connectionID, verify: isAccount(user, password), admit: func() bool { return true }}.greet(w)
}

// isAccount returns a verify function for one account.
func isAccount(user, password string) func(got clientLogin, nonce []byte) bool {
	return func(got clientLogin, nonce []byte) bool {
		want := scramble(password, nonce)
		return subtle.ConstantTimeCompare([]byte(got.user), []byte(user))&subtle.ConstantTimeCompare(got.auth, want) == 1
	}
}

// greet runs the server side of the handshake: version 10 greeting, TLS if the client asks for
// it, caching_sha2_password. The scramble is always checked against the password or its hash,
// so the protocol's fast path is enough: greet never asks a client for its password in clear,
// with TLS or without. A client that fails gets error 1045, and greet returns errAccessDenied.
// A client without a place gets 1040, and greet returns errTooMany.
func (l welcome) greet(w *wire) error {
	nonce, err := newNonce()
	if err != nil {
		return fmt.Errorf("make challenge: %w", err)
	}
	caps := capsOurs | l.caps
	if l.tls != nil {
		caps |= capSSL
	}
	if err := w.command(greeting(l.version, l.connectionID, caps, nonce)); err != nil {
		return fmt.Errorf("send greeting: %w", err)
	}
	payload, err := l.readLogin(w)
	if err != nil {
		return err
	}
	got, err := parseLogin(payload)
	if err != nil {
		return err
	}
	if got.plugin != authPlugin {
		request := append([]byte{headerEOF}, authPlugin...)
		request = append(append(append(request, 0), nonce...), 0)
		if err := w.write(request); err != nil {
			return fmt.Errorf("send authentication switch: %w", err)
		}
		if got.auth, err = w.read(); err != nil {
			return fmt.Errorf("read authentication: %w", err)
		}
	}
	if !l.verify(got, nonce) {
		denied := &ServerError{Code: 1045, State: "28000", Message: fmt.Sprintf("Access denied for user '%s'", got.user)}
		return errors.Join(errAccessDenied, w.write(denied.payload()))
	}
	if !l.admit() {
		full := &ServerError{Code: 1040, State: "08004", Message: "Too many connections"}
		return errors.Join(errTooMany, w.write(full.payload()))
	}
	if err := w.write([]byte{headerAuthMore, authFastOK}, okPayload()); err != nil {
		return fmt.Errorf("send login response: %w", err)
	}
	return nil
}

// newNonce makes a challenge of 7-bit characters. NUL would end it early, and '$' separates
// fields in mysqld's own hashes: neither is in it.
func newNonce() ([]byte, error) {
	nonce := make([]byte, nonceBytes)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	for i, b := range nonce {
		if b &= 0x7f; b == 0 || b == '$' {
			b++
		}
		nonce[i] = b & 0x7f
	}
	return nonce, nil
}

func greeting(version string, connectionID, caps uint32, nonce []byte) []byte {
	dst := append([]byte{10}, version...)
	dst = append(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, connectionID)
	dst = append(append(dst, nonce[:8]...), 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(caps))
	dst = append(dst, charsetUTF8MB4, 2, 0) // status: autocommit
	dst = binary.LittleEndian.AppendUint16(dst, uint16(caps>>16))
	dst = append(dst, nonceBytes+1)
	dst = append(dst, make([]byte, 10)...)
	dst = append(append(dst, nonce[8:]...), 0)
	return append(append(dst, authPlugin...), 0)
}

// clientLogin is the content of a client's login packet.
type clientLogin struct {
	user, database, plugin string
	auth                   []byte
	charset                byte
}

// parseLogin decodes HandshakeResponse41. got.auth shares memory with payload.
func parseLogin(payload []byte) (got clientLogin, err error) {
	if len(payload) < 32 {
		return got, fmt.Errorf("%w: login of %d bytes", ErrMalformed, len(payload))
	}
	caps := binary.LittleEndian.Uint32(payload)
	if caps&(capProtocol41|capSecureConnection) != capProtocol41|capSecureConnection {
		return got, fmt.Errorf("%w: client capabilities %#x", ErrMalformed, caps)
	}
	name, rest, ok := bytes.Cut(payload[32:], []byte{0})
	if !ok || len(rest) == 0 || len(rest) < 1+int(rest[0]) {
		return got, fmt.Errorf("%w: login cut short", ErrMalformed)
	}
	got.user, got.charset, got.auth, rest = string(name), payload[charsetAt], rest[1:1+int(rest[0])], rest[1+int(rest[0]):]
	if caps&capConnectWithDB != 0 {
		var database []byte
		database, rest, _ = bytes.Cut(rest, []byte{0})
		got.database = string(database)
	}
	if caps&capPluginAuth != 0 {
		plugin, _, _ := bytes.Cut(rest, []byte{0})
		got.plugin = string(plugin)
	}
	return got, nil
}
