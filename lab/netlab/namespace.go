package netlab

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/sys/subprocess"
)

// namespace is a node's network namespace. It has no name: it lives as long as
// a process, a socket or a descriptor is in it.
type namespace struct {
	fd     int
	handle *netlink.Handle // talks to the kernel from inside
}

// newNamespace makes a namespace with its loopback up.
func newNamespace() (*namespace, error) {
	ns := &namespace{fd: -1}
	done := make(chan error, 1)
	subprocess.OnThread(func() { done <- ns.make() })
	if err := <-done; err != nil {
		ns.close()
		return nil, err
	}
	return ns, nil
}

// make runs on a thread that ends afterwards.
func (ns *namespace) make() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare network namespace: %w", err)
	}
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	ns.fd = fd
	if ns.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open rtnetlink: %w", err)
	}
	lo, err := ns.handle.LinkByName("lo")
	if err == nil {
		err = ns.handle.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	return nil
}

// inside runs f on a thread in the namespace and returns when f returns. A socket
// belongs to the namespace in which it was opened, wherever it is used.
func (ns *namespace) inside(f func() error) error {
	done := make(chan error, 1)
	subprocess.OnThread(func() {
		if err := ns.enter(); err != nil {
			done <- err
			return
		}
		done <- f()
	})
	return <-done
}

// enter moves the calling thread, which must be one of subprocess.OnThread's, into the
// namespace.
func (ns *namespace) enter() error {
	if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

func (ns *namespace) close() {
	if ns.handle != nil {
		ns.handle.Close()
	}
	if ns.fd >= 0 {
		_ = unix.Close(ns.fd)
	}
}
