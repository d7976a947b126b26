package netlab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	tunName = "lab0"
	// tunMTU: large packets need fewer wake-ups of the switch. The kernel cuts
	// a stream into such packets only where it must, see tunOffload.
	tunMTU = 9000
	// tunQueuePackets is how many packets the kernel keeps while the switch gets no
	// processor: 40 ms at 250 000 packets per second.
	tunQueuePackets = 10_000
	// vnetHeaderBytes is the length of struct virtio_net_hdr, which precedes
	// each packet (IFF_VNET_HDR) and goes with it from one TUN to the other. So no
	// checksum is computed and no stream is cut into packets in between.
	vnetHeaderBytes = 10
	tunOffload      = unix.TUN_F_CSUM | unix.TUN_F_TSO4
	// frameBytesMax is the longest read: a TCP stream's 64 KiB as one packet.
	frameBytesMax = vnetHeaderBytes + 64<<10
)

// openTUN makes a TUN device in the namespace, with address, up, and the whole
// network behind it. The device lives as long as the descriptor.
func openTUN(ns *namespace, addr netip.Addr) (int, error) {
	fd := -1
	err := ns.inside(func() error {
		var err error
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return fmt.Errorf("open /dev/net/tun (is the kernel's module tun loaded?): %w", err)
		}
		ifreq, err := unix.NewIfreq(tunName)
		if err != nil {
			return fmt.Errorf("name TUN device: %w", err)
		}
		ifreq.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifreq); err != nil {
			return fmt.Errorf("make TUN device: %w", err)
		}
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tunOffload); err != nil {
			return fmt.Errorf("set offload of TUN device: %w", err)
		}
		return nil
	})
	if err == nil {
		err = configureTUN(ns.handle, addr)
	}
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return -1, err
	}
	return fd, nil
}

func configureTUN(h *netlink.Handle, addr netip.Addr) error {
	link, err := h.LinkByName(tunName)
	if err != nil {
		return fmt.Errorf("find TUN device: %w", err)
	}
	if err := h.LinkSetMTU(link, tunMTU); err != nil {
		return fmt.Errorf("set MTU of TUN device: %w", err)
	}
	if err := h.LinkSetTxQLen(link, tunQueuePackets); err != nil {
		return fmt.Errorf("set queue of TUN device: %w", err)
	}
	if err := h.AddrAdd(link, &netlink.Addr{IPNet: network(addr, networkBits)}); err != nil {
		return fmt.Errorf("set address of TUN device: %w", err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring TUN device up: %w", err)
	}
	return nil
}

// networkBits is the length of the network's prefix: a server that accepts the
// networks of its own interfaces, as Group Replication does, accepts all nodes.
const networkBits = 24

func network(addr netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}
}
