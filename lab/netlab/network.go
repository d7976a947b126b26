package netlab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
)

// ErrDown is returned by methods that need a network that is up.
var ErrDown = errors.New("netlab: the network is not up")

// Network is a topology made of namespaces. Its methods may be called from
// several goroutines; Close comes after the others have returned.
type Network struct {
	topology Topology
	logger   *slog.Logger

	mu         sync.Mutex // the state below
	up         bool
	namespaces []*namespace
	veth       map[Pair]*end // the end that sends the direction's packets
	links      map[Pair]Link // conditions of veth pairs; the switch has the others
	tun        *tunSwitch    // nil without TUN devices
}

// New returns the network of t, which needs root to come up. It starts nothing.
func New(t Topology, logger *slog.Logger) (*Network, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("netlab: network namespaces need root: run this as root, or by sudo")
	}
	return &Network{topology: t, logger: logger}, nil
}

// Topology returns what New was given.
func (n *Network) Topology() Topology { return n.topology }

// Addr is the node's address, the zero address for a node that is not there.
func (n *Network) Addr(node string) netip.Addr {
	i, err := n.topology.node(node)
	if err != nil {
		return netip.Addr{}
	}
	return n.topology.addr(i)
}

// Up makes the namespaces and joins them. After an error nothing is left.
func (n *Network) Up(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.up {
		return fmt.Errorf("netlab: network %s is up already", n.topology.Name)
	}
	err := n.make(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("bring network %s up: %w", n.topology.Name, err), n.release())
	}
	n.up = true
	n.logger.Debug("network is up", "network", n.topology.Name, "kind", n.topology.Kind.String(), "nodes", len(n.topology.Nodes))
	return nil
}

func (n *Network) make(ctx context.Context) error {
	t := n.topology
	n.veth, n.links = map[Pair]*end{}, map[Pair]Link{}
	for range t.Nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		ns, err := newNamespace()
		if err != nil {
			return err
		}
		n.namespaces = append(n.namespaces, ns)
	}
	if t.Kind == TUN {
		if err := n.makeSwitch(); err != nil {
			return err
		}
	}
	return n.makeVeth(ctx)
}

func (n *Network) makeSwitch() error {
	var fds []int
	for i, ns := range n.namespaces {
		fd, err := openTUN(ns, n.topology.addr(i))
		if err != nil {
			for _, open := range fds {
				closeFD(open)
			}
			return fmt.Errorf("node %s: %w", n.topology.Nodes[i], err)
		}
		fds = append(fds, fd)
	}
	s, err := newSwitch(n.topology, fds)
	if err != nil {
		return err
	}
	n.tun = s
	s.start(func(err error) { n.logger.Error("the switch has failed: nothing passes any more", "error", err) })
	return nil
}

func (n *Network) makeVeth(ctx context.Context) error {
	t := n.topology
	hasNet := make([]bool, len(t.Nodes)) // has an interface with the network's prefix
	for i := range t.Nodes {
		hasNet[i] = t.Kind == TUN
	}
	for i, a := range t.Nodes {
		for j := i + 1; j < len(t.Nodes); j++ {
			b := t.Nodes[j]
			forth, linked := t.Links[Pair{a, b}]
			back := t.Links[Pair{b, a}]
			if !linked || !t.direct(a, b) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			ends, err := joinVeth(t, i, j, n.namespaces, [2]bool{!hasNet[i], !hasNet[j]})
			if err != nil {
				return fmt.Errorf("join %s and %s: %w", a, b, err)
			}
			hasNet[i], hasNet[j] = true, true
			n.veth[Pair{a, b}], n.veth[Pair{b, a}] = ends[0], ends[1]
			n.links[Pair{a, b}], n.links[Pair{b, a}] = forth, back
			if err := errors.Join(ends[0].cut(forth.Cut), ends[1].cut(back.Cut)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close gives the network up. It kills nothing: each namespace vanishes with its
// last process and socket, and is cut off until then.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.release(); err != nil {
		return fmt.Errorf("take network %s down: %w", n.topology.Name, err)
	}
	return nil
}

func (n *Network) release() error {
	var err error
	if n.tun != nil {
		err = n.tun.close()
	}
	for _, ns := range n.namespaces {
		ns.close()
	}
	n.up, n.tun, n.namespaces, n.veth, n.links = false, nil, nil, nil, nil
	return err
}

// Link returns the present conditions from one node to another.
func (n *Network) Link(from, to string) (Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.linkLocked(Pair{from, to})
}

func (n *Network) linkLocked(p Pair) (Link, error) {
	from, to, err := n.pair(p)
	if err != nil {
		return Link{}, err
	}
	if l, ok := n.links[p]; ok {
		return l, nil
	}
	return n.tun.link(from, to), nil
}

// pair finds the nodes of a link of the network, which must be up.
func (n *Network) pair(p Pair) (from, to int, err error) {
	if !n.up {
		return 0, 0, ErrDown
	}
	if from, err = n.topology.node(p.From); err != nil {
		return 0, 0, err
	}
	if to, err = n.topology.node(p.To); err != nil {
		return 0, 0, err
	}
	if _, ok := n.topology.Links[p]; !ok {
		return 0, 0, fmt.Errorf("netlab: network %s has no link from %s to %s", n.topology.Name, p.From, p.To)
	}
	return from, to, nil
}

// SetLink gives the direction new conditions. Packets under way keep their
// time, but a cut drops them. A veth pair can only be cut.
func (n *Network) SetLink(from, to string, l Link) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.setLocked(Pair{from, to}, l)
}

func (n *Network) setLocked(p Pair, l Link) error {
	from, to, err := n.pair(p)
	if err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return fmt.Errorf("netlab: link %v: %w", p, err)
	}
	e, direct := n.veth[p]
	if !direct {
		n.tun.setLink(from, to, l)
		return nil
	}
	if l.Delay != n.links[p].Delay || !onlyDelay(l) {
		return fmt.Errorf("netlab: link %v of network %s is a veth pair: it can be cut, but not slowed", p, n.topology.Name)
	}
	if err := e.cut(l.Cut); err != nil {
		return fmt.Errorf("cut %v: %w", p, err)
	}
	n.links[p] = l
	return nil
}

// Cut cuts the direction, or mends it, and keeps its other conditions. When it
// returns the last packet has passed.
func (n *Network) Cut(from, to string, cut bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cutLocked(Pair{from, to}, cut)
}

func (n *Network) cutLocked(p Pair, cut bool) error {
	l, err := n.linkLocked(p)
	if err != nil {
		return err
	}
	l.Cut = cut
	return n.setLocked(p, l)
}

// Isolate cuts, or mends, both directions of all links of a node except those with
// the client: a partition that the clients do not see.
func (n *Network) Isolate(node string, cut bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		return ErrDown
	}
	if _, err := n.topology.node(node); err != nil {
		return err
	}
	var errs []error
	for p := range n.topology.Links {
		if (p.From == node && p.To != Client) || (p.To == node && p.From != Client) {
			errs = append(errs, n.cutLocked(p, cut))
		}
	}
	return errors.Join(errs...)
}

// Stats counts what the switch has done; all zero without one.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tun == nil {
		return Stats{}
	}
	return n.tun.snapshot()
}

// namespaceOf returns the node's namespace while the network is up.
func (n *Network) namespaceOf(node string) (*namespace, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		return nil, ErrDown
	}
	i, err := n.topology.node(node)
	if err != nil {
		return nil, err
	}
	return n.namespaces[i], nil
}

// DialContext returns a function that dials from inside the node. It needs
// addresses, not names: there is no resolver inside. Each dial occupies a thread.
func (n *Network) DialContext(node string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if _, err := netip.ParseAddrPort(addr); err != nil {
			return nil, fmt.Errorf("dial from node %s: %w", node, err)
		}
		ns, err := n.namespaceOf(node)
		if err != nil {
			return nil, err
		}
		var conn net.Conn
		err = ns.inside(func() (err error) {
			conn, err = new(net.Dialer).DialContext(ctx, network, addr)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("dial from node %s: %w", node, err)
		}
		return conn, nil
	}
}

// Listen listens inside the node, on its address.
func (n *Network) Listen(ctx context.Context, node string, port uint16) (net.Listener, error) {
	ns, err := n.namespaceOf(node)
	if err != nil {
		return nil, err
	}
	var listener net.Listener
	err = ns.inside(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(n.Addr(node), port).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in node %s: %w", node, err)
	}
	return listener, nil
}
