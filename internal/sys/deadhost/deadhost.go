package deadhost

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// After is how long a host may acknowledge nothing.
const After = 30 * time.Second

// Every is how often a port looks at its connections.
const Every = 10 * time.Second

// attemptsMin is how many attempts in a row a silent host has not acknowledged: as many as KeepAlive makes. A client that
// is alive and reads nothing acknowledges each probe, so that it never comes so far.
const attemptsMin = 3

// KeepAlive lets the kernel end an idle connection whose host has been silent for After.
func KeepAlive() net.KeepAliveConfig {
	const interval = After / 6
	return net.KeepAliveConfig{Enable: true, Idle: After - attemptsMin*interval, Interval: interval, Count: attemptsMin}
}

// Silent tells whether something was sent to the host of a TCP connection again and again, and it has acknowledged nothing for
// a time. It is false for any other connection.
func Silent(conn net.Conn, after time.Duration) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false // it is closed
	}
	silent := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		silent = err == nil && max(info.Retransmits, info.Probes) >= attemptsMin &&
			time.Duration(info.Last_ack_recv)*time.Millisecond >= after
	})
	return err == nil && silent
}
