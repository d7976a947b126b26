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

// ErrNotAllowed is Open's error for an agent that lacks CAP_NET_ADMIN, ErrKernel that of a
// kernel that lacks something that is needed.
var (
	ErrNotAllowed = errors.New("the agent may not change nftables: it needs CAP_NET_ADMIN")
	ErrKernel     = errors.New("this kernel's nftables lack something: Linux 5.12 or later is needed, with NAT and reject")
	// ErrSlow is Set's error if the kernel took so long that a window might have outlived
	// what it was for. Set has told the kernel to close all windows then.
	ErrSlow = errors.New("the kernel took too long to take the lease")
	// ErrSilent is Open's and Set's error if the kernel has not said whether it did as it was told.
	ErrSilent = errors.New("the kernel does not answer")
)

// answerTimeout bounds a call of the kernel, but for what others make it wait for: that
// ends when their calls do. openTimeout is for the first ones: modules may have to be loaded.
const (
	answerTimeout = 500 * time.Millisecond
	openTimeout   = 10 * time.Second
)

// tableOwner is NFT_TABLE_F_OWNER (Linux 5.12).
const tableOwner = 0x2

// Config says what is fenced.
type Config struct {
	// Table is the table's name; no two of a host may have the same.
	Table string
	// Server is the address and port that clients reach mysqld at: no loopback, and not
	// the unspecified address.
	Server netip.AddrPort
	// Router is the router's own address and port; an unspecified address = any of this
	// host's. The zero value = nothing is redirected.
	Router netip.AddrPort
}

// Fence is one table.
type Fence struct {
	// bootTime is a clock that goes on while the machine sleeps.
	bootTime func() time.Duration

	mu     sync.Mutex
	conn   *nftables.Conn
	socket *netlink.Conn
	// sets are the windows' halves, newest says which one of each was filled last, and has
	// with what. A call that has failed may have filled the other half, or emptied both.
	sets   [len(windowNames)][2]*nftables.Set
	newest [len(windowNames)]int
	has    [len(windowNames)]Window
}

// Open makes the table, with all windows closed. From then on nobody gets through to
// the server. Close, or the end of this process, removes it: see File.
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

// File returns a further descriptor of the socket that the table belongs to, for a child
// to inherit: the table lasts until all of them are closed. The caller closes it.
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

// Set replaces all windows at once. After an error they may be as before, and end by
// themselves, or closed.
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

// expectAnswers bounds how long answers are waited for from now on. The kernel answers while
// it is called, but not each message if it had no memory for all.
func (f *Fence) expectAnswers(longest time.Duration) error {
	return f.socket.SetReadDeadline(time.Now().Add(longest))
}

// oneOf returns the error that says most of the many of a call.
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

// drain reads what the kernel has said beside an error, so that the next call does not
// take it for its own answer. All of it is there: the kernel answers while it is called.
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

// Close closes the socket. The table goes with the last descriptor of it.
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
