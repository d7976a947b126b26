package ownport

import (
	"net"
	"net/netip"
	"strconv"
)

// loopbackHost is where the agent reaches mysqld while mysqld's other address is fenced.
const loopbackHost = "127.0.0.1"

// Address is where mysqld listens, as it is configured.
type Address struct {
	Bind string
	Port int
}

// Fenced is where clients reach mysqld itself; false = nowhere.
func (a Address) Fenced() (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(a.Bind)
	if err != nil || addr.IsLoopback() {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr, uint16(a.Port)), true
}

// Local is where the agent finds its own mysqld: on loopback, which is never fenced.
func (a Address) Local() string { return net.JoinHostPort(a.LocalHost(), strconv.Itoa(a.Port)) }

// LocalHost is Local without the port.
func (a Address) LocalHost() string {
	if _, fenced := a.Fenced(); fenced {
		return loopbackHost
	}
	return a.Bind
}

// Binds is where mysqld is to listen. Its own port is open to clients only once it is fenced, or if the operator has
// said so.
func (p *Port) Binds(a Address) string {
	if p.Open() {
		return loopbackHost + "," + a.Bind
	}
	return a.LocalHost()
}
