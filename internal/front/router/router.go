package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/deadhost"
	"github.com/quorate/quorate/internal/sys/strangers"
)

const (
	// connMaxDefault bounds the open client connections. Each costs two sockets, two goroutines
	// (16 KiB) and two buffers (32 KiB): 10000 take half a GiB, and are more than any mysqld
	// serves well.
	connMaxDefault = 10_000
	// At most strangersPerSource clients of one address may have a server's greeting for longer than
	// strangersSpare without a login. mysqld gives a login 10 s, and has 151 places by default: the
	// silent clients of an address take at most 32 places on each of three nodes. All clients of a pool
	// may still log in at once.
	strangersPerSource = 32
	strangersSpare     = 2 * time.Second
	// bufferBytes is the size of one direction's buffer.
	bufferBytes = 16 << 10
	// dialTimeout bounds one attempt to reach a mysqld or a peer's router,
	// including its status byte.
	dialTimeout = 3 * time.Second
	// routedDialTimeout bounds the accepting side's own dial. It is shorter, so that the
	// dialling side gets a refusal and no timeout if mysqld hangs.
	routedDialTimeout = 2 * time.Second
	// A held connection tries again when the primary changes. If the primary is known but
	// refuses (it was just elected and has no lease yet), it tries again after retryMin, then
	// after twice as long each time, up to retryMax: 1000 held connections make at most 1000
	// dials a second.
	retryMin = 50 * time.Millisecond
	retryMax = time.Second
	// acceptPause is the pause after a failed accept (out of descriptors).
	acceptPause = 50 * time.Millisecond
	// errorWriteTimeout bounds writing the error packet or the status byte.
	errorWriteTimeout = time.Second
)

// Target is the node that a client is connected to.
type Target struct {
	Node cluster.NodeID
	// Local says that the server is this node's mysqld.
	Local bool
}

// Backend is what the router asks about the cluster. The agent implements it, for each port.
// All methods may be called from many goroutines.
type Backend interface {
	// Choose returns the target for a new client; ok=false if there is none. Of equally good nodes it returns
	// the one with the fewest sessions of this router. tried has the nodes that have not taken this client.
	Choose(sessions func(cluster.NodeID) int, tried []cluster.NodeID) (t Target, ok bool)
	// Takes reports whether a client may be connected to t now. Choose has returned t a moment ago, or another node has
	// sent the client here: then only t.Local is set.
	Takes(t Target) bool
	// Leaves reports whether the sessions with t must end, although t may still serve them.
	Leaves(t Target) bool
	// Changed returns a channel that is closed when an answer of Choose or Leaves may have
	// changed since the call, or Serving may have become false.
	Changed() <-chan struct{}
	// DialLocal connects to this node's mysqld.
	DialLocal(ctx context.Context) (net.Conn, error)
	// DialPeer opens a stream to another node's router.
	DialPeer(ctx context.Context, id cluster.NodeID) (net.Conn, error)
	// Serving reports whether this node's mysqld may serve the clients of the port now: as a primary with a
	// valid lease, or as a replica. It is called for every chunk from a client and must be cheap.
	Serving() bool
	// Answering reports whether requests that were passed to this node's mysqld
	// under the lease may still get their answer, though the lease has ended.
	Answering() bool
}

// Config holds the router's settings.
type Config struct {
	// Listen is the host:port for clients.
	Listen string
	// ReadOnly says that the port is for reads, from replicas; else it is for the primary. It decides only
	// the texts for clients.
	ReadOnly bool
	// HoldTimeout is how long a new connection waits for a node that takes it. One attempt
	// to connect (3 s) that began before may end after it.
	HoldTimeout time.Duration
	// HoldMax is how many connections may wait at the same time.
	HoldMax int
	// Refuse says that clients which another node than Self would serve are refused, not passed
	// on.
	Refuse bool
	Self   cluster.NodeID
	// ConnMax is how many client connections may be open, including held ones and those that
	// peers forward; 0 = 10000.
	ConnMax int
	// Name returns the name of a node for the log; nil = its number.
	Name func(cluster.NodeID) string
	// Allow has the networks from which clients may come; empty = from anywhere.
	Allow  []netip.Prefix
	Logger *slog.Logger
}

// Router accepts the clients of one port and connects them to a node.
type Router struct {
	config  Config
	backend Backend
	buffers sync.Pool
	stats   counters
	// ended bounds the log lines about sessions that ended, refusals those about refused logins. They are
	// separate, so that many ordinary sessions cannot hide a client that guesses passwords.
	ended, refusals strangers.Burst
	// held has the clients that wait for a node, strangers those that are connected to a node
	// and have not logged in.
	held, strangers *strangers.Room

	listener net.Listener

	mu sync.Mutex
	// base is Run's context while Run accepts work, nil before and after. It is kept here
	// because HandleRouted has no context of its own.
	base     context.Context
	sessions map[*session]struct{}
	newest   uint64                     // number of the session that was registered last
	waiting  map[*net.TCPConn]time.Time // held clients, and since when they wait
	load     map[cluster.NodeID]int     // number of sessions with a node
	open     int                        // client connections, held and routed ones included
	workers  sync.WaitGroup
}

// New makes a Router. It opens and starts nothing.
func New(config Config, backend Backend) *Router {
	if config.ConnMax == 0 {
		config.ConnMax = connMaxDefault
	}
	if config.Name == nil {
		config.Name = func(id cluster.NodeID) string { return fmt.Sprint(id) }
	}
	r := &Router{
		config: config, backend: backend, sessions: make(map[*session]struct{}), waiting: make(map[*net.TCPConn]time.Time), load: make(map[cluster.NodeID]int),
		held: strangers.New(strangers.Limits{Max: config.HoldMax, PerSource: config.HoldMax}, config.Logger),
		strangers: strangers.New(strangers.Limits{
			Max: max(1, config.ConnMax/2), PerSource: strangersPerSource, Spare: strangersSpare, Allow: config.Allow,
		}, config.Logger),
	}
	r.buffers.New = func() any { return new([bufferBytes]byte) }
	return r
}

// Listen binds the client port, so that "port in use" is known before anything
// else happens; the error names the address. Run closes it.
func (r *Router) Listen() (err error) {
	lc := net.ListenConfig{KeepAliveConfig: deadhost.KeepAlive()}
	r.listener, err = lc.Listen(context.Background(), "tcp", r.config.Listen)
	return err
}

// Unlisten closes the port, for a caller that does not call Run after Listen, or whose Run has
// ended.
func (r *Router) Unlisten() {
	if r.listener != nil {
		r.listener.Close()
	}
}

// Addr returns the address that Listen has bound.
func (r *Router) Addr() net.Addr { return r.listener.Addr() }

// Run serves clients until ctx ends. It closes the port and all connections
// and returns nil after everything that it started has ended. Listen must have
// succeeded before.
func (r *Router) Run(ctx context.Context) error {
	if r.listener == nil {
		return errors.New("run router: Listen was not called")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.base = ctx
	r.mu.Unlock()
	r.workers.Go(func() { r.watch(ctx) })
	r.workers.Go(func() { r.watchSessions(ctx) })
	r.workers.Go(func() {
		<-ctx.Done()
		r.listener.Close()
	})
	err := r.accept(ctx)
	cancel()
	r.mu.Lock()
	r.base = nil // from here on start and register refuse
	r.mu.Unlock()
	r.closeSessions(func(*session) bool { return true })
	r.workers.Wait()
	return err
}

func (r *Router) accept(ctx context.Context) error {
	for {
		conn, err := r.listener.Accept()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept client: %w", err)
		default:
			// Out of descriptors or memory: the next connection may work.
			r.stats.acceptErrors.Add(1)
			r.config.Logger.Warn("cannot accept a client", "err", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		r.stats.accepted.Add(1)
		if !r.strangers.Allows(conn.RemoteAddr()) {
			r.strangers.Log().Warn(conn.RemoteAddr(), "closed a client's connection: router.allow does not have its address")
			conn.Close()
			continue
		}
		if !r.start(func(ctx context.Context) { r.serve(ctx, conn.(*net.TCPConn)) }) {
			// A new socket's buffer takes the packet at once: no goroutine needed.
			r.stats.rejected.Add(1)
			reject(conn, codeConnCount, "quorate: too many connections on this node's router")
		}
	}
}

// start runs f in a goroutine as one of the ConnMax connections. It returns
// false, and does nothing, if there are too many or Run does not run.
func (r *Router) start(f func(context.Context)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base == nil || r.open >= r.config.ConnMax {
		return false
	}
	ctx := r.base
	r.open++
	r.workers.Go(func() {
		f(ctx)
		r.mu.Lock()
		r.open--
		r.mu.Unlock()
	})
	return true
}

// watch closes the sessions that must end after a change. A session that begins after it has looked at them is right by
// itself: dial asks, once the session is registered.
func (r *Router) watch(ctx context.Context) {
	for {
		changed := r.backend.Changed()
		targets, newest := r.targets()
		serving := r.backend.Serving()
		answering := !serving && r.backend.Answering()
		leaves := map[Target]bool{}
		for _, t := range targets {
			leaves[t] = r.backend.Leaves(t)
		}
		r.stats.closedByChange.Add(r.closeSessions(func(s *session) bool {
			if s.number > newest {
				return false
			}
			// A session that had not asked yet may have begun since, because the node serves now.
			return leaves[s.Target] || s.Local && !serving && !(answering && s.waits()) && !r.backend.Serving()
		}))
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// watchSessions warns, at intervals and when ctx ends, of the sessions that were closed for lack
// of a lease. It closes the sessions of clients whose hosts have died.
func (r *Router) watchSessions(ctx context.Context) {
	ticker := time.NewTicker(deadhost.Every)
	defer ticker.Stop()
	for told := int64(0); ctx.Err() == nil; told = r.warnLease(told) {
		select {
		case <-ticker.C:
			r.closeDead(deadhost.After)
		case <-ctx.Done():
		}
	}
}

// closeDead closes the sessions of clients whose hosts have acknowledged nothing for a time: mysqld keeps their locks. A client
// that another node's router has sent is looked at there.
func (r *Router) closeDead(after time.Duration) {
	if n := r.closeSessions(func(s *session) bool { return deadhost.Silent(s.client, after) }); n > 0 {
		r.config.Logger.Warn("client sessions closed: their hosts have acknowledged nothing for "+after.String(), "sessions", n)
	}
}

// warnLease warns of the sessions that were closed for lack of a lease, except the first told
// of them, which a warning had already. It returns how many have had a warning now.
func (r *Router) warnLease(told int64) int64 {
	n := r.stats.closedByLease.Load()
	if n > told {
		r.config.Logger.Warn("client sessions closed: "+r.notServing(), "sessions", n-told)
	}
	return n
}

// CloseAll closes every client connection of the local mysqld, including those that peers
// forwarded, and returns when that is done. It is the router's part of fencing. It may be
// called at any time.
func (r *Router) CloseAll() {
	r.stats.closedByFence.Add(r.closeSessions(func(s *session) bool { return s.Local }))
}

// targets returns the targets that have sessions, and the number of the newest session.
func (r *Router) targets() (targets []Target, newest uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[Target]struct{}{}
	for s := range r.sessions {
		all[s.Target] = struct{}{}
	}
	return slices.Collect(maps.Keys(all)), r.newest
}

// sessionsWith returns how many sessions this router has with a node.
func (r *Router) sessionsWith(id cluster.NodeID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.load[id]
}

// closeSessions closes the sessions that match, and returns how many it closed.
func (r *Router) closeSessions(match func(*session) bool) int64 {
	r.mu.Lock()
	var doomed []*session
	for s := range r.sessions {
		if match(s) {
			doomed = append(doomed, s)
		}
	}
	r.mu.Unlock()
	closed := int64(0)
	for _, s := range doomed {
		if s.close() {
			closed++
		}
	}
	return closed
}

// register makes a session visible to closeSessions, before its server side
// is dialled: a fence cannot slip between the dial and the registration.
func (r *Router) register(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base == nil {
		return false
	}
	r.newest++
	s.number = r.newest
	r.sessions[s] = struct{}{}
	r.load[s.Node]++
	return true
}

func (r *Router) unregister(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, s)
	if r.load[s.Node]--; r.load[s.Node] == 0 {
		delete(r.load, s.Node)
	}
}
