package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/strangers"
)

// stayers opens silent connections to a node, all from one address that nobody else uses.
func stayers(t *testing.T, n *node, count int) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}}
	for range count {
		conn, err := d.Dial("tcp", n.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// Silent connections do not keep a peer out, and are closed when others come.
func TestSilentConnectionsKeepNoPeerOut(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.tune.handshakeTimeout = time.Minute
	a.start(t)
	const more = 20
	stayers(t, a, strangersMax+more)
	_, g := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classControl)))
	if Code(g.word) != codeAccepted {
		t.Fatal("the peer was rejected")
	}
	if got := a.Stats().HandshakesExpelled; got != more+1 {
		t.Errorf("%d were expelled, want %d", got, more+1)
	}
}

// TestHeldClientsExpelNobody: once there is a primary, a peer opens a route for each client that it held, all at
// once. None of them is expelled.
func TestHeldClientsExpelNobody(t *testing.T) {
	const held = 1000
	a, b := pair(t, func(a, b *node) {
		secured(t, cluster.PeersRequire, a, b)
		a.routes = make(chan net.Conn, held)
	})
	var all sync.WaitGroup
	for range held {
		all.Go(func() {
			conn, err := b.DialRoute(t.Context(), nodeA)
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		})
	}
	all.Wait()
	for range held {
		_ = within(t, a.routes, "a route").Close()
	}
	if s := a.Stats(); s.HandshakesExpelled > 0 || s.HandshakesFailed > 0 {
		t.Errorf("%d were expelled, %d have failed", s.HandshakesExpelled, s.HandshakesFailed)
	}
}

// TestRoutesOpenInTurn: at most routesOpenedMax routes to a peer are being opened at a time, with those for clients
// that only read. A client that is gone does not wait for its turn.
func TestRoutesOpenInTurn(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	for range routesOpenedMax {
		a.Transport.peer(nodeB).opening <- struct{}{}
	}
	ctx, end := context.WithCancelCause(t.Context())
	waits := errors.New("it waits")
	end(waits)
	for name, dial := range map[string]func(context.Context, cluster.NodeID) (net.Conn, error){"route": a.DialRoute, "read": a.DialRead} {
		if _, err := dial(ctx, nodeB); !errors.Is(err, waits) {
			t.Errorf("%s: it does not wait: %v", name, err)
		}
	}
}

// TestHandshakesOfStrangersTakeTurns: an address that is no peer's has only a few TLS handshakes under way at a
// time. A peer does not wait for them.
func TestHandshakesOfStrangersTakeTurns(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	secured(t, cluster.PeersRequire, a)
	a.tune.handshakeTimeout = time.Minute
	looked, goOn := make(chan struct{}, 64), make(chan struct{})
	a.door.Holder = func(cluster.Key) (cluster.NodeID, bool) { // it is called in the middle of a handshake
		looked <- struct{}{}
		<-goOn
		return 0, false
	}
	a.start(t)
	defer close(goOn)
	shake := func(ip net.IP, limit time.Duration) error {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}).Dial("tcp", a.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(limit))
		c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*newKey(t).Certificate()}})
		return c.Handshake() // it ends on this side before the other one has looked at the key
	}
	stranger := net.IPv4(127, 0, 0, 66)
	for range strangersTurns {
		if err := shake(stranger, patience); err != nil {
			t.Fatal(err)
		}
		within(t, looked, "a handshake")
	}
	if err := shake(stranger, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one more handshake: %v", err)
	}
	if err := shake(net.IPv4(127, 0, 0, 1), patience); err != nil {
		t.Errorf("from a peer's address: %v", err)
	}
}

// TestFloodFromManyAddressesKeepsNoMemberOut: TLS handshakes with strangers begin at a bounded pace, and a bounded
// number of strangers waits for its turn. A peer neither waits nor is turned away.
func TestFloodFromManyAddressesKeepsNoMemberOut(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	introduce(a, b)
	secured(t, cluster.PeersRequire, a, b)
	a.tune.handshakeTimeout = time.Minute
	limits := a.strangersLimits()
	if limits.TurnEvery != strangersTurnEvery || time.Duration(limits.TurnsWaiting)*limits.TurnEvery > handshakeTimeout/2 {
		t.Errorf("the last one who waits has no time left for a handshake: %+v", limits)
	}
	const waiting, more = 8, 24
	limits.TurnEvery, limits.TurnsWaiting = time.Hour, waiting
	a.Transport.strangers = strangers.New(limits, a.cfg.Logger)
	a.start(t)
	shown := *newKey(t).Certificate()
	ended := make(chan error, 1+waiting+more)
	for n := range cap(ended) {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(n+1))}}).Dial("tcp", a.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() {
			ended <- tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{shown}}).Handshake()
		}()
	}
	served := 0
	for range 1 + more {
		if within(t, ended, "a handshake") == nil {
			served++
		}
	}
	if got := a.Stats().HandshakesTurnedAway; served != 1 || got != more {
		t.Errorf("%d handshakes of strangers, %d were turned away, want 1 and %d", served, got, more)
	}
	b.start(t)
	a.expect(t, nodeB, "up")
	b.expect(t, nodeA, "up")
	for range 3 {
		conn, err := b.DialRoute(t.Context(), nodeA)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_ = within(t, a.routes, "a route").Close()
	}
	// b may have its route before a has taken b's connection out of the room.
	for deadline := time.Now().Add(patience); a.strangers.Stats().Inside != waiting; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d strangers wait, want %d", a.strangers.Stats().Inside, waiting)
		}
	}
	if got := a.Stats().HandshakesTurnedAway; got != more {
		t.Errorf("%d were turned away, want %d", got, more)
	}
}

// logging returns a node that does not run yet, and its log.
func logging(t *testing.T, id cluster.NodeID, peers ...cluster.NodeID) (*node, *lockedBuffer) {
	t.Helper()
	out := &lockedBuffer{}
	n := newNode(t, id, peers...)
	cfg := n.cfg
	cfg.Logger = slog.New(slog.NewTextHandler(out, nil))
	n.Unlisten()
	n.Transport = New(cfg)
	if err := n.Listen(); err != nil {
		t.Fatal(err)
	}
	return n, out
}

// A caller that changes its words with each connection does not fill the log.
func TestRejectionsOfOneSourceAreBounded(t *testing.T) {
	a, out := logging(t, nodeA, nodeB)
	a.start(t)
	for i := range 50 {
		h := helloFrom(nodeB, nodeA, classControl)
		h.id.NodeName = fmt.Sprintf("name-%d", i)
		conn, _ := rawDial(t, a, encodeHello(h))
		expectClosed(t, conn)
	}
	if n := strings.Count(out.String(), "rejected connection"); n == 0 || n > 10 {
		t.Errorf("50 rejections of one address made %d lines", n)
	}
}

// Each address that comes without a valid key gets a line in the log, whatever it lacks, and is told nothing.
func TestEachStrangerIsLogged(t *testing.T) {
	b, out := logging(t, nodeB, nodeA)
	secured(t, cluster.PeersRequire, b)
	b.start(t)
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*newKey(t).Certificate()}}
	says := encodeHello(helloFrom(nodeA, nodeB, classControl))
	for n, c := range []struct {
		tls  *tls.Config
		says []byte
	}{
		{nil, says}, {nil, says}, {&tls.Config{InsecureSkipVerify: true}, says}, {old, says}, {nil, append([]byte{tlsRecord, 3, 1, 0, 1}, says...)},
	} {
		source := net.IPv4(127, 0, 1, byte(n+1))
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: source}}).Dial("tcp", b.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if c.tls != nil {
			conn = tls.Client(conn, c.tls)
		}
		_, _ = conn.Write(c.says)
		if told := new(bytes.Buffer); c.tls != nil || len(c.says) == len(says) { // only the last case gets an alert of TLS
			if _, _ = io.Copy(told, conn); told.Len() > 0 {
				t.Errorf("%d is told %q", n, told)
			}
		}
		await(t, func() bool { return b.Stats().HandshakesRejected == uint64(n+1) })
		await(t, func() bool { return strings.Count(out.String(), "remote="+source.String()+":") == 1 })
	}
	conn, err := net.Dial("tcp", b.Addr().String()) // a probe
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte{tlsRecord})
	_ = conn.Close()
	await(t, func() bool { return b.Stats().HandshakesFailed == 1 })
}

// A peer that sends no frames, again and again, does not fill the log.
func TestCorruptPeerIsBounded(t *testing.T) {
	a, out := logging(t, nodeA, nodeB)
	a.start(t)
	for range 50 {
		conn, _ := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classControl)))
		if _, err := conn.Write([]byte("no frame is here")); err != nil {
			t.Fatal(err)
		}
		expectClosed(t, conn)
	}
	if n := strings.Count(out.String(), "closed connection from peer"); n == 0 || n > 10 {
		t.Errorf("50 corrupt connections of one address made %d lines", n)
	}
}

// A status that cannot be read does not end the connection, and many of them do not fill the log.
func TestRefusedStatusIsBounded(t *testing.T) {
	a, out := logging(t, nodeA, nodeB)
	a.start(t)
	conn, _ := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classControl)))
	var frames batch
	for range 50 {
		if err := frames.add(frameStatus, []byte("none"), classControl); err != nil {
			t.Fatal(err)
		}
	}
	if err := frames.add(frameStatus, []byte("fine"), classControl); err != nil {
		t.Fatal(err)
	}
	for _, piece := range frames.whole() {
		if _, err := conn.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if s := within(t, a.statuses, "a status behind them"); s != "fine" {
		t.Errorf("status %q", s)
	}
	if n := strings.Count(out.String(), "refused the status of a peer"); n == 0 || n > 10 {
		t.Errorf("50 statuses that are none made %d lines", n)
	}
}

// TestUntoldReasons: a node with an unknown key is refused. The reason is logged, and the node is not told.
func TestUntoldReasons(t *testing.T) {
	a, key := newNode(t, nodeA, nodeB), newKey(t).Name()
	defer a.Unlisten()
	r := a.door.Admit(nodeA, identity(nodeC), key, false)
	if r == nil || r.Code != CodeKey || !strings.Contains(r.Text, string(key)) {
		t.Fatalf("%+v", r)
	}
	for v := versionFirst; v <= versionNewest; v++ {
		if told, err := parseRejection(r.greeting(v)); err != nil || told.Code != CodeKey || told.Text != "" {
			t.Errorf("version %d: told %q, %v", v, told.Text, err)
		}
	}
}

// TestUntoldVersions: while a node hears who dials, a caller with an unknown key is not told the node's name and release
// either, by which it is refused before anybody asks who it is.
func TestUntoldVersions(t *testing.T) {
	a, key := newNode(t, nodeA, nodeB), newKey(t).Name()
	defer a.Unlisten()
	for _, g := range []greeting{{version: 200, most: 201, word: uint8(classControl)}, {version: versionFirst, most: uint8(versionNewest), word: 99}} {
		near, far := net.Pipe()
		go func() {
			_, _ = a.welcome(far, key)
			_ = far.Close()
		}()
		if _, err := near.Write(appendGreeting(nil, g)); err != nil {
			t.Fatal(err)
		}
		answer, err := readGreeting(near)
		if err != nil {
			t.Fatal(err)
		}
		if told, err := parseRejection(answer); err != nil || told.Text != "" {
			t.Errorf("told %q, %v", told.Text, err)
		}
		_ = near.Close()
	}
}

// TestUntoldReasonIsSaid: a node that is told nothing but a code says itself what that means: only its key is not known there.
func TestUntoldReasonIsSaid(t *testing.T) {
	for code, says := range map[Code]string{CodeEmpty: "begins with the keys in its configuration", CodeKey: ""} {
		a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
		introduce(a, b)
		secured(t, cluster.PeersRequire, a, b)
		defer b.Unlisten()
		own := b.key.Load().Name()
		a.Transport.peer(nodeB).Key = newKey(t).Name() // a mistake in its configuration
		a.door.Checker = codeForAll(code)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Answer(ctx) }()
		rejections := b.AskWhoRefuses(t.Context())
		stop()
		<-ended
		if len(rejections) != 1 {
			t.Fatalf("code %d: %v", code, rejections)
		}
		r := rejections[0]
		if want := "the node does not know this node's key " + string(own); r.Code != code || !strings.HasPrefix(r.Text, want) || !strings.Contains(r.Text, says) {
			t.Errorf("code %d: %+v", code, r)
		}
		if (r.Key == own) != (code == CodeKey) {
			t.Errorf("code %d: the key %q", code, r.Key)
		}
	}
}

// codeForAll is a Checker that judges each node that is no peer with its code.
type codeForAll Code

func (codeForAll) CheckPeer(Identity) error { return nil }

func (c codeForAll) CheckUnknown(Identity) error {
	return &RejectedError{Code: Code(c), Text: "for the log"}
}

// A node that shows the key of a removed member is told that it was removed, whatever else is wrong with its greeting.
func TestRemovedIsToldThatAlone(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	secured(t, cluster.PeersRequire, a)
	gone := newKey(t)
	a.SetFormer(Former{Removed: []cluster.NodeID{nodeC}, Keys: map[cluster.Key]cluster.NodeID{gone.Name(): nodeC}})
	a.start(t)
	other := helloFrom(nodeC, nodeA, classCall)
	other.id.ClusterID++
	for _, h := range []hello{helloFrom(nodeC, nodeA, classControl), helloFrom(nodeC, nodeB, classControl), other} {
		conn, err := tls.Dial("tcp", a.Addr().String(), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*gone.Certificate()}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(encodeHello(h)); err != nil {
			t.Fatal(err)
		}
		g, err := readGreeting(conn)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := parseRejection(g); err != nil || r.Code != CodeRemoved {
			t.Errorf("told %v, %v", r, err)
		}
	}
}

// await waits until a condition holds.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to that")
		}
	}
}

// lockedBuffer is a buffer that a logger may write to from many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestRejectionsAreSaidAgain: the same sentence is logged again after a while. A sentence that could not be logged is
// logged at the next attempt.
func TestRejectionsAreSaidAgain(t *testing.T) {
	tr, now := New(Config{Logger: slog.New(slog.DiscardHandler)}), time.Now()
	for n, c := range []struct {
		said  string
		after time.Duration
		want  bool
	}{
		{"a", 0, true}, {"a", time.Second, false}, {"b", time.Second, true}, {"a", rejectionQuiet - 1, false}, {"a", rejectionQuiet, true}, {"a", rejectionQuiet + time.Minute, false},
	} {
		if got := tr.saysNew(c.said, now.Add(c.after)); got != c.want {
			t.Errorf("attempt %d, %q after %v: said is %t", n, c.said, c.after, got)
		}
	}
	tr.unsaid("b")
	if !tr.saysNew("b", now.Add(2*time.Second)) {
		t.Error("what had no line is not said")
	}
	for n := range 10 * rejectionsLoggedMax {
		tr.saysNew(fmt.Sprint(n), now)
	}
	if n := len(tr.rejectionsLogged); n > rejectionsLoggedMax {
		t.Errorf("%d sentences are kept", n)
	}
}
