package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/frame"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// The classes of connections (docs/formats.md, "Greeting").
const (
	classControl byte = 1
	classAppend  byte = 2
	classRoute   byte = 3
	classBulk    byte = 4
	classCall    byte = 5
	classRead    byte = 6
)

// Codes of rejections.
const (
	codeRemoved   = 8
	codeRebuild   = 9
	codeRecovered = 10
	codeReseed    = 11
	codeEmpty     = 12
	codeKey       = 13
)

// attacker is an address from which nodes are attacked. It builds its messages by docs/formats.md, because
// package transport cannot send what agents refuse.
type attacker net.IP

// attackerAt returns an address that no other attack uses: so all lines in the log about it belong to one attack.
func attackerAt(attack, n int) attacker { return attacker(net.IPv4(127, 66, byte(attack), byte(n))) }

func (a attacker) String() string { return net.IP(a).String() }

func (a attacker) dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IP(a)}}
	return d.DialContext(ctx, "tcp", addr)
}

// open connects to a node, over TLS unless conf is nil, and sends the bytes in says.
func (a attacker) open(ctx context.Context, addr string, conf *tls.Config, says []byte) (net.Conn, error) {
	conn, err := a.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return conn, err
	}
	if conf != nil {
		conn = tls.Client(conn, conf)
	}
	_, err = conn.Write(says)
	return conn, err
}

// hears connects, sends the bytes in says, and returns the answer: at most one greeting.
func (a attacker) hears(t *testing.T, ctx context.Context, addr string, conf *tls.Config, says []byte) (told greeting) {
	t.Helper()
	conn, err := a.open(ctx, addr, conf, says)
	if conn == nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err != nil { // the handshake of TLS came to nothing
		return greeting{code: -1}
	}
	return readGreeting(conn)
}

// Types of the frames of copies (docs/formats.md, "Bulk streams").
const (
	copyPut     byte = 1
	copyGet     byte = 2
	copyEntries byte = 3
	copyReady   byte = 5
	copyData    byte = 6
	copyEnd     byte = 7
	copyDone    byte = 8
	copyRefused byte = 10
	copyFollow  byte = 11
)

// copyFrame is a frame of a copy, with numbers.
func copyFrame(kind byte, numbers ...uint64) []byte {
	b := make([]byte, frame.HeaderBytes)
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	frame.Format{Magic: 0x4251, Version: 1}.Fill(b, kind)
	return b
}

// copies asks for a copy, and returns the type of the first frame that comes (0 = none), and all bytes.
func (a attacker) copies(t *testing.T, ctx context.Context, addr string, conf *tls.Config, hello, request []byte) (kind byte, all []byte) {
	t.Helper()
	conn := a.welcomed(t, ctx, addr, conf, hello)
	if conn == nil {
		return 0, nil
	}
	defer conn.Close()
	if _, err := conn.Write(request); err != nil {
		return 0, nil
	}
	room := func(uint8, uint32) ([]byte, error) { return nil, nil }
	r := frame.NewReader(conn, frame.Format{Magic: 0x4251, Version: 1}, errors.New("no frame"), room)
	for len(all) < 8<<20 {
		k, payload, err := r.Next()
		if err != nil {
			break
		}
		if kind == 0 {
			kind = k
		}
		all = append(all, payload...)
		if k == copyEnd || k == copyDone || k == copyRefused {
			break
		}
	}
	return kind, all
}

// orders makes an operator's request, and returns the answer; the zero Answer if none comes.
func (a attacker) orders(t *testing.T, ctx context.Context, addr string, conf *tls.Config, hello []byte, name, args string) (answer control.Answer) {
	t.Helper()
	conn := a.welcomed(t, ctx, addr, conf, hello)
	if conn == nil {
		return answer
	}
	defer conn.Close()
	err := conn.SetDeadline(time.Now().Add(30 * time.Second)) // some take long
	if err == nil {
		err = control.WriteRequest(conn, control.Request{Name: name, By: "root@somewhere", Args: json.RawMessage(args), From: "somebody"})
	}
	if err == nil {
		answer, err = control.ReadAnswer(conn)
	}
	if err != nil {
		t.Logf("%s: %v", name, err)
	}
	return answer
}

// welcomed returns a connection after a successful handshake, else nil.
func (a attacker) welcomed(t *testing.T, ctx context.Context, addr string, conf *tls.Config, hello []byte) net.Conn {
	t.Helper()
	conn, err := a.open(ctx, addr, conf, hello)
	if conn == nil {
		t.Fatal(err)
	}
	if err != nil || readGreeting(conn).code != 0 {
		_ = conn.Close()
		return nil
	}
	return conn
}

// holds opens a connection, says nothing on it, and opens it again once it is closed, until ctx ends.
func (a attacker) holds(ctx context.Context, addr string, conf *tls.Config, hello []byte) {
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		if conn, err := a.open(ctx, addr, conf, hello); conn != nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			if err == nil && conn.SetDeadline(time.Time{}) == nil {
				_, _ = io.Copy(io.Discard, conn)
			}
			stop()
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
		case <-pace.C:
		}
	}
}

// greeting is the first message of a node.
type greeting struct {
	code int // -1: nothing was said
	text string
}

func readGreeting(conn net.Conn) greeting {
	head := make([]byte, 16)
	if n, err := io.ReadFull(conn, head); err != nil || string(head[:4]) != "QRTE" {
		if n == 0 || n == 7 && head[0] == 0x15 { // an alert of TLS (RFC 8446 §6)
			return greeting{code: -1}
		}
		return greeting{code: -2, text: string(head[:n])}
	}
	text, err := io.ReadAll(io.LimitReader(conn, int64(binary.LittleEndian.Uint32(head[8:]))))
	if err != nil && len(text) == 0 {
		text = []byte(err.Error())
	}
	return greeting{code: int(head[6]), text: string(text)}
}

// withCRC returns a greeting of the protocol versions 3 and 4.
func withCRC(word byte, body []byte) []byte {
	le := binary.LittleEndian
	b := append([]byte("QRTE"), 3, 0, word, 4)
	b = le.AppendUint32(b, uint32(len(body)))
	b = le.AppendUint32(b, uint32(frame.CRC(0).Add(b).Add(body)))
	return append(b, body...)
}

// claim is who an attacker says it is.
type claim struct{ datadir.Identity }

// claimOf is everything that a node says about itself. An attacker can compute most of it from the members' names, and
// reads the rest from the node's disk.
func (f *fixture) claimOf(t *testing.T, i int) (c claim) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.DataDir(i), datadir.IdentityFile))
	if err == nil {
		err = json.Unmarshal(text, &c.Identity)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// elsewhere is the same node in another cluster.
func (c claim) elsewhere() claim {
	c.Cluster, c.ClusterID = "other", 1
	return c
}

// emptied is the same node with an empty data directory.
func (c claim) emptied() claim {
	c.Instance = strings.Repeat("0", len(c.Instance))
	return c
}

func (c claim) ofAnother() claim {
	c = c.elsewhere()
	c.Node, c.NodeID = "x", 2
	return c
}

// hello is a greeting to the node with an id.
func (c claim) hello(class byte, to uint64) []byte {
	le := binary.LittleEndian
	body := le.AppendUint64(nil, to)
	body = le.AppendUint64(body, c.ClusterID)
	body = le.AppendUint64(body, c.NodeID)
	body = fmt.Appendf(body, "%s", fromHex(c.Instance))
	for _, s := range []string{c.Cluster, c.Node, "v9"} {
		body = append(le.AppendUint16(body, uint16(len(s))), s...)
	}
	return withCRC(class, body)
}

func fromHex(instance string) (b []byte) {
	_, _ = fmt.Sscanf(instance, "%x", &b)
	return b
}

// shows is TLS with a certificate, or with none; it accepts any certificate of the other side.
func shows(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, Certificates: certs}
}

// certificateOf is the certificate that a node shows.
func (f *fixture) certificateOf(t *testing.T, i int) tls.Certificate {
	t.Helper()
	k, err := nodekey.Load(f.keyFile(i))
	if err != nil {
		t.Fatal(err)
	}
	return *k.Certificate()
}

// member is TLS with the key of a node; nil if members are accepted without TLS.
func (f *attacked) member(t *testing.T, i int) *tls.Config {
	t.Helper()
	if f.plain {
		return nil
	}
	return shows(f.certificateOf(t, i))
}

// stranger is TLS with a key that nobody knows.
func stranger(t *testing.T) *tls.Config {
	t.Helper()
	k, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	return shows(*k.Certificate())
}

// saysNothing returns an error if a certificate, which everybody can see, tells something about the cluster.
func saysNothing(cert *x509.Certificate) error {
	if s := cert.Subject.String() + cert.Issuer.String(); s != "" || len(cert.DNSNames)+len(cert.URIs)+len(cert.IPAddresses)+len(cert.EmailAddresses) > 0 {
		return fmt.Errorf("the certificate that everybody sees says %q, %v, %v", s, cert.DNSNames, cert.URIs)
	}
	return nil
}

// mark is a position in the log of a node: its length at some moment.
type mark struct {
	node int
	at   int64
}

func (f *fixture) mark(t *testing.T, i int) mark {
	t.Helper()
	info, err := os.Stat(f.Logs(i))
	if err != nil {
		t.Fatal(err)
	}
	return mark{i, info.Size()}
}

// since returns the lines with a text that a node has logged since a mark.
func (f *fixture) since(t *testing.T, m mark, text string) (lines []string) {
	t.Helper()
	all, err := os.ReadFile(f.Logs(m.node))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all[min(m.at, int64(len(all))):])) {
		if bytes.Contains([]byte(line), []byte(text)) {
			lines = append(lines, line)
		}
	}
	return lines
}

// logged waits for a line with a text, and fails the test if there are more than linesMax.
func (f *fixture) logged(t *testing.T, ctx context.Context, m mark, text string, linesMax int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var lines []string
	if err := devcluster.Poll(ctx, fmt.Sprintf("the log of %s has %q", f.Name(m.node), text), func(context.Context) (bool, string, error) {
		lines = f.since(t, m, text)
		return len(lines) > 0, "it has not", nil
	}); err != nil {
		t.Error(err)
	}
	if len(lines) > linesMax {
		t.Errorf("the log of %s has %d lines with %q", f.Name(m.node), len(lines), text)
	}
}
