package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/front/control"
)

const (
	// controlConnMax bounds the connections to the control socket, which people and their
	// scripts use.
	controlConnMax = 32
	// controlBacklog is how many more connections may wait in the kernel.
	controlBacklog = 128
)

// callerKey is the key under which a connection's context has the caller that opened it.
type callerKey struct{}

// caller is the other end of a connection. left is the event of poll(2) that says that it has gone.
type caller struct {
	conn syscall.RawConn
	left int16
}

// withCaller notes in ctx who opened a connection.
func withCaller(ctx context.Context, conn net.Conn) context.Context {
	var c caller
	switch wrapped := conn.(type) {
	case *limitConn: // of the control socket. A caller that only closes its sending half waits for the answer
		conn, c.left = wrapped.Conn, unix.POLLHUP
	case *guest: // of the port. With TCP it looks like a caller that has gone
		conn, c.left = wrapped.Conn, unix.POLLRDHUP
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return ctx
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return ctx
	}
	c.conn = raw
	return context.WithValue(ctx, callerKey{}, c)
}

// gone tells whether the caller has ended, or has closed its end.
func (c caller) gone() (gone bool) {
	err := c.conn.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd), Events: c.left}}
		n, err := unix.Poll(look, 0)
		gone = n == 1 && err == nil && look[0].Revents&(c.left|unix.POLLHUP) != 0
	})
	return gone || err != nil
}

// peerKey is the key under which a connection's context has the *peer that opened it.
type peerKey struct{}

// peer is the account of the process at the other end of the control socket, as the kernel
// names it.
type peer struct {
	*unix.Ucred
	groups []uint32 // in addition to Gid
}

// peerGroupsMax is how many groups of a process are read.
const peerGroupsMax = 4096

// peerOf asks the kernel for the peer of a socket.
func peerOf(fd int) (*peer, error) {
	account, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	groups := make([]uint32, peerGroupsMax)
	size := uint32(4 * len(groups))
	if _, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0); e != 0 {
		return &peer{Ucred: account}, nil // too many groups, or an old kernel
	}
	return &peer{Ucred: account, groups: groups[:size/4]}, nil
}

// ListenControl opens the control socket. The caller must hold the lock of the node's data
// directory. So a socket that exists, and where nobody answers, was left by a process that has
// ended. Run closes the control socket.
//
// Only the allowed accounts can connect: the mode is set between bind and listen, and the
// kernel checks it at connect(2).
func (s *Server) ListenControl() error {
	path := s.config.Socket
	if err := checkDirectory(filepath.Dir(path)); err != nil {
		return err
	}
	if err := removeStale(path); err != nil {
		return err
	}
	gid, mode := -1, fs.FileMode(0o600)
	if name := s.config.Group; name != "" {
		group, err := user.LookupGroup(name)
		if err != nil {
			return fmt.Errorf("look up control.group: %w", err)
		}
		if gid, err = strconv.Atoi(group.Gid); err != nil {
			return fmt.Errorf("look up control.group: %w", err)
		}
		s.controlGroup, mode = uint32(gid), 0o660
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make control socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close() // FileListener has a copy
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("bind control socket %s: %w", path, err)
	}
	err = errors.Join(os.Chmod(path, mode), os.Lchown(path, -1, gid), unix.Listen(fd, controlBacklog))
	var l net.Listener
	if err == nil {
		l, err = net.FileListener(f)
	}
	if err != nil {
		return fmt.Errorf("open control socket %s: %w", path, errors.Join(err, os.Remove(path)))
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(true)
	}
	s.control = l
	return nil
}

// checkDirectory refuses a directory in which other accounts could replace the socket by
// something else: the agent would change the mode of that, and operators would send their
// requests there. In a sticky directory others cannot do that.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the control socket's directory: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("control socket: others may write its directory %s (%v): chmod go-w, or set control.socket", dir, info.Mode())
	}
	return nil
}

// removeStale removes a socket where no process listens. It returns an error where one does,
// even if that process is busy or does not let us connect.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the control socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("control socket %s: there is another file of that name: remove it", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("control socket %s is in use by another agent: set control.socket to a path of this node's own", path)
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("find out whether another agent uses the control socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the old control socket: %w", err)
	}
	return nil
}

// withPeer notes in ctx which account opened a connection to the control socket.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	ctx = withCaller(ctx, conn)
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		return ctx
	}
	var p *peer
	var err error
	if c.conn.Control(func(fd uintptr) { p, err = peerOf(int(fd)) }) != nil || err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// mayAsk tells whether an account may send requests. The kernel has checked that by the socket's mode; mayAsk
// checks again, in case somebody has changed the mode.
func (s *Server) mayAsk(p *peer) bool {
	return p != nil && (p.Uid == 0 || int(p.Uid) == os.Geteuid() ||
		s.config.Group != "" && (p.Gid == s.controlGroup || slices.Contains(p.groups, s.controlGroup)))
}

// whoAsked names the account behind a connection. For root it adds the account that became root
// by sudo, as the client claims it.
func whoAsked(peer *peer, sudo string) string {
	uid := strconv.FormatUint(uint64(peer.Uid), 10)
	name := "uid " + uid
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	name += "@" + cmp.Or(host, "unknown host")
	if peer.Uid == 0 && sudo != "" {
		name += " (sudo by " + sudo + ")"
	}
	return name
}

// answerControl answers POST /control/NAME on the control socket. It sets By to the account
// that the kernel names.
func (s *Server) answerControl(w http.ResponseWriter, r *http.Request) {
	peer, _ := r.Context().Value(peerKey{}).(*peer)
	if !s.mayAsk(peer) {
		s.config.Logger.Warn("a request on the control socket was refused: the account may not ask there", "name", r.PathValue("name"))
		http.Error(w, "requests are taken from root and from the account of the agent only (and a group, with control.group)", http.StatusForbidden)
		return
	}
	var request control.Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, control.RequestBytesMax)).Decode(&request); err != nil {
		http.Error(w, fmt.Sprintf("decode request: %v", err), http.StatusBadRequest)
		return
	}
	request.Name, request.By = r.PathValue("name"), whoAsked(peer, request.By)
	answer, err := s.carriedOut(w, r, request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.reply(w, httpStatus(answer.Code), answer)
}
