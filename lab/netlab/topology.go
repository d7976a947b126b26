package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Client is the node from which the load comes. It stands beside node a.
const Client = "client"

// Kind says what carries the packets between nodes.
type Kind int

const (
	// Veth joins every two nodes by a pair of virtual Ethernet devices: as fast
	// as the kernel, with no conditions except a cut.
	Veth Kind = iota
	// TUN passes packets through the user-space switch, which gives each
	// direction of each link its conditions.
	TUN
)

func (k Kind) String() string {
	switch k {
	case Veth:
		return "veth"
	case TUN:
		return "tun"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// Pair is one direction between two nodes.
type Pair struct{ From, To string }

// Reverse is the other direction.
func (p Pair) Reverse() Pair { return Pair{p.To, p.From} }

func (p Pair) String() string { return p.From + "-" + p.To }

// Link is what one direction does to its packets. On a veth pair Delay is only
// the delay that the link stands for, and none is added: the measured time is what counts.
type Link struct {
	// Delay is the way of a packet from one node to the other, half of a ping.
	Delay time.Duration
	// Jitter: the delay is uniform in Delay ± Jitter. Packets keep their order.
	Jitter time.Duration
	// LossPerMille of the packets are lost, independently of each other.
	LossPerMille int
	// RateBytesPerSecond is the speed of the line, 0 for no limit. A packet that
	// would wait for more than lineWaitMax is dropped.
	RateBytesPerSecond int64
	// Cut: nothing passes, and what was under way is lost.
	Cut bool
}

const (
	// delayMax bounds Delay and Jitter, and so the time of a packet in the switch.
	delayMax = 10 * time.Second
	// nodesMax is how many addresses a network has; see Topology.addr.
	nodesMax = 32
	// nodeNameBytesMax: a device named after the node must fit into IFNAMSIZ.
	nodeNameBytesMax = 12
)

func (l Link) check() error {
	switch {
	case l.Delay < 0 || l.Delay > delayMax:
		return fmt.Errorf("delay %v is not between 0 and %v", l.Delay, delayMax)
	case l.Jitter < 0 || l.Jitter > l.Delay:
		return fmt.Errorf("jitter %v is not between 0 and the delay of %v", l.Jitter, l.Delay)
	case l.LossPerMille < 0 || l.LossPerMille > 1000:
		return fmt.Errorf("loss of %d per mille is not between 0 and 1000", l.LossPerMille)
	case l.RateBytesPerSecond < 0:
		return fmt.Errorf("rate of %d bytes per second is negative", l.RateBytesPerSecond)
	}
	return nil
}

// Topology is a network: its nodes and, for every direction between two of
// them, a link.
type Topology struct {
	Name        string
	Description string
	Kind        Kind
	Nodes       []string
	Links       map[Pair]Link
	// Direct are the pairs (in either direction) that a TUN network joins by veth:
	// the client and the node beside it. So the clients' packets neither
	// load the switch nor wait for it.
	Direct []Pair
}

// RTT is the configured round trip between two nodes: a ping's time.
func (t Topology) RTT(a, b string) time.Duration {
	return t.Links[Pair{a, b}].Delay + t.Links[Pair{b, a}].Delay
}

// direct says whether a and b are joined by veth.
func (t Topology) direct(a, b string) bool {
	return t.Kind == Veth || slices.Contains(t.Direct, Pair{a, b}) || slices.Contains(t.Direct, Pair{b, a})
}

// addr is the address of node i, 10.99.0.1 and up. The namespaces have no way
// out, so it collides with nothing.
func (t Topology) addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 99, 0, byte(i + 1)}) }

func (t Topology) node(name string) (int, error) {
	i := slices.Index(t.Nodes, name)
	if i < 0 {
		return 0, fmt.Errorf("netlab: network %s has no node %q, only %s", t.Name, name, strings.Join(t.Nodes, ", "))
	}
	return i, nil
}

func (t Topology) check() error {
	if len(t.Nodes) < 2 || len(t.Nodes) > nodesMax {
		return fmt.Errorf("netlab: network %s has %d nodes, from 2 to %d are possible", t.Name, len(t.Nodes), nodesMax)
	}
	for i, name := range t.Nodes {
		if len(name) > nodeNameBytesMax {
			return fmt.Errorf("netlab: network %s: the name %q is longer than %d bytes", t.Name, name, nodeNameBytesMax)
		}
		if name == "" || slices.Contains(t.Nodes[:i], name) {
			return fmt.Errorf("netlab: network %s has two nodes %q, or one without a name", t.Name, name)
		}
	}
	if t.Kind != Veth && t.Kind != TUN {
		return fmt.Errorf("netlab: network %s is of an unknown %v", t.Name, t.Kind)
	}
	var errs []error
	for p, l := range t.Links {
		_, from := t.node(p.From)
		_, to := t.node(p.To)
		errs = append(errs, from, to)
		if p.From == p.To {
			errs = append(errs, fmt.Errorf("netlab: network %s has a link from %s to itself", t.Name, p.From))
		}
		if err := l.check(); err != nil {
			errs = append(errs, fmt.Errorf("netlab: link %v of network %s: %w", p, t.Name, err))
		}
		if t.direct(p.From, p.To) && !onlyDelay(l) {
			errs = append(errs, fmt.Errorf("netlab: link %v of network %s is a veth pair: it has no jitter, loss or rate", p, t.Name))
		}
	}
	for _, p := range t.Direct {
		_, from := t.node(p.From)
		_, to := t.node(p.To)
		errs = append(errs, from, to)
	}
	return errors.Join(errs...)
}

// onlyDelay says whether a veth pair can do all that l asks for.
func onlyDelay(l Link) bool {
	return l.Jitter == 0 && l.LossPerMille == 0 && l.RateBytesPerSecond == 0
}

// sameSite is the time of a ping between two machines of one rack in the articles.
const sameSite = 100 * time.Microsecond

// Presets are the networks of the articles that the lab repeats. A link's delay
// is half of the ping that the articles name. Node d stands beside b, e and f beside c.
func Presets() []Topology {
	ms := time.Millisecond
	return []Topology{
		preset("same-rack", "every node in one rack, 0.1 ms or less: veth pairs, as fast as this machine is", Veth, sameSite, sameSite, sameSite),
		preset("same-city", "three sites of one city, 1 ms between each", TUN, 1*ms, 1*ms, 1*ms),
		preset("two-city", "a and b in one city, 1 ms apart; c in another, 30 ms away", TUN, 1*ms, 30*ms, 30*ms),
		preset("three-city", "a and b in two near cities, 5 ms apart; c in a third, 30 ms away", TUN, 5*ms, 30*ms, 30*ms),
	}
}

// Preset returns the preset called name.
func Preset(name string) (Topology, error) {
	var names []string
	for _, t := range Presets() {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return Topology{}, fmt.Errorf("netlab: there is no network %q: choose %s", name, strings.Join(names, ", "))
}

func preset(name, description string, kind Kind, ab, ac, bc time.Duration) Topology {
	site := map[string]string{"a": "a", "b": "b", "c": "c", "d": "b", "e": "c", "f": "c", Client: "a"}
	ping := map[Pair]time.Duration{
		{"a", "b"}: ab, {"b", "a"}: ab, {"a", "c"}: ac, {"c", "a"}: ac, {"b", "c"}: bc, {"c", "b"}: bc,
		{"a", "a"}: sameSite, {"b", "b"}: sameSite, {"c", "c"}: sameSite,
	}
	t := Topology{
		Name: name, Description: description, Kind: kind,
		Nodes:  []string{"a", "b", "c", "d", "e", "f", Client},
		Links:  map[Pair]Link{},
		Direct: []Pair{{Client, "a"}},
	}
	for _, from := range t.Nodes {
		for _, to := range t.Nodes {
			if from != to {
				t.Links[Pair{from, to}] = Link{Delay: ping[Pair{site[from], site[to]}] / 2}
			}
		}
	}
	return t
}
