package strangers

import (
	"net"
	"net/netip"
	"slices"
)

// sourceBits is how much of an IPv6 address tells who it is: one host may use all of a /64.
const sourceBits = 64

// Source returns what a connection from an address is counted by; the zero Addr = it comes
// over no network.
func Source(from net.Addr) netip.Addr {
	ip, ok := address(from)
	if !ok || ip.Is4() || ip.IsLinkLocalUnicast() { // all hosts of a link have the same first bits
		return ip
	}
	network, err := ip.Prefix(sourceBits)
	if err != nil {
		return netip.Addr{} // the address is none
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

// FromHere tells whether a connection does not leave this host: it is over loopback, or comes from
// the address that it is to. The kernel takes neither from a network.
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
