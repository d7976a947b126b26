package devcluster

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// dialPath connects node from to a listener in the place of node to's agent.
func dialPath(t *testing.T, c *Cluster, from, to int) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", c.addr(c.nodes[to].ports.peer))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", c.peerAddr(c.nodes[from], c.nodes[to])); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// send writes a word at one end and says whether it came out at the other
// within wait.
func send(t *testing.T, from, to net.Conn, word string, wait time.Duration) bool {
	t.Helper()
	if _, err := io.WriteString(from, word); err != nil {
		t.Fatal(err)
	}
	return arrives(t, to, word, wait)
}

func arrives(t *testing.T, to net.Conn, word string, wait time.Duration) bool {
	t.Helper()
	if err := to.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(to, got); errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	return string(got) == word
}

// TestNetwork cuts one direction after the other of a connection: bytes wait,
// none is lost, and the other direction goes on.
func TestNetwork(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Binary: self, Dir: t.TempDir(), Nodes: 3, Network: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.network.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.network.stop)
	const soon, atOnce = 10 * time.Second, 100 * time.Millisecond
	near, far := dialPath(t, c, 0, 1)
	if !send(t, near, far, "one", soon) || !send(t, far, near, "two", soon) {
		t.Fatal("an open path does not pass bytes")
	}
	c.Cut(0, 1)
	if send(t, near, far, "three", atOnce) {
		t.Error("a cut path passes bytes")
	}
	if !send(t, far, near, "four", soon) {
		t.Error("a one-way cut stops the other direction")
	}
	c.Mend(0, 1)
	if !arrives(t, far, "three", soon) {
		t.Error("what was under way at the cut is lost")
	}
	c.Isolate(1)
	if send(t, near, far, "five", atOnce) || send(t, far, near, "six", atOnce) {
		t.Error("bytes pass to or from an isolated node")
	}
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	c.MendAll()
	if !arrives(t, far, "five", soon) {
		t.Error("what was under way at the isolation is lost")
	}
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Error("the end of a connection does not pass")
	}
}

// TestNetworkResetsDials: a dial to a node that is down ends with an error.
func TestNetworkResetsDials(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Binary: self, Dir: t.TempDir(), Nodes: 3, Network: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.network.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.network.stop)
	conn, err := net.Dial("tcp", c.peerAddr(c.nodes[0], c.nodes[1]))
	if err != nil {
		return // the reset came before the dial returned
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a dial to a node that is down ends with %v", err)
	}
}
