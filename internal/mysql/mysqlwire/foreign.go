package mysqlwire

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

const (
	// nativePlugin is the plugin of older accounts, and of accounts at managed services.
	nativePlugin = "mysql_native_password"
	// keyRequest asks caching_sha2_password for the server's public key.
	keyRequest = 2
	// silenceMax is how many heartbeat periods a source may be silent before it counts as gone.
	silenceMax = 4
)

// ForeignConfig says which server's binlog is read, and from which transaction on.
type ForeignConfig struct {
	// Addr is its host:port.
	Addr string
	// User and Password log in; the account needs REPLICATION SLAVE.
	User, Password string
	// TLS protects the connection; nil = no TLS. Then the password is sent encrypted with the
	// server's public key.
	TLS *tls.Config
	// ServerID and ReplicaUUID identify this reader. When a newer reader with the same UUID connects,
	// the server ends the older one.
	ServerID    uint32
	ReplicaUUID string
	// HeartbeatPeriod is the longest silence of an idle stream.
	HeartbeatPeriod time.Duration
	// Exclude has the transactions that the server does not send.
	Exclude *gtid.Set
}

// Foreign reads the binlog of a foreign server, as its replica.
type Foreign struct {
	conn net.Conn
	in   *packetReader
}

// sourceConn is a connection to a source, which may be silent for a limited time: each read renews the deadline. So
// an event of 1 GiB may take as long as a slow network needs. 0 = as the deadlines are set.
type sourceConn struct {
	net.Conn
	silence time.Duration
}

func (c *sourceConn) Read(p []byte) (int, error) {
	if c.silence > 0 {
		if err := c.SetDeadline(time.Now().Add(c.silence)); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && c.silence > 0 {
		err = fmt.Errorf("nothing received for %v: %w", c.silence, err)
	}
	return n, err
}

// DialForeign logs in and starts the dump. Errors of the server are *ServerError (1236 where it has purged
// transactions that are asked for).
func DialForeign(ctx context.Context, cfg ForeignConfig) (*Foreign, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("connect to the source: %w", err)
	}
	return openForeign(ctx, &sourceConn{Conn: conn}, cfg)
}

func openForeign(ctx context.Context, conn *sourceConn, cfg ForeignConfig) (*Foreign, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	w := &wire{conn: conn, in: newPacketReader(conn, streamBufferBytes, eventBytesMax)}
	err := startForeign(ctx, w, cfg)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("log in to the source: %w", err), w.conn.Close())
	}
	conn.silence = silenceMax * cfg.HeartbeatPeriod
	return &Foreign{conn: w.conn, in: w.in}, nil
}

func startForeign(ctx context.Context, w *wire, cfg ForeignConfig) error {
	if err := sourceLogin(ctx, w, cfg); err != nil {
		return err
	}
	// Each variable is set by its old name, too: servers before 8.0.26 know no other.
	settings := fmt.Sprintf("SET @master_binlog_checksum='CRC32', @source_binlog_checksum='CRC32', @master_heartbeat_period=%[1]d, "+
		"@source_heartbeat_period=%[1]d, @slave_uuid='%[2]s', @replica_uuid='%[2]s', SESSION net_write_timeout=%[3]d",
		cfg.HeartbeatPeriod.Nanoseconds(), cfg.ReplicaUUID, netWriteTimeoutSeconds)
	return w.startDump(settings, dumpRequest{serverID: cfg.ServerID, offset: binlogMagicBytes, exclude: cfg.Exclude})
}

// Next returns the next event, which is valid until the next call. It returns an error where the server
// sends one, ends the dump, or is silent for too long.
func (s *Foreign) Next() (binlog.Event, error) {
	payload, err := s.in.next()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the source's binlog: %w", err)
	case len(payload) == 0:
		return nil, fmt.Errorf("%w: empty packet in stream", ErrMalformed)
	case payload[0] == headerErr:
		return nil, parseServerError(payload)
	case isEOF(payload):
		return nil, errors.New("the source ended the dump")
	case payload[0] != headerOK:
		return nil, fmt.Errorf("%w: packet %#x in stream", ErrMalformed, payload[0])
	}
	return binlog.ParseEvent(payload[1:])
}

// Close ends the connection, and Next.
func (s *Foreign) Close() error { return s.conn.Close() }

// sourceLogin logs in to a server over the network.
func sourceLogin(ctx context.Context, w *wire, cfg ForeignConfig) error {
	nonce, err := w.greeted()
	if err != nil {
		return err
	}
	response := loginResponse(cfg.User, scramble(cfg.Password, nonce))
	if cfg.TLS != nil {
		caps := binary.LittleEndian.Uint32(response) | capSSL
		binary.LittleEndian.PutUint32(response, caps)
		if err := w.write(response[:sslRequestBytes]); err != nil {
			return fmt.Errorf("ask for TLS: %w", err)
		}
		conn := tls.Client(w.conn, cfg.TLS)
		if err := conn.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("begin TLS: %w", err)
		}
		w.conn, w.in = conn, newPacketReader(conn, streamBufferBytes, eventBytesMax)
	}
	if err := w.write(response); err != nil {
		return fmt.Errorf("send login: %w", err)
	}
	return w.authenticate(authStepsMax+2, func(payload []byte) (bool, []byte, error) { // a public key, too
		return sourceAuth(payload, &nonce, cfg)
	})
}

// sourceAuth is authStep for a connection that others may be able to read: it never sends the password
// in clear without TLS.
func sourceAuth(payload []byte, nonce *[]byte, cfg ForeignConfig) (done bool, answer []byte, err error) {
	switch {
	case len(payload) == 0:
	case payload[0] == headerEOF:
		plugin, challenge, _ := bytes.Cut(payload[1:], []byte{0})
		*nonce = bytes.Clone(bytes.TrimSuffix(challenge, []byte{0}))
		if string(plugin) == nativePlugin {
			return false, nativeScramble(cfg.Password, *nonce), nil
		}
	case len(payload) == 2 && payload[0] == headerAuthMore && payload[1] == authFull && cfg.TLS == nil:
		return false, []byte{keyRequest}, nil
	case payload[0] == headerAuthMore && len(payload) > 2: // the key
		answer, err := encrypted(cfg.Password, *nonce, payload[1:])
		return false, answer, err
	}
	return authStep(payload, cfg.Password)
}

// nativeScramble answers a challenge of mysql_native_password: XOR(SHA1(p), SHA1(nonce + SHA1(SHA1(p)))).
func nativeScramble(password string, nonce []byte) []byte {
	if password == "" {
		return []byte{}
	}
	once := sha1.Sum([]byte(password))
	twice := sha1.Sum(once[:])
	mask := sha1.Sum(append(append([]byte{}, nonce...), twice[:]...))
	subtle.XORBytes(mask[:], mask[:], once[:])
	return mask[:]
}

// encrypted returns the password, XORed with the nonce, encrypted with the server's public key
// (sql/auth/sha2_password.cc).
func encrypted(password string, nonce, key []byte) ([]byte, error) {
	block, _ := pem.Decode(key)
	if block == nil || len(nonce) == 0 {
		return nil, fmt.Errorf("%w: no public key", ErrMalformed)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	public, ok := parsed.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%w: the key is not RSA", ErrMalformed)
	}
	plain := append([]byte(password), 0)
	for i := range plain {
		plain[i] ^= nonce[i%len(nonce)]
	}
	out, err := rsa.EncryptOAEP(sha1.New(), rand.Reader, public, plain, nil)
	if err != nil {
		return nil, fmt.Errorf("encrypt the password: %w", err)
	}
	return out, nil
}
