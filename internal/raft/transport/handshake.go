package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/frame"
)

// Part of the format in every protocol version, do not change.
const (
	greetingMagic       = "QRTE"
	greetingHeaderBytes = 16
	greetingCRCOffset   = 12
	// greetingBodyBytesMax bounds an identity (three names) or a rejection.
	greetingBodyBytesMax = 4 << 10
)

// class is what a connection is for. Part of the format.
type class uint8

const (
	// classControl carries votes, heartbeats, responses and status.
	classControl class = 1
	// classAppend carries the log: MsgApp, in Raft's order.
	classAppend class = 2
	// classRoute becomes a raw stream after the handshake.
	classRoute class = 3
	// classBulk becomes a raw stream, too: for what agents copy from one another beside Raft.
	classBulk class = 4
	// classCall becomes a raw stream, too: for one question and one answer between agents.
	classCall class = 5
	// classRead is a route to a replica. It becomes a raw stream, too.
	classRead class = 6
)

// String names the class as it is logged.
func (c class) String() string {
	switch c {
	case classControl:
		return "control"
	case classAppend:
		return "append"
	case classRoute:
		return "route"
	case classBulk:
		return "bulk"
	case classCall:
		return "call"
	case classRead:
		return "read"
	}
	return fmt.Sprintf("class-%d", uint8(c))
}

func (c class) frameBytesMax() uint32 {
	if c == classAppend {
		return appendFrameBytesMax
	}
	return controlFrameBytesMax
}

// Identity is what a node says of itself.
type Identity struct {
	ClusterID   uint64
	ClusterName string
	Node        cluster.NodeID
	NodeName    string
	// Instance is the random id of the node's data directory.
	Instance [16]byte
	// Version is the quorate version, for messages to people.
	Version string
}

// Empty tells whether the node has no data directory yet, or an empty one.
func (id Identity) Empty() bool { return id.Instance == [16]byte{} }

// errGreeting means that the other side sent something else than a greeting.
var errGreeting = errors.New("transport: malformed greeting")

// greeting is the one message that each side of a handshake sends.
type greeting struct {
	// version is the lowest version that the sender speaks on this connection; in an acceptance, the chosen
	// version.
	version uint16
	// most is the highest version that the sender speaks. Agents of version 1 send 0, and ignore what others
	// send there.
	most uint8
	// word is the class in a hello and the Code in an answer.
	word uint8
	body []byte
}

// speaks returns the versions that a hello's sender speaks.
func (g greeting) speaks() versions { return versions{g.version, max(g.version, uint16(g.most))} }

func appendGreeting(dst []byte, g greeting) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = append(dst, greetingMagic...)
	dst = le.AppendUint16(dst, g.version)
	dst = append(dst, g.word, g.most)
	dst = le.AppendUint32(dst, uint32(len(g.body)))
	dst = le.AppendUint32(dst, uint32(frame.CRC(0).Add(dst[start:]).Add(g.body)))
	return append(dst, g.body...)
}

// readGreeting reads exactly one greeting and not a byte more: the raw bytes of a routed stream may follow in
// r. It returns errGreeting for bytes that are no greeting, or r's error.
func readGreeting(r io.Reader) (greeting, error) {
	le := binary.LittleEndian
	var head [greetingHeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return greeting{}, err
	}
	if string(head[:4]) != greetingMagic {
		return greeting{}, fmt.Errorf("%w: starts with %q", errGreeting, head[:4])
	}
	length := le.Uint32(head[8:])
	if length > greetingBodyBytesMax {
		return greeting{}, fmt.Errorf("%w: body of %d bytes", errGreeting, length)
	}
	g := greeting{version: le.Uint16(head[4:]), word: head[6], most: head[7], body: make([]byte, length)}
	if _, err := io.ReadFull(r, g.body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return greeting{}, err
	}
	crc := frame.CRC(0).Add(head[:greetingCRCOffset]).Add(g.body)
	if want := frame.CRC(le.Uint32(head[greetingCRCOffset:])); crc != want {
		return greeting{}, fmt.Errorf("%w: CRC32C %08x, computed %08x", errGreeting, want, crc)
	}
	return g, nil
}

// hello is the greeting of the dialling node.
type hello struct {
	class class
	// target is the node that the dialler wants to reach.
	target cluster.NodeID
	id     Identity
	// speaks are the versions in which the connection may go on.
	speaks versions
	// key is the key that was shown. It is not part of the greeting; "" = none.
	key cluster.Key
}

func encodeHello(h hello) []byte {
	body := binary.LittleEndian.AppendUint64(nil, uint64(h.target))
	body = appendIdentity(body, h.id)
	return appendGreeting(nil, greeting{version: h.speaks.least, most: uint8(h.speaks.most), word: uint8(h.class), body: body})
}

// parseHello decodes a greeting for which version was chosen. The body is the same in all versions up to now.
func parseHello(g greeting, version uint16) (hello, error) {
	h := hello{class: class(g.word), speaks: g.speaks()}
	if h.class < classControl || h.class > classRead || h.class.since() > version {
		return hello{}, fmt.Errorf("%w: unknown %v", errGreeting, h.class)
	}
	if len(g.body) < 8 {
		return hello{}, fmt.Errorf("%w: body of %d bytes", errGreeting, len(g.body))
	}
	h.target = cluster.NodeID(binary.LittleEndian.Uint64(g.body))
	var err error
	h.id, err = parseIdentity(g.body[8:])
	return h, err
}

func appendIdentity(dst []byte, id Identity) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint64(dst, id.ClusterID)
	dst = le.AppendUint64(dst, uint64(id.Node))
	dst = append(dst, id.Instance[:]...)
	for _, s := range []string{id.ClusterName, id.NodeName, id.Version} {
		dst = le.AppendUint16(dst, uint16(len(s)))
		dst = append(dst, s...)
	}
	return dst
}

func parseIdentity(b []byte) (Identity, error) {
	var id Identity
	le := binary.LittleEndian
	if len(b) < 32 {
		return id, fmt.Errorf("%w: identity of %d bytes", errGreeting, len(b))
	}
	id.ClusterID, id.Node = le.Uint64(b), cluster.NodeID(le.Uint64(b[8:]))
	b = b[16+copy(id.Instance[:], b[16:]):]
	for _, s := range []*string{&id.ClusterName, &id.NodeName, &id.Version} {
		if len(b) < 2 || len(b)-2 < int(le.Uint16(b)) {
			return id, fmt.Errorf("%w: identity ends within a name", errGreeting)
		}
		n := 2 + int(le.Uint16(b))
		*s, b = string(b[2:n]), b[n:]
	}
	if len(b) != 0 {
		return id, fmt.Errorf("%w: %d bytes behind the identity", errGreeting, len(b))
	}
	return id, nil
}

// greet makes the dialling side of the handshake on conn. It returns a *RejectedError if either side refuses.
func (t *Transport) greet(conn net.Conn, p Peer, c class) (accepted, error) {
	speaks := t.speaks.from(c)
	msg := encodeHello(hello{class: c, target: p.ID, id: t.cfg.Identity, speaks: speaks})
	if _, err := conn.Write(msg); err != nil {
		return accepted{}, fmt.Errorf("send greeting to %s: %w", p.Addr, withoutPorts(err))
	}
	g, err := readGreeting(conn)
	if err != nil {
		if r := t.refusedKey(err, p); r != nil {
			return accepted{}, r
		}
		if isPlain(conn) && (errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)) {
			err = errUnanswered
		}
		return accepted{}, fmt.Errorf("read answer to greeting from %s: %w", p.Addr, withoutPorts(err))
	}
	if Code(g.word) != codeAccepted {
		r, err := parseRejection(g)
		if err != nil {
			return accepted{}, fmt.Errorf("read answer to greeting: %w", err)
		}
		r.By = p.Name
		if !isPlain(conn) {
			t.tell(r)
		}
		return accepted{}, r
	}
	if !speaks.has(g.version) {
		return accepted{}, reject(CodeVersion, "node %q chose protocol version %d, and node %q (quorate %s) speaks %v",
			p.Name, g.version, t.cfg.Identity.NodeName, t.cfg.Identity.Version, speaks)
	}
	id, err := parseIdentity(g.body)
	if err != nil {
		return accepted{}, fmt.Errorf("read answer to greeting: %w", err)
	}
	if r := t.door.Accept(id, p); r != nil {
		return accepted{}, r
	}
	return accepted{g.version, id}, nil
}

// withoutPorts returns the cause of a network error without the addresses of the connection. The connection's
// own port differs each time, so the same trouble would look different each time in the log.
func withoutPorts(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// welcome makes the answering side of the handshake on conn, whose other side has shown a key. When it rejects,
// it sends the rejection and returns it as a *RejectedError.
func (t *Transport) welcome(conn net.Conn, key cluster.Key) (hello, error) {
	g, err := readGreeting(conn)
	if err != nil {
		return hello{}, fmt.Errorf("read greeting: %w", err)
	}
	h, version, rejected := t.examine(g, key)
	if rejected != nil && !t.door.tells(key) {
		untold := *rejected
		untold.Untold, rejected = true, &untold
	}
	t.heard(conn, h, rejected)
	answer := greeting{version: version, most: uint8(t.speaks.most), word: uint8(codeAccepted), body: appendIdentity(nil, t.cfg.Identity)}
	if rejected != nil {
		answer = rejected.greeting(version)
	}
	if _, err := conn.Write(appendGreeting(nil, answer)); err != nil {
		return hello{}, fmt.Errorf("answer greeting: %w", err)
	}
	if rejected != nil {
		return hello{}, rejected
	}
	return h, nil
}

// heard tells a Hearer who dials.
func (t *Transport) heard(conn net.Conn, h hello, rejected *RejectedError) {
	self := t.cfg.Identity
	if h.id.ClusterID != self.ClusterID || h.target != self.Node || h.id.Node == self.Node {
		return
	}
	if hearer, ok := t.cfg.Handler.(Hearer); ok && hearer.Hears() {
		hearer.Heard(h.id, conn.RemoteAddr(), rejected)
	}
}

// examine makes all checks of the answering side except those of TLS, and chooses the version; 0 = the sides
// have no version in common. The hello is zero if it cannot be read.
func (t *Transport) examine(g greeting, key cluster.Key) (hello, uint16, *RejectedError) {
	self := t.cfg.Identity
	version, ok := t.speaks.common(g.speaks())
	if !ok {
		// The body of another version cannot be read, so the text cannot name the dialling node. That node
		// knows its own name.
		return hello{}, 0, reject(CodeVersion, "the dialling node speaks %v, and node %q (quorate %s) speaks %v",
			g.speaks(), self.NodeName, self.Version, t.speaks)
	}
	h, err := parseHello(g, version)
	if err != nil {
		return hello{}, version, reject(CodeMalformed, "node %q could not read the greeting: %v", self.NodeName, err)
	}
	return h, version, t.door.Admit(h.target, h.id, key, h.class == classCall)
}
