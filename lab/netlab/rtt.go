package netlab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// pingWait is how long an echo may take before it counts as lost.
	pingWait = time.Second
	// pingPause lets the machine come to rest between two echoes.
	pingPause = time.Millisecond
	// pingsMax bounds a measurement.
	pingsMax = 100_000
)

// RTT is the time of ICMP echoes as the kernel saw it: from the call that sent
// the request until the reply was at the sender's interface. It does not include the time until a
// process wakes up.
type RTT struct {
	Configured         time.Duration
	Min, P50, P99, Max time.Duration
	Sent, Lost         int
}

// MeasureRTT sends count echoes from one node to another, one after the other.
// It fails if none comes back.
func (n *Network) MeasureRTT(ctx context.Context, from, to string, count int) (RTT, error) {
	if count < 1 || count > pingsMax {
		return RTT{}, fmt.Errorf("netlab: %d echoes: choose from 1 to %d", count, pingsMax)
	}
	if _, err := n.topology.node(to); err != nil {
		return RTT{}, err
	}
	ns, err := n.namespaceOf(from)
	if err != nil {
		return RTT{}, err
	}
	p := &pinger{fd: -1, to: n.Addr(to), id: uint16(rand.Uint32())}
	if err := ns.inside(p.open); err != nil {
		return RTT{}, fmt.Errorf("measure from %s to %s: %w", from, to, err)
	}
	defer closeFD(p.fd)
	result := RTT{Configured: n.topology.RTT(from, to)}
	var times []time.Duration
	for seq := range count {
		select {
		case <-ctx.Done():
			return RTT{}, fmt.Errorf("measure from %s to %s: %w", from, to, ctx.Err())
		case <-time.After(pingPause):
		}
		took, err := p.ping(uint16(seq))
		result.Sent++
		switch {
		case errors.Is(err, errLost):
			result.Lost++
		case err != nil:
			return RTT{}, fmt.Errorf("measure from %s to %s: %w", from, to, err)
		default:
			times = append(times, took)
		}
	}
	if len(times) == 0 {
		return RTT{}, fmt.Errorf("netlab: none of %d echoes from %s to %s came back within %v", count, from, to, pingWait)
	}
	slices.Sort(times)
	result.Min, result.Max = times[0], times[len(times)-1]
	result.P50, result.P99 = quantile(times, 50), quantile(times, 99)
	return result, nil
}

// quantile returns the least of the sorted values so that percent of them are at most that
// value.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[max((len(sorted)*percent+99)/100-1, 0)]
}

// errLost is an echo that did not come back.
var errLost = errors.New("netlab: no reply")

type pinger struct {
	fd int
	to netip.Addr
	id uint16
}

const (
	icmpEchoReply, icmpEchoRequest = 0, 8
	icmpHeaderBytes                = 8
	pingBytes                      = 64 // as ping(8)
)

// open runs in the sender's namespace.
func (p *pinger) open() error {
	var err error
	if p.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP); err != nil {
		return fmt.Errorf("open raw socket: %w", err)
	}
	if err = unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		closeFD(p.fd)
		return fmt.Errorf("ask for timestamps: %w", err)
	}
	return nil
}

// ping sends one echo and waits for it. Both times are taken from the system's clock,
// because the kernel stamps packets with it.
func (p *pinger) ping(seq uint16) (time.Duration, error) {
	sent := time.Now()
	err := unix.Sendto(p.fd, echoRequest(p.id, seq), 0, &unix.SockaddrInet4{Addr: p.to.As4()})
	if err != nil {
		return 0, fmt.Errorf("send echo: %w", err)
	}
	packet, control := make([]byte, 1500), make([]byte, 128)
	for {
		left := max(pingWait-time.Since(sent), 0)
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait for echo: %w", err)
		}
		if ready == 0 {
			return 0, errLost
		}
		n, nc, _, _, err := unix.Recvmsg(p.fd, packet, control, 0)
		if err != nil {
			return 0, fmt.Errorf("receive echo: %w", err)
		}
		if !p.isReply(packet[:n], seq) {
			continue
		}
		at, err := timestamp(control[:nc])
		if err != nil {
			return 0, err
		}
		return at.Sub(sent.Round(0)), nil
	}
}

func echoRequest(id, seq uint16) []byte {
	b := make([]byte, pingBytes)
	b[0] = icmpEchoRequest
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], seq)
	var sum uint32 // RFC 1071
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum+sum>>16))
	return b
}

// isReply says whether an IPv4 packet is the reply to our request seq.
func (p *pinger) isReply(b []byte, seq uint16) bool {
	if len(b) < 20 || netip.AddrFrom4([4]byte(b[12:16])) != p.to {
		return false
	}
	b = b[min(int(b[0]&0xf)*4, len(b)):]
	return len(b) >= icmpHeaderBytes && b[0] == icmpEchoReply &&
		binary.BigEndian.Uint16(b[4:]) == p.id && binary.BigEndian.Uint16(b[6:]) == seq
}

func timestamp(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, fmt.Errorf("read timestamp: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS &&
			len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			var t unix.Timespec
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&t)), unsafe.Sizeof(t)), m.Data)
			return time.Unix(t.Unix()), nil
		}
	}
	return time.Time{}, errors.New("netlab: the kernel gave no timestamp")
}

func closeFD(fd int) { _ = unix.Close(fd) }
