package netfence

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// inside is set in the process that runs the tests: it has a network namespace of its
// own, so nothing here touches the rules of the host's.
const inside = "QUORATE_NETFENCE_TEST"

// The addresses of the namespace.
const (
	address4, other4 = "10.9.9.1", "10.9.9.2"
	address6         = "fd00::9:1"
)

func TestMain(m *testing.M) {
	if os.Getenv(inside) == "" {
		os.Exit(runInside())
	}
	if err := addAddresses(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// runInside runs this program again in a new network namespace; in a new user namespace,
// too, without root.
func runInside() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "skipped: no network namespace can be made here:", err)
		if os.Getenv("CI") != "" {
			return 1
		}
	}
	return 0
}

func addAddresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	for _, a := range []string{address4 + "/32", other4 + "/32", address6 + "/128"} {
		addr, err := netlink.ParseAddr(a)
		if err == nil {
			addr.Flags = unix.IFA_F_NODAD
			err = netlink.AddrAdd(lo, addr)
		}
		if err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	return netlink.LinkSetUp(lo)
}
