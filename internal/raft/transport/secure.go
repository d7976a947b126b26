package transport

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/sys/nowait"
	"github.com/quorate/quorate/internal/sys/strangers"
)

// A connection is plain, or TLS 1.3 around the same bytes. The first byte tells which: tlsRecord, or the first
// byte of greetingMagic. Each side knows the other one only by its key (package nodekey). Who signed the
// certificate, what it says and when it expires does not matter.

const (
	// tlsRecord is the first byte of a TLS connection: a handshake record (RFC 8446 §5.1).
	tlsRecord = 0x16
	// recordBytes is how much data goes into one record: the most that is allowed (RFC 8446 §5.1).
	recordBytes = 16 << 10
)

// plainMax is how long a connection without TLS lasts while TLS is wanted where possible (cluster.PeersBoth).
const plainMax = 5 * time.Second

// errNoKey means that the other side of a TLS connection shows no key.
var errNoKey = errors.New("transport: no key is shown")

// SetSecurity sets how connections are protected from now on. All connections of Raft are closed and made
// again. Streams are closed only if they have to be protected from now on.
func (t *Transport) SetSecurity(s cluster.PeerSecurity) {
	if before := t.security.Swap(&s); *before == s || t.key.Load() == nil {
		// Without a key no connection can be protected.
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	next := make(map[cluster.NodeID]*peer)
	for id, p := range t.allPeers() {
		next[id] = t.newPeer(p.Peer)
		if s != cluster.PeersRequire {
			next[id].follow(p)
		}
	}
	t.replacePeers(next)
}

// SetKey gives this node another key, which it shows from now on. Open connections stay.
func (t *Transport) SetKey(k *nodekey.Key) { t.key.Store(k) }

func (t *Transport) plainAllowed() bool { return *t.security.Load() != cluster.PeersRequire }

// holder returns the peer that has a key.
func (t *Transport) holder(k cluster.Key) (cluster.NodeID, bool) {
	for id, p := range t.allPeers() {
		if p.has(k) {
			return id, true
		}
	}
	return 0, false
}

// tlsConfig returns a configuration that checks the other side's key. The checks of package tls are off: they
// check names and times. No session is resumed: a resumed session would show no key.
func (t *Transport) tlsConfig(check func(cluster.Key) error) *tls.Config {
	own := t.key.Load().Certificate()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil },
		VerifyConnection: func(s tls.ConnectionState) error {
			key, err := t.keyOf(s.PeerCertificates)
			if err != nil {
				return err
			}
			return check(key)
		},
	}
}

// keyOf returns the name of the key that the other side shows.
func (t *Transport) keyOf(certs []*x509.Certificate) (cluster.Key, error) {
	if len(certs) == 0 {
		return "", errNoKey
	}
	if a := t.cfg.Authority; a != nil {
		if name := a.Name(certs); name != "" {
			return name, nil
		}
	}
	return nodekey.Of(certs[0])
}

// unwrap makes the answering side of TLS on an accepted connection, if the dialling node begins TLS. The key is
// that of the dialling node, "" on a plain connection.
func (t *Transport) unwrap(ctx context.Context, conn net.Conn, stay *strangers.Stay) (net.Conn, cluster.Key, error) {
	first, err := peek(conn)
	if err != nil {
		return nil, "", fmt.Errorf("read greeting: %w", err)
	}
	if first != tlsRecord {
		if !t.plainAllowed() {
			return nil, "", reject(CodeKey, "the connection came without TLS")
		}
		return conn, "", nil
	}
	if t.key.Load() == nil {
		return nil, "", reject(CodeKey, "the connection came with TLS, and this node has no key")
	}
	done, err := stay.Turn(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("wait for a TLS handshake: %w", err)
	}
	defer done()
	c := tls.Server(conn, t.tlsConfig(func(k cluster.Key) error {
		if !t.door.KnowsKey(k) {
			return reject(CodeKey, "the caller shows key %s, which no member has", k)
		}
		return nil
	}))
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, "", notProtected(err)
	}
	key, err := t.keyOf(c.ConnectionState().PeerCertificates)
	return abrupt{c, conn}, key, err
}

// abrupt is a TLS connection whose Close does not wait. Close of package tls says goodbye, for up to 5 s if the
// other side does not read. That goodbye is not needed: everything that is sent on these connections marks its
// own end.
type abrupt struct {
	*tls.Conn
	under net.Conn
}

// Close implements net.Conn.
func (c abrupt) Close() error { return c.under.Close() }

// notProtected is the error of a TLS handshake that a dialling node began. If the node sent something wrong,
// that is a rejection. If the node or the network ended the connection, it is none.
func notProtected(err error) error {
	if r, ok := errors.AsType[*RejectedError](err); ok {
		return r
	}
	op, ended := errors.AsType[*net.OpError](err)
	// Package tls has no other way to tell its own alerts.
	if ended && op.Op != "local error" || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("protect connection: %w", withoutPorts(err))
	}
	return reject(CodeKey, "the TLS handshake failed: the caller is not a quorate agent: %v", withoutPorts(err))
}

// wrap makes the dialling side of TLS on a connection to p. The other side has to show p's key.
func (t *Transport) wrap(ctx context.Context, conn net.Conn, p Peer) (net.Conn, error) {
	under := &sealed{Conn: conn}
	c := tls.Client(under, t.tlsConfig(func(k cluster.Key) error {
		if !p.has(k) {
			r := reject(CodeKey, "the node at %s shows key %s, which is not the key of node %q: %s", p.Addr, k, p.Name, p.keysText())
			r.By, r.Key = t.cfg.Identity.NodeName, k
			return r
		}
		return nil
	}))
	if err := c.HandshakeContext(ctx); err != nil {
		if r, ok := errors.AsType[*RejectedError](err); ok {
			return nil, r
		}
		return nil, fmt.Errorf("protect connection to %s: %w", p.Addr, withoutPorts(err))
	}
	return &tlsConn{Conn: c, under: under, records: bufio.NewWriterSize(c, recordBytes)}, nil
}

// keysText says by which keys the peer is known here.
func (p Peer) keysText() string {
	switch {
	case p.Key == "" && p.NextKey == "":
		return "no key of that node is known here"
	case p.Key == "" || p.NextKey == "":
		return "that node is known here by " + string(cmp.Or(p.Key, p.NextKey))
	}
	return fmt.Sprintf("that node is known here by %s, and is changing to %s", p.Key, p.NextKey)
}

// has tells whether a key is one of the peer's.
func (p Peer) has(k cluster.Key) bool { return k != "" && (k == p.Key || k == p.NextKey) }

// refusedKey returns the rejection that is meant if the peer ended TLS with an alert: the peer does not know
// this node's key. nil = there was no alert. Package tls has no other way to tell an alert.
func (t *Transport) refusedKey(err error, p Peer) *RejectedError {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return nil
	}
	key := t.key.Load().Name()
	r := reject(CodeKey, "the node does not know this node's key %s (%v)", key, op.Err)
	r.By, r.Key = p.Name, key
	return r
}

// tell gives a rejection the words that its sender keeps from a node whose key it does not know.
func (t *Transport) tell(r *RejectedError) {
	own := t.key.Load()
	if r.Text != "" || own == nil {
		return
	}
	r.Text = fmt.Sprintf("the node does not know this node's key %s", own.Name())
	if r.Code == CodeKey {
		r.Key = own.Name()
		return
	}
	r.Text += ", and begins with the keys in its configuration: correct node.key here, or [[member]] key there"
}

// tlsConn is a dialled TLS connection.
type tlsConn struct {
	*tls.Conn
	under *sealed
	// records collects the data of one record. Between calls of writeRecords it is empty.
	records *bufio.Writer
}

// sealed is the connection under TLS. While hold is set, what TLS writes is kept in out, so that Send can write
// as much of it as goes without waiting.
//
// A peer may ask for new keys, which TLS answers from within a read. If that happens between seal and the write
// of what seal returned, the records are in the wrong order, and the connection ends. No agent asks for new
// keys.
type sealed struct {
	net.Conn
	mu   sync.Mutex
	hold bool
	out  []byte
}

// Write implements net.Conn.
func (s *sealed) Write(b []byte) (int, error) {
	s.mu.Lock()
	hold := s.hold
	if hold {
		s.out = append(s.out, b...)
	}
	s.mu.Unlock()
	if hold {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// seal returns pieces as TLS records. The caller writes these to the connection under TLS.
func (c *tlsConn) seal(pieces net.Buffers) (net.Buffers, error) {
	c.under.mu.Lock()
	c.under.hold, c.under.out = true, c.under.out[:0]
	c.under.mu.Unlock()
	err := c.writeRecords(pieces)
	c.under.mu.Lock()
	defer c.under.mu.Unlock()
	c.under.hold = false
	if err != nil || len(c.under.out) == 0 {
		return nil, err
	}
	return net.Buffers{c.under.out}, nil
}

// Close implements net.Conn. Like that of abrupt, it does not wait.
func (c *tlsConn) Close() error { return c.under.Conn.Close() }

// writeRecords writes pieces in records that are as large as possible: a record for each piece would cost a
// system call and 22 bytes.
func (c *tlsConn) writeRecords(pieces net.Buffers) error {
	for _, piece := range pieces {
		if _, err := c.records.Write(piece); err != nil {
			return err
		}
	}
	return c.records.Flush()
}

func isPlain(conn net.Conn) bool {
	_, protected := conn.(*tlsConn)
	return !protected
}

// rawOf returns the kernel's connection to which Send writes; nil = conn is not over one.
func rawOf(conn net.Conn) syscall.RawConn {
	if c, ok := conn.(*tlsConn); ok {
		return nowait.Raw(c.under.Conn)
	}
	return nowait.Raw(conn)
}

// peek returns the first byte of a connection without reading it.
func peek(conn net.Conn) (byte, error) {
	raw := nowait.Raw(conn)
	if raw == nil {
		return 0, errors.New("no connection of the kernel's")
	}
	var first [1]byte
	var n int
	var failed error
	err := raw.Read(func(fd uintptr) (done bool) {
		n, _, failed = unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK)
		return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	case n == 0:
		return 0, errors.New("closed before the first byte")
	}
	return first[0], nil
}
