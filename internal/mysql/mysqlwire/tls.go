package mysqlwire

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
)

// sslRequestBytes is the length of a client's request for TLS: the beginning of a login,
// without the user's name. The login itself comes inside of TLS.
const sslRequestBytes = 32

// readLogin reads a client's login, inside of TLS if the client asks for that. A client that
// must use TLS and does not gets error 3159, and readLogin returns errNoTLS without a look at
// the login.
func (l welcome) readLogin(w *wire) ([]byte, error) {
	payload, err := w.read()
	if err != nil {
		return nil, fmt.Errorf("read login: %w", err)
	}
	switch asks := len(payload) >= 4 && binary.LittleEndian.Uint32(payload)&capSSL != 0; {
	case asks && (l.tls == nil || len(payload) != sslRequestBytes):
		return nil, fmt.Errorf("%w: a request for TLS, which was not offered, of %d bytes", ErrMalformed, len(payload))
	case asks:
		if err := l.startTLS(w); err != nil {
			return nil, err
		}
		if payload, err = w.read(); err != nil {
			return nil, fmt.Errorf("read login: %w", err)
		}
	case l.tlsRequired: // ER_SECURE_TRANSPORT_REQUIRED
		refused := &ServerError{Code: 3159, State: "HY000", Message: "Connections using insecure transport are prohibited: " +
			"quorate's readers have to use TLS from other hosts (SOURCE_SSL=1, --ssl-mode=REQUIRED)"}
		return nil, errors.Join(errNoTLS, w.write(refused.payload()))
	}
	return payload, nil
}

// startTLS begins TLS. Bytes that were read ahead belong to the TLS handshake: they are never
// taken for a packet in clear.
func (l welcome) startTLS(w *wire) error {
	done, err := l.turn()
	if err != nil {
		return fmt.Errorf("wait for TLS: %w", err)
	}
	defer done()
	conn := tls.Server(&aheadConn{w.conn, w.in.r}, l.tls)
	if err := conn.Handshake(); err != nil {
		return fmt.Errorf("begin TLS: %w", err)
	}
	w.conn, w.in = conn, newPacketReader(conn, w.in.r.Size(), w.in.payloadBytesMax)
	return nil
}

// aheadConn is a connection whose first bytes were read ahead.
type aheadConn struct {
	net.Conn
	ahead *bufio.Reader
}

func (c *aheadConn) Read(p []byte) (int, error) {
	if c.ahead.Buffered() > 0 {
		return c.ahead.Read(p)
	}
	return c.Conn.Read(p)
}

// tlsConfig returns the feed's TLS settings. The certificate is the one in force when a client
// connects.
func (r *ReadersConfig) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, // as mysqld
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c := r.Certificate(); c != nil {
				return c, nil
			}
			return nil, errors.New("there is no certificate")
		},
	}
}
