package transport

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// stayers opens connections to a node that say nothing, from an address of their own.
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

// Those who say nothing do not keep a peer out, and are closed when others come.
func TestSilentConnectionsKeepNoPeerOut(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.tune.handshakeTimeout = time.Minute
	a.start(t)
	const silent = 200
	stayers(t, a, silent)
	conn, g := rawDial(t, a, appendHello(nil, helloFrom(nodeB, nodeA, classControl)))
	if _, err := parseRejection(g); err == nil {
		t.Fatal("the peer was rejected")
	}
	_ = conn.Close()
	time.Sleep(strangersSpare)
	rawDial(t, a, appendHello(nil, helloFrom(nodeB, nodeA, classControl)))
	if got := a.Stats().HandshakesExpelled; got != silent-strangersPerSource {
		t.Errorf("%d were expelled, want %d", got, silent-strangersPerSource)
	}
}

// A caller that changes its words with each connection does not fill the log.
func TestRejectionsOfOneSourceAreBounded(t *testing.T) {
	var out lockedBuffer
	a := newNode(t, nodeA, nodeB)
	cfg := a.cfg
	cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	a.Unlisten()
	a.Transport = New(cfg)
	if err := a.Listen(); err != nil {
		t.Fatal(err)
	}
	a.start(t)
	for i := range 50 {
		h := helloFrom(nodeB, nodeA, classControl)
		h.id.NodeName = fmt.Sprintf("name-%d", i)
		conn, _ := rawDial(t, a, appendHello(nil, h))
		expectClosed(t, conn)
	}
	if n := strings.Count(out.String(), "rejected connection"); n == 0 || n > 10 {
		t.Errorf("50 rejections of one address made %d lines", n)
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
