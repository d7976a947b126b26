package peers

import (
	"context"
	"net"
	"net/netip"
	"os/exec"

	"github.com/quorate/quorate/internal/sys/subprocess"
)

// Net is the network of the nodes: it has their addresses, and starts processes that see only their own node.
// Package netlab has the real one. Loopback is for tests, and for machines where
// nobody is root.
type Net interface {
	// Addr is the address of a node ("a" … "f", "client").
	Addr(node string) netip.Addr
	// Start starts cmd on the node.
	Start(node string, cmd *exec.Cmd) (*subprocess.Process, error)
	// DialContext dials from the node.
	DialContext(node string) func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Loopback is a Net on 127.0.0.0/8: each node has an address, and there is no network
// between them.
type Loopback struct{ third byte }

// NewLoopback returns the nodes 127.0.third.1 (a) to .6 (f), and .9 (client).
func NewLoopback(third byte) *Loopback { return &Loopback{third: third} }

// Addr implements Net.
func (l *Loopback) Addr(node string) netip.Addr {
	last := byte(9)
	if node != clientNode {
		last = node[0] - 'a' + 1
	}
	return netip.AddrFrom4([4]byte{127, 0, l.third, last})
}

// DialContext implements Net.
func (l *Loopback) DialContext(string) func(context.Context, string, string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext
}

// Start implements Net.
func (l *Loopback) Start(_ string, cmd *exec.Cmd) (*subprocess.Process, error) {
	return subprocess.Start(cmd)
}
