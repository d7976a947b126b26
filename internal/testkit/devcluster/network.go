package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// pathDialTimeout bounds the proxy's own dial to a node on the same machine.
const pathDialTimeout = 2 * time.Second

// network has the proxies between the nodes if Options.Network is set: a TCP proxy for each
// node and each of its peers. The node's configuration has the proxy's address
// in place of the peer's own address.
//
// A cut stops bytes but loses none: bytes under way are delivered when the
// path is mended, however late, if both ends still have the connection.
// If one end gave a connection up while its path was cut, the connection ends for the
// other end when the path is mended. A real network does the same, with two
// differences. Here a one-way cut stops the bytes of one direction, but not TCP's
// acknowledgements. And here a dial to a process that is gone is reset and not
// refused, so the others notice a killed agent only by its silence.
type network struct {
	host  string
	wire  func([]byte) // Options.Wire
	paths []*path

	mu     sync.Mutex
	cancel context.CancelFunc // nil while it is not open
	done   sync.WaitGroup
}

// path is the proxy that node from dials to reach node to. It also stands for the direction of all
// bytes from the first to the second, on any connection.
type path struct {
	from, to int
	port     int    // where the proxy listens
	target   string // node to's own address
	back     *path  // the other direction

	mu   sync.Mutex
	open chan struct{} // closed while bytes may pass
}

// newNetwork returns the network of a cluster's nodes, which listen on ports of
// its own.
func newNetwork(c *Cluster, ports []int) *network {
	n := &network{host: c.host, wire: c.opts.Wire}
	for from := range c.nodes {
		for to := range c.nodes {
			if from == to {
				continue
			}
			p := &path{from: from, to: to, port: ports[len(n.paths)], target: c.addr(c.nodes[to].ports.peer), open: make(chan struct{})}
			close(p.open)
			n.paths = append(n.paths, p)
		}
	}
	for _, p := range n.paths {
		p.back = n.path(p.to, p.from)
	}
	return n
}

// path returns the path between two different nodes.
func (n *network) path(from, to int) *path {
	for _, p := range n.paths {
		if p.from == from && p.to == to {
			return p
		}
	}
	return nil
}

// start opens the proxies' ports, unless they are open.
func (n *network) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cancel != nil {
		return nil
	}
	var listeners []net.Listener
	for _, p := range n.paths {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", n.host, p.port))
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			return fmt.Errorf("open a path between two nodes: %w", err)
		}
		listeners = append(listeners, l)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	for i, p := range n.paths {
		n.done.Go(func() { n.serve(ctx, p, listeners[i]) })
	}
	return nil
}

// stop ends every connection and returns when all goroutines have ended.
func (n *network) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cancel != nil {
		n.cancel()
		n.done.Wait()
		n.cancel = nil
	}
}

// serve passes on the connections that p's node dials, until ctx ends.
func (n *network) serve(ctx context.Context, p *path, l net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			_ = l.Close()
			return // closed; or no descriptors are left, which shows in the nodes' dials
		}
		n.done.Go(func() { p.pass(ctx, conn, n.wire) })
	}
}

// pass connects a dialled connection with its target once both directions are
// open, because a TCP handshake needs both. It returns when the connection has ended.
func (p *path) pass(ctx context.Context, near net.Conn, wire func([]byte)) {
	defer near.Close()
	defer context.AfterFunc(ctx, func() { _ = near.Close() })()
	if !p.await(ctx) || !p.back.await(ctx) {
		return
	}
	far, err := (&net.Dialer{Timeout: pathDialTimeout}).DialContext(ctx, "tcp", p.target)
	if err != nil {
		reset(near)
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { _ = far.Close() })()
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(ctx, far, near, wire) })
	pumps.Go(func() { p.back.pump(ctx, near, far, wire) })
	pumps.Wait()
}

// pump copies the bytes in p's direction. When src ends, dst ends, too, once the path is open;
// an error ends both.
func (p *path) pump(ctx context.Context, dst, src net.Conn, wire func([]byte)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := src.Read(buffer)
		if !p.await(ctx) {
			return
		}
		if n > 0 && wire != nil {
			wire(buffer[:n])
		}
		if n > 0 {
			if _, writeErr := dst.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if errors.Is(err, io.EOF) {
			if tcp, ok := dst.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			return
		}
		if err != nil {
			reset(dst)
			reset(src)
			return
		}
	}
}

// reset ends a connection so that its other end sees an error at once.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// await waits until bytes may pass; false means that ctx has ended.
func (p *path) await(ctx context.Context) bool {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *path) set(open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		if !open {
			p.open = make(chan struct{})
		}
	default:
		if open {
			close(p.open)
		}
	}
}

// Cut stops all bytes from one node's agent to another's; the other direction
// is not touched. The cluster must have been made with Options.Network.
func (c *Cluster) Cut(from, to int) { c.network.path(from, to).set(false) }

// Mend undoes Cut.
func (c *Cluster) Mend(from, to int) { c.network.path(from, to).set(true) }

// Isolate cuts node i off from all others, in both directions.
func (c *Cluster) Isolate(i int) {
	for _, p := range c.network.paths {
		if p.from == i || p.to == i {
			p.set(false)
		}
	}
}

// MendAll undoes every Cut and Isolate.
func (c *Cluster) MendAll() {
	for _, p := range c.network.paths {
		p.set(true)
	}
}
