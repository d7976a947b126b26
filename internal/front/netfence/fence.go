package netfence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Errors of Open and Set. ErrNotAllowed: the agent lacks CAP_NET_ADMIN. ErrKernel: the kernel
// lacks a feature that is needed.
var (
	ErrNotAllowed = errors.New("the agent may not change nftables: it needs CAP_NET_ADMIN")
	ErrKernel     = errors.New("this kernel's nftables lack something: Linux 5.12 or later is needed, with NAT and reject")
	// ErrSlow: the kernel took so long in Set that a window might stay open for longer than its
	// lease. Set has then told the kernel to close all windows.
	ErrSlow = errors.New("the kernel took too long to take the lease")
	// ErrSilent: the kernel has not answered, so it is not known whether it did what Open or Set
	// asked.
	ErrSilent = errors.New("the kernel does not answer")
)

// answerTimeout bounds the wait for the kernel's answers, but not the time for which calls of
// other processes make the kernel wait. openTimeout is for the first calls, for which the
// kernel may have to load modules.
const (
	answerTimeout = 500 * time.Millisecond
	openTimeout   = 10 * time.Second
)

// tableOwner is NFT_TABLE_F_OWNER (Linux 5.12).
const tableOwner = 0x2

// Config says what is fenced.
type Config struct {
	// Table is the name of the table. It must be unique on the host.
	Table string
	// Server is the address and port at which clients reach mysqld. It must be neither a
	// loopback nor the unspecified address.
	Server netip.AddrPort
	// Router is the router's own address and port; the unspecified address = any address of
	// this host. The zero value = nothing is redirected.
	Router netip.AddrPort
}

// Fence is one table.
type Fence struct {
	// bootTime is a clock that goes on while the machine sleeps.
	bootTime func() time.Duration

	mu     sync.Mutex
	conn   *nftables.Conn
	socket *netlink.Conn
	// sets are the two halves of each window. newest says which half was filled last, has with
	// which window. A call that failed may have filled the other half, or emptied both.
	sets   [len(windowNames)][2]*nftables.Set
	newest [len(windowNames)]int
	has    [len(windowNames)]Window
}

// Open makes the table, with all windows closed. From then on no client reaches the server.
// Close, or the end of this process, removes the table, unless another process has a descriptor
// of File.
func Open(c Config, bootTime func() time.Duration) (*Fence, error) {
	f := &Fence{bootTime: bootTime}
	if err := f.open(c); err != nil {
		_ = f.Close()
		switch {
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
			return nil, fmt.Errorf("make nftables table %s: %w", c.Table, ErrNotAllowed)
		case errors.Is(err, unix.EEXIST):
			return nil, fmt.Errorf("make nftables table %s: it is there already: %w", c.Table, err)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, fmt.Errorf("make nftables table %s: %w", c.Table, ErrSilent)
		}
		return nil, fmt.Errorf("make nftables table %s: %w: %w", c.Table, ErrKernel, err)
	}
	return f, nil
}

func (f *Fence) open(c Config) (err error) {
	keep := func(s *netlink.Conn) error { f.socket = s; return nil }
	if f.conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(keep)); err != nil {
		return err
	}
	if err := f.expectAnswers(openTimeout); err != nil {
		return err
	}
	table := &nftables.Table{Name: c.Table, Family: nftables.TableFamilyINet}
	if err := f.makeOwned(table); err != nil {
		return err
	}
	rs := rules(c, table)
	f.sets = rs.windows
	if err := f.conn.AddSet(rs.bare, c.bareElements()); err != nil {
		return err
	}
	for _, both := range rs.windows {
		for _, s := range both {
			if err := f.conn.AddSet(s, nil); err != nil {
				return err
			}
		}
	}
	for _, ch := range rs.chains {
		f.conn.AddChain(ch.Chain)
		for _, r := range ch.rules {
			f.conn.AddRule(&nftables.Rule{Table: table, Chain: ch.Chain, Exprs: r})
		}
	}
	return f.conn.Flush()
}

// makeOwned makes the empty table. The library cannot set a table's flags
// (github.com/google/nftables issue 316).
func (f *Fence) makeOwned(t *nftables.Table) error {
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(t.Name), 0)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: binary.BigEndian.AppendUint32(nil, tableOwner)},
	})
	if err != nil {
		return err
	}
	message := func(kind int, flags netlink.HeaderFlags, family byte, resource uint16, body []byte) netlink.Message {
		head := binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
		return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}, Data: append(head, body...)}
	}
	if _, err = f.socket.SendMessages([]netlink.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES, nil),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, netlink.Acknowledge|netlink.Create|netlink.Excl, byte(t.Family), 0, attributes),
		message(unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES, nil),
	}); err != nil {
		return err
	}
	_, err = f.socket.Receive()
	return err
}

// File returns another descriptor of the socket that the table belongs to, for a child to
// inherit. The table lasts until all these descriptors are closed. The caller closes the file.
func (f *Fence) File() (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == nil {
		return nil, os.ErrClosed
	}
	raw, err := f.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	copied := -1
	if controlErr := raw.Control(func(fd uintptr) { copied, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); controlErr != nil {
		return nil, controlErr
	}
	if err != nil {
		return nil, fmt.Errorf("copy the socket of nftables: %w", err)
	}
	return os.NewFile(uintptr(copied), "nftables"), nil
}

// Set replaces all windows at once. After an error the windows may be unchanged, and end by
// themselves, or be closed.
func (f *Fence) Set(s State) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == nil {
		return os.ErrClosed
	}
	now := f.bootTime()
	err := f.set(s, now)
	took := f.bootTime() - now
	slow := func(w Window) bool { return w.timeout(now) > 0 && took > w.slack(now) }
	if all := s.windows(); slices.ContainsFunc(all[:], slow) {
		return errors.Join(ErrSlow, err, f.set(State{}, now))
	}
	return err
}

func (f *Fence) set(s State, now time.Duration) error {
	windows, newest := s.windows(), f.newest
	for i, w := range windows {
		fill := 1 - newest[i]
		f.conn.FlushSet(f.sets[i][fill])
		if !w.extends(f.has[i]) {
			f.conn.FlushSet(f.sets[i][1-fill])
		}
		if elements := w.elements(now); elements != nil {
			if err := f.conn.SetAddElements(f.sets[i][fill], elements); err != nil {
				return err
			}
		}
		newest[i] = fill
	}
	err := f.expectAnswers(answerTimeout)
	if err == nil {
		err = f.conn.Flush()
	}
	if err != nil {
		f.drain()
		return fmt.Errorf("renew the lease in nftables: %w", oneOf(err))
	}
	f.has, f.newest = windows, newest
	return nil
}

// expectAnswers bounds the wait for answers from now on. The kernel answers during the call,
// but if it lacks memory it may leave some messages without an answer.
func (f *Fence) expectAnswers(longest time.Duration) error {
	return f.socket.SetReadDeadline(time.Now().Add(longest))
}

// oneOf returns the most useful one of the errors of a call.
func oneOf(err error) error {
	var number unix.Errno
	switch {
	case errors.As(err, &number):
		return number
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrSilent
	}
	return err
}

// drain reads the answers that came with an error, so that the next call does not take them for
// its own. They have all arrived, because the kernel answers during the call.
func (f *Fence) drain() {
	if f.socket.SetReadDeadline(time.Now().Add(10*time.Millisecond)) != nil {
		return
	}
	for range 64 {
		if _, err := f.socket.Receive(); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
}

// Close closes the socket. The kernel removes the table with the socket's last descriptor.
func (f *Fence) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == nil {
		return nil
	}
	conn := f.conn
	f.conn = nil
	return conn.CloseLasting()
}
