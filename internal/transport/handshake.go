package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// protocolVersion is the version of everything behind the greeting's fixed
// part, which itself never changes.
const protocolVersion = 1

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
	// classAppend carries the log: MsgApp and MsgSnap, in Raft's order.
	classAppend class = 2
	// classRoute becomes a raw stream after the handshake.
	classRoute class = 3
	// classBulk as well: what agents copy from one another beside Raft.
	classBulk class = 4
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
	}
	return fmt.Sprintf("class-%d", uint8(c))
}

func (c class) frameBytesMax() uint32 {
	if c == classAppend {
		return appendFrameBytesMax
	}
	return controlFrameBytesMax
}

// Identity is who a node says it is.
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

// Code says why a connection was rejected. Part of the format.
type Code uint8

// The reasons for a rejection. Part of the format.
const (
	// CodeVersion: the nodes speak different protocol versions.
	CodeVersion Code = 1
	// CodeCluster: the nodes belong to different clusters.
	CodeCluster Code = 2
	// CodeTarget: another node answers at this address.
	CodeTarget Code = 3
	// CodeDuplicate: the dialling node announced the answering node's own id or name.
	CodeDuplicate Code = 4
	// CodeUnknown: the answering node's configuration has no such node.
	CodeUnknown Code = 5
	// CodePeer: Handler.CheckPeer refused.
	CodePeer Code = 6
	// CodeMalformed: the greeting was complete, but made no sense.
	CodeMalformed Code = 7
)

// codeAccepted in an answer means that the connection is open.
const codeAccepted Code = 0

// RejectedError is the reason why two nodes do not talk to each other. Trying
// again is of no use until somebody changes a configuration.
type RejectedError struct {
	Code Code
	// Text is one sentence for people.
	Text string
}

// Error returns the sentence.
func (e *RejectedError) Error() string { return "connection rejected: " + e.Text }

func reject(c Code, format string, args ...any) *RejectedError {
	return &RejectedError{Code: c, Text: fmt.Sprintf(format, args...)}
}

// errGreeting means that the other side's greeting was none.
var errGreeting = errors.New("transport: malformed greeting")

// greeting is the one message that each side of a handshake sends.
type greeting struct {
	version uint16
	// word is the class in a hello and the Code in an answer.
	word uint8
	body []byte
}

func appendGreeting(dst []byte, g greeting) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = append(dst, greetingMagic...)
	dst = le.AppendUint16(dst, g.version)
	dst = append(dst, g.word, 0)
	dst = le.AppendUint32(dst, uint32(len(g.body)))
	crc := crc32.Update(crc32.Checksum(dst[start:], castagnoli()), castagnoli(), g.body)
	dst = le.AppendUint32(dst, crc)
	return append(dst, g.body...)
}

// readGreeting reads exactly one greeting and not a byte more: behind it, r
// may carry the raw bytes of a routed stream. It returns errGreeting for bytes
// that are none, or r's error.
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
	g := greeting{version: le.Uint16(head[4:]), word: head[6], body: make([]byte, length)}
	if _, err := io.ReadFull(r, g.body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return greeting{}, err
	}
	crc := crc32.Update(crc32.Checksum(head[:greetingCRCOffset], castagnoli()), castagnoli(), g.body)
	if want := le.Uint32(head[greetingCRCOffset:]); crc != want {
		return greeting{}, fmt.Errorf("%w: CRC32C %08x, computed %08x", errGreeting, want, crc)
	}
	return g, nil
}

// hello is what the dialling node says.
type hello struct {
	class class
	// target is the node that it wants to reach.
	target cluster.NodeID
	id     Identity
}

func appendHello(dst []byte, h hello) []byte {
	body := binary.LittleEndian.AppendUint64(nil, uint64(h.target))
	body = appendIdentity(body, h.id)
	return appendGreeting(dst, greeting{version: protocolVersion, word: uint8(h.class), body: body})
}

// parseHello decodes a greeting of this protocol version.
func parseHello(g greeting) (hello, error) {
	h := hello{class: class(g.word)}
	if h.class < classControl || h.class > classBulk {
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

// judge decides on a hello, apart from the protocol version and CheckPeer. It
// returns nil for a peer that is welcome.
func (t *Transport) judge(h hello) *RejectedError {
	self := t.cfg.Identity
	if r := t.judgeCluster(h.id); r != nil {
		return r
	}
	if h.target != self.Node {
		return reject(CodeTarget, "node %q looked for node %d at this address, where node %q (id %d) answers",
			h.id.NodeName, h.target, self.NodeName, self.Node)
	}
	if h.id.Node == self.Node || h.id.NodeName == self.NodeName {
		return reject(CodeDuplicate, "another node already uses the name %q or the id %d: this one",
			self.NodeName, self.Node)
	}
	return t.judgeMember(h.id)
}

// judgeAnswer decides on the identity of the node that answered our dial to p.
func (t *Transport) judgeAnswer(id Identity, p Peer) *RejectedError {
	if r := t.judgeCluster(id); r != nil {
		return r
	}
	if id.Node != p.ID {
		return reject(CodeTarget, "node %q (id %d) answers at %s, the address of node %q (id %d)",
			id.NodeName, id.Node, p.Addr, p.Name, p.ID)
	}
	return t.judgeMember(id)
}

func (t *Transport) judgeCluster(id Identity) *RejectedError {
	self := t.cfg.Identity
	if id.ClusterID == self.ClusterID {
		return nil
	}
	return reject(CodeCluster, "node %q belongs to cluster %q (id %x), this is cluster %q (id %x)",
		id.NodeName, id.ClusterName, id.ClusterID, self.ClusterName, self.ClusterID)
}

func (t *Transport) judgeMember(id Identity) *RejectedError {
	self := t.cfg.Identity
	p := t.peers[id.Node]
	if p == nil {
		return reject(CodeUnknown, "node %q (id %d) is not a member of cluster %q as node %q knows it",
			id.NodeName, id.Node, self.ClusterName, self.NodeName)
	}
	if p.Name != id.NodeName {
		return reject(CodeUnknown, "node id %d is called %q here, not %q", id.Node, p.Name, id.NodeName)
	}
	return nil
}

// greet is the dialling side of the handshake on conn. It returns a
// *RejectedError if either side refuses.
func (t *Transport) greet(conn net.Conn, p Peer, c class) error {
	msg := appendHello(nil, hello{class: c, target: p.ID, id: t.cfg.Identity})
	if _, err := conn.Write(msg); err != nil {
		return fmt.Errorf("send greeting to %s: %w", p.Addr, withoutPorts(err))
	}
	g, err := readGreeting(conn)
	if err != nil {
		return fmt.Errorf("read answer to greeting from %s: %w", p.Addr, withoutPorts(err))
	}
	if code := Code(g.word); code != codeAccepted {
		return &RejectedError{Code: code, Text: strings.ToValidUTF8(string(g.body), "?")}
	}
	if g.version != protocolVersion {
		return reject(CodeVersion, "node %q speaks protocol version %d, node %q (quorate %s) version %d",
			p.Name, g.version, t.cfg.Identity.NodeName, t.cfg.Identity.Version, protocolVersion)
	}
	id, err := parseIdentity(g.body)
	if err != nil {
		return fmt.Errorf("read answer to greeting: %w", err)
	}
	if r := t.judgeAnswer(id, p); r != nil {
		return r
	}
	if err := t.cfg.Handler.CheckPeer(id); err != nil {
		return &RejectedError{Code: CodePeer, Text: err.Error()}
	}
	return nil
}

// withoutPorts returns the cause of a network error without the addresses of
// the connection: its own port differs each time, so that the same trouble
// would never look the same in the log.
func withoutPorts(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// welcome is the answering side of the handshake on conn. It returns a
// *RejectedError after it has sent one.
func (t *Transport) welcome(conn net.Conn) (hello, error) {
	g, err := readGreeting(conn)
	if err != nil {
		return hello{}, fmt.Errorf("read greeting: %w", err)
	}
	h, rejected := t.examine(g)
	answer := greeting{version: protocolVersion, word: uint8(codeAccepted), body: appendIdentity(nil, t.cfg.Identity)}
	if rejected != nil {
		text := rejected.Text[:min(len(rejected.Text), greetingBodyBytesMax)]
		answer.word, answer.body = uint8(rejected.Code), []byte(text)
	}
	if _, err := conn.Write(appendGreeting(nil, answer)); err != nil {
		return hello{}, fmt.Errorf("answer greeting: %w", err)
	}
	if rejected != nil {
		return hello{}, rejected
	}
	return h, nil
}

// examine makes all the checks of the answering side.
func (t *Transport) examine(g greeting) (hello, *RejectedError) {
	self := t.cfg.Identity
	if g.version != protocolVersion {
		// The body of another version cannot be read, so the text cannot say
		// which node it is; the dialling node knows its own name.
		return hello{}, reject(CodeVersion, "the dialling node speaks protocol version %d, node %q (quorate %s) version %d",
			g.version, self.NodeName, self.Version, protocolVersion)
	}
	h, err := parseHello(g)
	if err != nil {
		return hello{}, reject(CodeMalformed, "node %q could not read the greeting: %v", self.NodeName, err)
	}
	if r := t.judge(h); r != nil {
		return hello{}, r
	}
	if err := t.cfg.Handler.CheckPeer(h.id); err != nil {
		return hello{}, &RejectedError{Code: CodePeer, Text: err.Error()}
	}
	return h, nil
}
