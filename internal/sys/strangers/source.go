package strangers

import (
	"net"
	"net/netip"
	"slices"
)

// sourceBits is how many bits of an IPv6 address name its source: one host may use all of a /64.
const sourceBits = 64

// Source returns the source of a connection from an address, by which connections are counted. The zero Addr
// means that the connection comes over no network.
func Source(from net.Addr) netip.Addr {
	ip, ok := address(from)
	if !ok || ip.Is4() || ip.IsLinkLocalUnicast() { // all hosts of a link have the same first bits
		return ip
	}
	network, err := ip.Prefix(sourceBits)
	if err != nil {
		return netip.Addr{} // it is no valid address
	}
	return network.Addr()
}

// Allowed tells whether one of the networks has the address; without networks everybody is allowed.
func Allowed(networks []netip.Prefix, from net.Addr) bool {
	if len(networks) == 0 {
		return true
	}
	ip, ok := address(from)
	return ok && slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// FromHere tells whether a connection comes from this host: it is over loopback, or both of its ends have the
// same address. The kernel accepts neither from a network.
func FromHere(conn net.Conn) bool {
	from, ok := address(conn.RemoteAddr())
	to, _ := address(conn.LocalAddr())
	return !ok || from.IsLoopback() || from == to
}

func address(from net.Addr) (ip netip.Addr, ok bool) {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return tcp.AddrPort().Addr().Unmap().WithZone(""), true
}
