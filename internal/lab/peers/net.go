package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/subprocess"
)

// Net is where the nodes are: addresses, and processes that see only theirs.
// netlab has the real one (OnNetwork); Loopback serves tests and machines where
// nobody is root.
type Net interface {
	// Addr is the address of a node ("a" … "e", "client").
	Addr(node string) netip.Addr
	// Start starts cmd on the node, in a process group of its own. It dies with
	// this process.
	Start(node string, cmd *exec.Cmd) (Process, error)
	// DialContext dials from the node.
	DialContext(node string) func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Process is a started program.
type Process interface {
	Pid() int
	Signal(sig syscall.Signal) error
	// Done is closed once the process has ended and was reaped.
	Done() <-chan struct{}
	// Kill sends SIGKILL to the process group and waits until the process is gone.
	Kill() error
}

// killWait bounds the wait for a killed process to be gone: a server whose
// writes are held up ends only when they are let go.
const killWait = 30 * time.Second

// Loopback is a Net on 127.0.0.0/8: each node has an address, nothing is
// between them.
type Loopback struct{ third byte }

// NewLoopback returns the nodes 127.0.third.1 (a) to .5 (e), and .9 (client).
func NewLoopback(third byte) *Loopback { return &Loopback{third: third} }

// Addr implements Net.
func (l *Loopback) Addr(node string) netip.Addr {
	last := byte(9)
	if node != clientNode {
		last = node[0] - 'a' + 1
	}
	return netip.AddrFrom4([4]byte{127, 0, l.third, last})
}

// DialContext implements Net.
func (l *Loopback) DialContext(string) func(context.Context, string, string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext
}

// Start implements Net.
func (l *Loopback) Start(_ string, cmd *exec.Cmd) (Process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p, err := subprocess.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return &child{p}, nil
}

type child struct{ *subprocess.Process }

func (p *child) Kill() error {
	select {
	case <-p.Done():
		return nil // its group's id may be another's
	default:
	}
	if err := syscall.Kill(-p.Pid(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process group %d: %w", p.Pid(), err)
	}
	select {
	case <-p.Done():
		return nil
	case <-time.After(killWait):
		return fmt.Errorf("kill process %d: it is still there after %v", p.Pid(), killWait)
	}
}
