package config

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"
)

// lookupMax bounds the lookups of all names of a cluster's peers.
const lookupMax = time.Second

// OnLoopback says that the agent of the node with this peer address listens where only this host reaches it, although
// a peer among the others is on another host; "" = that is not so, or the names are not found at once. Somebody may
// pass connections on to such an address, so the sentence is no reason not to start.
func OnLoopback(ctx context.Context, peer string, others []string) string {
	return onLoopback(ctx, net.DefaultResolver.LookupIPAddr, peer, others)
}

// OnLoopback says so of this node.
func (c Config) OnLoopback(ctx context.Context) string {
	var others []string
	for _, m := range slices.Concat(c.ClusterMembers(), c.AddedMembers()) {
		others = append(others, m.Peer)
	}
	return OnLoopback(ctx, c.Self().Peer, others)
}

func onLoopback(ctx context.Context, lookup func(context.Context, string) ([]net.IPAddr, error), peer string, others []string) string {
	ctx, cancel := context.WithTimeout(ctx, lookupMax)
	defer cancel()
	find := func(address string) []net.IPAddr {
		host, _, _ := net.SplitHostPort(address)
		ips, _ := lookup(ctx, host) // a name that is not found says nothing
		return ips
	}
	own := find(peer)
	if len(own) == 0 {
		return ""
	}
	// net.Listen takes the first IPv4 address, or else the first address.
	at := own[max(0, slices.IndexFunc(own, func(ip net.IPAddr) bool { return ip.IP.To4() != nil }))].IP
	if !at.IsLoopback() {
		return ""
	}
	here, _ := net.InterfaceAddrs() // without them another address of this host counts as another host's
	elsewhere := func(ip net.IPAddr) bool {
		return !ip.IP.IsLoopback() && !slices.ContainsFunc(here, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip.IP)
		})
	}
	for _, other := range others {
		if other != peer && slices.ContainsFunc(find(other), elsewhere) {
			return fmt.Sprintf("the agent listens for its peers at %s, which is %s on this host: %s is on another host, and cannot reach it. "+
				"In /etc/hosts a host's own name must have the address at which other hosts find it (Debian writes 127.0.1.1)", peer, at, other)
		}
	}
	return ""
}
