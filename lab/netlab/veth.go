package netlab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// end is one end of a veth pair: in the namespace of node i, towards node j.
type end struct {
	ns         *namespace
	i, j       int
	link       netlink.Link
	self, peer netip.Addr
}

// deviceName is the name of the device towards node.
func deviceName(node string) string { return "to-" + node }

// mac is the hardware address of node i's end towards j.
func mac(i, j int) net.HardwareAddr { return net.HardwareAddr{0x02, 0x99, 0, 0, byte(i), byte(j)} }

// nowhere is a hardware address that no end has.
func nowhere() net.HardwareAddr { return net.HardwareAddr{0x02, 0x99, 0xff, 0xff, 0xff, 0xff} }

// joinVeth joins nodes i and j by a veth pair. nss has the nodes' namespaces. withNet says for each end whether
// its device gets the network's prefix: one device of each node that has no TUN device
// does.
func joinVeth(t Topology, i, j int, nss []*namespace, withNet [2]bool) ([2]*end, error) {
	h := nss[i].handle
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = deviceName(t.Nodes[j]), mac(i, j)
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerHardwareAddr = deviceName(t.Nodes[i]), mac(j, i)
	pair.PeerNamespace = netlink.NsFd(nss[j].fd)
	if err := h.LinkAdd(pair); err != nil {
		return [2]*end{}, fmt.Errorf("make veth pair: %w", err)
	}
	ends := [2]*end{
		{ns: nss[i], i: i, j: j, self: t.addr(i), peer: t.addr(j)},
		{ns: nss[j], i: j, j: i, self: t.addr(j), peer: t.addr(i)},
	}
	for k, e := range ends {
		if err := e.up(deviceName(t.Nodes[e.j]), withNet[k]); err != nil {
			return [2]*end{}, err
		}
	}
	return ends, nil
}

// up brings the end up, with a route only to the peer, and with the peer's hardware
// address: so there is no ARP, whose packets could be lost or late.
func (e *end) up(name string, withNet bool) error {
	h := e.ns.handle
	var err error
	if e.link, err = h.LinkByName(name); err != nil {
		return fmt.Errorf("find veth device %s: %w", name, err)
	}
	if withNet {
		// The prefix is only for servers that look at their interfaces; the routes
		// are made below.
		a := &netlink.Addr{IPNet: network(e.self, networkBits), Flags: unix.IFA_F_NOPREFIXROUTE}
		if err := h.AddrAdd(e.link, a); err != nil {
			return fmt.Errorf("set address of %s: %w", name, err)
		}
	}
	if err := h.LinkSetUp(e.link); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	route := &netlink.Route{
		LinkIndex: e.link.Attrs().Index, Dst: network(e.peer, e.peer.BitLen()),
		Src: e.self.AsSlice(), Scope: netlink.SCOPE_LINK,
	}
	if err := h.RouteAdd(route); err != nil {
		return fmt.Errorf("route to %v: %w", e.peer, err)
	}
	return e.cut(false)
}

// cut makes the packets that the node sends to its peer vanish, or arrive again: it sets the peer's
// hardware address to one that the peer does not have, so that the peer drops the
// packets. The sender notices nothing, as with a cable that was cut elsewhere.
func (e *end) cut(cut bool) error {
	address := mac(e.j, e.i)
	if cut {
		address = nowhere()
	}
	err := e.ns.handle.NeighSet(&netlink.Neigh{
		LinkIndex: e.link.Attrs().Index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
		IP: e.peer.AsSlice(), HardwareAddr: address,
	})
	if err != nil {
		return fmt.Errorf("set hardware address of %v: %w", e.peer, err)
	}
	return nil
}
