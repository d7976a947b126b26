package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
)

// errRefused means that every address of a peer answered a dial with a reset:
// the host is alive and no process listens there.
var errRefused = errors.New("connection refused")

// keepAlive is for connections that have no pings. A routed stream may be idle for hours, or held up by a client that
// reads slowly. TCP_USER_TIMEOUT would take that for a dead host. A bulk stream may be held up by a slow disk.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: userTimeout, Interval: time.Second, Count: 5}

// dial opens a TCP connection to a peer. The error wraps errRefused only if every address of the peer's host
// refused. An address that is silent or unreachable leaves doubt, and doubt is not a refusal. Nor is a refusal at
// an address that the host had before: another host may have it now.
func (t *Transport) dial(ctx context.Context, to Peer, c class) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.tune.dialTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return nil, fmt.Errorf("dial peer: %w", err)
	}
	ips, old, err := t.addresses(ctx, to, host)
	if err != nil {
		return nil, fmt.Errorf("dial peer: %w", err)
	}
	d := net.Dialer{}
	if c != classControl && c != classAppend {
		d.KeepAliveConfig = keepAlive
	} else {
		d.KeepAlive = -1 // pings do that job
		d.Control = setUserTimeout
	}
	refusals, errs := 0, make([]error, 0, len(ips))
	for i, ip := range ips {
		conn, err := dialOne(ctx, d, net.JoinHostPort(ip.String(), port), len(ips)-i)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			refusals++
		}
		errs = append(errs, err)
	}
	switch err := errors.Join(errs...); {
	case old != nil:
		return nil, fmt.Errorf("dial peer: %w. That may be no address of it any more: %w", err, old)
	case refusals == len(ips) && refusals > 0:
		return nil, fmt.Errorf("dial peer at %s: %w", to.Addr, errRefused)
	default:
		return nil, fmt.Errorf("dial peer: %w", err)
	}
}

// dialOne dials one of the remaining addresses and leaves time for the others.
func dialOne(ctx context.Context, d net.Dialer, addr string, remaining int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(remaining))
		defer cancel()
	}
	return d.DialContext(ctx, "tcp", addr)
}

// setUserTimeout bounds how long sent bytes may stay unacknowledged by the
// other host's kernel: without it a silent host is noticed after 15 minutes.
func setUserTimeout(_, _ string, raw syscall.RawConn) error {
	var err error
	if e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	}); e != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", e)
	}
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}

// accepted is the result of a handshake: the protocol version of the connection, and the node at the other end.
type accepted struct {
	version uint16
	by      Identity
}

// connect dials p and makes the handshake. The error wraps errRefused, is a *RejectedError, or says what else
// went wrong.
func (t *Transport) connect(ctx context.Context, p Peer, c class) (net.Conn, accepted, error) {
	security := *t.security.Load()
	if t.key.Load() == nil || security == cluster.PeersPlain {
		return t.connectAs(ctx, p, c, false)
	}
	conn, as, err := t.connectAs(ctx, p, c, true)
	if security == cluster.PeersRequire || err == nil || errors.Is(err, errRefused) || ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return conn, as, err // a peer that is slow says nothing against TLS
	}
	if r, rejected := errors.AsType[*RejectedError](err); rejected && (r.Code != CodeKey || r.By != p.Name) {
		return conn, as, err
	}
	// The peer has no key, or does not know this node's key yet.
	conn, as, plainErr := t.connectAs(ctx, p, c, false)
	if errors.Is(plainErr, errUnanswered) {
		return nil, accepted{}, err // err says more
	}
	return conn, as, plainErr
}

func (t *Transport) connectAs(ctx context.Context, p Peer, c class, protected bool) (net.Conn, accepted, error) {
	conn, err := t.dial(ctx, p, c)
	if err != nil {
		return nil, accepted{}, err
	}
	tcp := conn
	stop := context.AfterFunc(ctx, func() { _ = tcp.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(t.tune.handshakeTimeout)); err != nil {
		_ = conn.Close()
		return nil, accepted{}, fmt.Errorf("set handshake deadline: %w", err)
	}
	if protected {
		if conn, err = t.wrap(ctx, tcp, p); err != nil {
			_ = tcp.Close()
			return nil, accepted{}, err
		}
	}
	as, err := t.greet(conn, p, c)
	if err != nil {
		if r, ok := errors.AsType[*RejectedError](err); ok && r.By == "" {
			r.By = t.cfg.Identity.NodeName
		}
		_ = conn.Close()
		return nil, accepted{}, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close()
		return nil, accepted{}, fmt.Errorf("clear handshake deadline: %w", err)
	}
	return conn, as, nil
}

// DialRoute opens a stream to the peer's router: its Handler.Route gets the other end. The caller owns the
// connection, which is closed when nothing has come from the peer for 10 s. ctx bounds only the opening. The
// opening waits while routesOpenedMax other streams to that peer are being opened. The error is ErrUnknownPeer,
// a *RejectedError, ctx's or a network error.
func (t *Transport) DialRoute(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	return t.open(ctx, id, classRoute)
}

// DialRead opens a stream to the peer's router for a client that only reads: its Handler.RouteRead gets the
// other end. Everything else is as with DialRoute, and routesOpenedMax counts both. A peer that knows no such
// streams is not asked: a *RejectedError says so.
func (t *Transport) DialRead(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	return t.open(ctx, id, classRead)
}

// DialBulk opens a stream for bulk copies to the peer: its Handler.Bulk gets the other end. Everything else is
// as with DialRoute, but it does not wait for other openings, and is not closed because the peer is silent.
func (t *Transport) DialBulk(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	return t.open(ctx, id, classBulk)
}

func (t *Transport) open(ctx context.Context, id cluster.NodeID, c class) (net.Conn, error) {
	p := t.peer(id)
	if p == nil {
		return nil, fmt.Errorf("open %v stream to node %d: %w", c, id, ErrUnknownPeer)
	}
	if err := p.knows(c); err != nil {
		return nil, fmt.Errorf("open %v stream to node %q: %w", c, p.Name, err)
	}
	if c == classRoute || c == classRead { // clients cause these, so there may be many
		select {
		case p.opening <- struct{}{}:
			defer func() { <-p.opening }()
		case <-ctx.Done():
			return nil, fmt.Errorf("open %v stream to node %q: %w", c, p.Name, context.Cause(ctx))
		}
	}
	conn, _, err := t.connect(ctx, p.Peer, c)
	if err != nil {
		return nil, fmt.Errorf("open %v stream to node %q: %w", c, p.Name, err)
	}
	if c == classRoute || c == classRead {
		p.shookHands.Store(t.now())
		return p.route(conn), nil
	}
	return conn, nil
}

// Introduction is what the peers say to a node that introduces itself.
type Introduction struct {
	// Rejections are the refusals of the peers that refuse the node, in no order.
	Rejections []*RejectedError
	// Welcomes are the names of the peers that accept the node and have data. Empty are the peers that accept
	// it and have an empty data directory, too. Silent are the peers that did not answer. All are sorted.
	Welcomes, Empty, Silent []string
	// Doubts says, for a silent peer's name, why it does not count as heard although something answers at its
	// address: it shows another key than the peer's, or closes connections without TLS.
	Doubts map[string]string
}

// Introduce shakes hands with every peer once and does nothing else. A node asks this, with a zero Instance,
// before it writes to an empty data directory. Peers that do not answer within dialTimeout and the handshake's
// 2 s are silent. Neither Run nor Answer need be under way. Answer answers other nodes that introduce
// themselves at the same time.
func (t *Transport) Introduce(ctx context.Context) Introduction {
	return t.greetAll(ctx, classControl)
}

// AskWhoRefuses shakes hands with every peer once, as if for a question (DialCall), but asks none. It returns
// the rejections of the peers that refuse, in no order. Everything else is as with Introduce.
func (t *Transport) AskWhoRefuses(ctx context.Context) []*RejectedError {
	return t.greetAll(ctx, classCall).Rejections
}

func (t *Transport) greetAll(ctx context.Context, c class) (i Introduction) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, p := range t.allPeers() {
		all.Go(func() {
			conn, as, err := t.connect(ctx, p.Peer, c)
			if err == nil {
				_ = conn.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			i.Add(p.Name, as.by, err)
		})
	}
	all.Wait()
	for _, names := range [][]string{i.Welcomes, i.Empty, i.Silent} {
		slices.Sort(names)
	}
	return i
}

// Add adds the answer of one peer: its identity if it accepts, else an error.
func (i *Introduction) Add(name string, as Identity, err error) {
	var rejected *RejectedError
	switch {
	case errors.As(err, &rejected) && rejected.Code == CodeKey && rejected.By != name:
		i.doubt(name, rejected.Text) // any process may answer there
	case errors.Is(err, errUnanswered):
		i.doubt(name, errUnanswered.Error())
	case errors.As(err, &rejected):
		i.Rejections = append(i.Rejections, rejected)
	case err != nil:
		i.Silent = append(i.Silent, name)
	case as.Empty():
		i.Empty = append(i.Empty, name)
	default:
		i.Welcomes = append(i.Welcomes, name)
	}
}

func (i *Introduction) doubt(name, text string) {
	i.Silent = append(i.Silent, name)
	if i.Doubts == nil {
		i.Doubts = map[string]string{}
	}
	i.Doubts[name] = text
}
