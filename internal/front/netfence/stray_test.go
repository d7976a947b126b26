package netfence

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// outOfWindow sends a packet of a connection that is far from what the other side expects, as a
// late retransmission is. Connection tracking does not assign it to the connection, so it is
// not translated: whoever got it would answer with a reset.
func outOfWindow(t *testing.T, conn net.Conn) {
	t.Helper()
	local, remote := conn.LocalAddr().(*net.TCPAddr), conn.RemoteAddr().(*net.TCPAddr)
	family, from, to := unix.AF_INET, local.IP.To4(), remote.IP.To4()
	if from == nil {
		family, from, to = unix.AF_INET6, local.IP.To16(), remote.IP.To16()
	}
	next := nextReceived(t, conn)
	packet := make([]byte, 20+4)
	binary.BigEndian.PutUint16(packet[0:], uint16(local.Port))
	binary.BigEndian.PutUint16(packet[2:], uint16(remote.Port))
	binary.BigEndian.PutUint32(packet[4:], nextSent(t, conn)+1<<30)
	binary.BigEndian.PutUint32(packet[8:], next)
	packet[12], packet[13] = 5<<4, 0x18 // PSH, ACK
	binary.BigEndian.PutUint16(packet[14:], 1000)
	copy(packet[20:], "late")
	// In IPv6's pseudo header, the length and the protocol have other places, which does not
	// change the sum.
	pseudo := slices.Concat(from, to, []byte{0, unix.IPPROTO_TCP, 0, byte(len(packet))})
	binary.BigEndian.PutUint16(packet[16:], checksum(append(pseudo, packet...)))
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	address := func(ip net.IP) unix.Sockaddr {
		if family == unix.AF_INET6 {
			return &unix.SockaddrInet6{Addr: [16]byte(ip)}
		}
		return &unix.SockaddrInet4{Addr: [4]byte(ip)}
	}
	if err := unix.Bind(fd, address(from)); err != nil {
		t.Fatal(err)
	}
	// A packet that is dropped on its way out is not permitted.
	if err := unix.Sendto(fd, packet, 0, address(to)); err != nil && !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// In repair mode the kernel shows the sequence numbers of a socket.
const receiveQueue, sendQueue = 1, 2

func nextReceived(t *testing.T, conn net.Conn) uint32 { return sequence(t, conn, receiveQueue) }

func nextSent(t *testing.T, conn net.Conn) uint32 { return sequence(t, conn, sendQueue) }

func sequence(t *testing.T, conn net.Conn, queue int) (next uint32) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	controlErr := raw.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
			return
		}
		if err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, queue); err == nil {
			n, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
		}
		const offWithoutProbe = -1
		if off := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, offWithoutProbe); err == nil {
			err = off
		}
		if err == nil { // which repair mode takes: the next test needs the port
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		}
	})
	if err != nil || controlErr != nil {
		t.Fatal(err, controlErr)
	}
	return uint32(n)
}
