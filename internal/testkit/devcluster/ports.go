package devcluster

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// choosePlace returns a loopback address and n ports on it that were free a
// moment ago, all different.
//
// The address is a random one of 127.0.0.0/8, because ports alone are not
// safe: while a node is down, its port could be chosen by another cluster, or
// given to an outgoing connection of the writers, and the node could not start
// again. Two clusters never share an address, and outgoing connections leave
// from 127.0.0.1 (ip(7)), so neither can happen.
//
// If a host is given, the caller must make sure of both.
func choosePlace(given string, n int) (host string, ports []int, err error) {
	octet := func() int { return 1 + rand.IntN(254) }
	host = cmp.Or(given, fmt.Sprintf("127.%d.%d.%d", octet(), octet(), octet()))
	ports, err = freePorts(host, n)
	return host, ports, err
}

// freePorts returns n ports of an address that were free a moment ago.
func freePorts(host string, n int) (ports []int, err error) {
	var held []net.Listener
	for range n {
		l, listenErr := listenBelow(host, portFirst, portOthersFirst-1)
		if listenErr != nil {
			err = fmt.Errorf("find a free port: %w", listenErr)
			break
		}
		held = append(held, l)
		if addr, ok := l.Addr().(*net.TCPAddr); ok {
			ports = append(ports, addr.Port)
		}
	}
	for _, l := range held { // close all at the end, or the kernel would give the same port again
		err = errors.Join(err, l.Close())
	}
	return ports, err
}

// FreeAddr returns an address of a host where nobody listened a moment ago. No cluster gets the same one.
func FreeAddr(host string) (string, error) {
	l, err := listenBelow(host, portOthersFirst, portLast)
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// The kernel never gives one of these ports to a program that asks for any port (ip_local_port_range), on any
// address: otherwise another program could get a port between its choice and its use.
const (
	portFirst       = 10_000
	portOthersFirst = 28_000
	portLast        = 32_767
	portTries       = 100
)

func listenBelow(host string, first, last int) (l net.Listener, err error) {
	for range portTries {
		port := first + rand.IntN(last+1-first)
		if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	return nil, err
}
