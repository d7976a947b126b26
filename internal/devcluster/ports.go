package devcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
)

// portMin is where the search for free ports begins.
const portMin = 10000

// freePorts returns n ports that were free on loopback a moment ago, all
// different.
//
// They are taken from below the kernel's ephemeral range. A port inside the
// range may be given to an outgoing connection, of the writers for example,
// while its node is down; the node could then not start again.
func freePorts(n int) ([]int, error) {
	portMax := ephemeralPortMin()
	if portMax < portMin+10*n {
		return nil, fmt.Errorf("devcluster: too few ports below net.ipv4.ip_local_port_range (%d)", portMax)
	}
	span := portMax - portMin
	start := rand.IntN(span)
	var found []int
	var held []net.Listener
	for i := 0; i < span && len(found) < n; i++ {
		port := portMin + (start+i)%span
		l, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue // taken
		}
		found = append(found, port)
		held = append(held, l)
	}
	var errs []error
	for _, l := range held {
		errs = append(errs, l.Close())
	}
	if len(found) < n {
		errs = append(errs, fmt.Errorf("devcluster: found %d free ports of %d", len(found), n))
	}
	return found, errors.Join(errs...)
}

// ephemeralPortMin returns the lowest port that the kernel gives to outgoing
// connections (ip(7)); 32768, Linux's default, if it cannot be read.
func ephemeralPortMin() int {
	var low, high int
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 32768
	}
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		return 32768
	}
	return low
}
