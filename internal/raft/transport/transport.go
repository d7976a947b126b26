package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/sys/strangers"
)

const (
	// dialTimeout covers name resolution and TCP; a SYN that was lost is
	// retried by the kernel after 1 s, which a new dial does as well.
	dialTimeout = time.Second
	// handshakeTimeout bounds all of a handshake on either side.
	handshakeTimeout = 2 * time.Second
	// userTimeout is how long sent bytes may go unacknowledged. Raft elects in
	// 1 s without asking the transport; this only frees the connection.
	userTimeout = 5 * time.Second
	// idleTimeout ends an accepted connection on which nothing comes: its
	// sender's host is gone. Pings come at least every 2 × pingInterval.
	idleTimeout  = 10 * time.Second
	pingInterval = 2 * time.Second

	backOffMin = 50 * time.Millisecond
	backOffMax = time.Second
	// FoundAfter is how long a process has listened when each peer that reaches it has dialled
	// it, though nobody listened there before: the longest back-off and a dial.
	FoundAfter = backOffMax + dialTimeout
	// rejectedWait: most often a person must change something first. It is no longer than
	// backOffMax, or FoundAfter would not hold.
	rejectedWait = time.Second
	// stableAfter is how long a connection must have lasted for its loss to be
	// followed by a dial without any wait.
	stableAfter = time.Second

	acceptRetryWait = 50 * time.Millisecond
	// strangersMax bounds the accepted connections whose handshake is in progress. Eight peers
	// that open routes (routesOpenedMax), and all that they have open besides, take a quarter.
	strangersMax = 1024
	// strangersTurns is how many TLS handshakes with an address that is no peer's are under way at
	// a time: each costs some 0.3 ms of a processor, and the peer has not shown a key yet.
	strangersTurns = 2
	// strangersTurnEvery is the time from one such handshake to the next, of all those addresses together:
	// 100 a second. strangersWaiting wait for theirs, up to 1 s: half of what the whole handshake may take.
	strangersTurnEvery = 10 * time.Millisecond
	strangersWaiting   = 100
	// routesOpenedMax bounds the routes to one peer that are being opened. When a primary is found
	// there is one for each client that is held (1000): TLS with all of them at once would take
	// longer than a handshake may.
	routesOpenedMax = 16
	// bulkStreamsMax bounds the bulk streams that one peer may have open here: a
	// stage that it pushes, one or two that it fetches, and a question. A dialler
	// beyond it finds its stream closed at once, and comes again.
	bulkStreamsMax = 4
	// rejectionsLoggedMax bounds the memory of sentences already logged, of each source.
	rejectionsLoggedMax = 64
	// rejectionQuiet is for how long the same sentence is not logged again of a source: a node that is left out
	// by mistake has a line now and then, and so has whoever tries again later.
	rejectionQuiet = 10 * time.Minute
)

// Errors of this package that callers branch on.
var (
	// ErrUnknownPeer means that Config.Peers has no node with this id.
	ErrUnknownPeer = errors.New("transport: unknown peer")
	// errUnanswered means that a peer closes a connection without TLS before it says a word.
	errUnanswered = errors.New("it closes connections without TLS, and does not answer: " +
		"if it requires TLS, write the key of each node into node.toml (quorate key show, on each host)")
	// ErrNotListening means that Run was called before Listen.
	ErrNotListening = errors.New("transport: not listening")
)

// Peer is another node, as the configuration names it.
type Peer struct {
	ID   cluster.NodeID
	Name string
	// Addr is the host:port where its agent listens. The host should stand for
	// one address: a refused dial counts only if every address refuses.
	Addr string
	// Key and NextKey are the keys of which the peer has one; "" = none.
	Key, NextKey cluster.Key
}

// PeerOf is a member as a peer.
func PeerOf(m cluster.Member) Peer {
	return Peer{ID: m.ID, Name: m.Name, Addr: m.Peer, Key: m.Key, NextKey: m.NextKey}
}

// Handler gets what the transport receives and notices. Its methods are called
// from the transport's goroutines, several at a time, and never from within
// Send; once the handler is shutting down they must return, Raft from a disk that
// hangs not before that answers.
type Handler interface {
	// Raft takes a message from a peer; the handler owns it. Messages of one
	// peer and class come in the order in which they were sent. While Raft
	// blocks, nothing else is read from that connection: that is the
	// back-pressure on the peer, which drops its connection after 5 s of it.
	// more says that the next one is here, and comes at once, unless the peer is
	// broken.
	Raft(m *pb.Message, more bool)
	// Status takes a peer's latest status blob; the handler owns it. An error is logged, and no more: the
	// blob may be that of another version.
	Status(from cluster.NodeID, status []byte) error
	// PeerUp says that our control connection to the peer was established.
	PeerUp(id cluster.NodeID)
	// PeerDown says, with refused false, that our control connection to the
	// peer was lost: once for each PeerUp. With refused true it says that a
	// fresh dial was refused, so the peer's process is gone and its host alive:
	// at most once after each sign of life (our connection, or one of its own).
	PeerDown(id cluster.NodeID, refused bool)
	// PeerUnreachable says that appends to the peer were dropped or may be
	// lost on their way. Calls may stand for many messages.
	PeerUnreachable(id cluster.NodeID)
	// Rejected says that the peer, or our own check of its answer, refused our
	// connection. It is called again at every attempt, each second.
	Rejected(id cluster.NodeID, err *RejectedError)
	// CheckPeer is asked at each handshake in either direction, after all other
	// checks. The text of its error goes to the dialling peer; that of a
	// *RejectedError with its code.
	CheckPeer(id Identity) error
	// Route takes a stream that the peer's router opened; the handler owns conn
	// and must return at once: Run waits for the call.
	Route(conn net.Conn, from cluster.NodeID)
	// RouteRead is the same for a client that only reads, from a replica.
	RouteRead(conn net.Conn, from cluster.NodeID)
	// Bulk serves a stream that the peer opened for bulk copies, and returns
	// when that is over; then, and when ctx ends, the transport closes conn. Run
	// waits for the call.
	Bulk(ctx context.Context, from cluster.NodeID, conn net.Conn)
	// Call answers the one question that comes on a stream of the peer's, and
	// returns; all else is as with Bulk.
	Call(ctx context.Context, from cluster.NodeID, conn net.Conn)
}

// CallChecker is a Handler that judges a peer which only has a question (DialCall)
// otherwise than CheckPeer does.
type CallChecker interface {
	// CheckCaller is asked in CheckPeer's place where such a peer dials.
	CheckCaller(id Identity) error
}

// Config is what a Transport needs. All fields but Key, Authority and Security are required.
type Config struct {
	Identity Identity
	// Key is this node's own, until SetKey gives it another; nil = it has none, and all connections are
	// plain.
	Key *nodekey.Key
	// Authority says whose keys are whose that are not pinned; nil = nobody does.
	Authority *nodekey.Authority
	// Security says how connections are protected, until SetSecurity does.
	Security cluster.PeerSecurity
	// Listen is the host:port to bind.
	Listen string
	// Peers are the other nodes; an entry with our own id is ignored.
	Peers   []Peer
	Handler Handler
	Logger  *slog.Logger
}

// tuning holds the times that tests shorten.
type tuning struct {
	dialTimeout, handshakeTimeout, idleTimeout time.Duration
	pingInterval, rejectedWait, stable         time.Duration
	leaverCallTime, plainMax                   time.Duration
}

// peer is all state about one peer.
type peer struct {
	Peer
	// links are the outgoing connections, by class-1.
	links [2]*link
	// in counts, and inbound (under Transport.mu) are, the accepted
	// connections, by class-1.
	in      [2]received
	inbound [2]*inbound
	// reading has a value while one of them is read, by class-1.
	reading     [2]chan struct{}
	bulk, calls streams
	// version is the protocol version of our control connection; 0 = there is none.
	version atomic.Uint32
	// opening has a value for each route that is being opened.
	opening chan struct{}
	// at are the addresses that its name stood for when it was dialled last, from is the one from
	// which it has come last.
	at   atomic.Pointer[[]netip.Addr]
	from atomic.Pointer[netip.Addr]
	// unreachable is set when PeerUnreachable is due.
	unreachable atomic.Bool
	// hungUp is the number of the newest Hangup of it: a connection whose handshake began before that
	// ends. Under Transport.mu.
	hungUp uint64
	// stop ends its links; removed is set by SetPeers. Both under Transport.mu.
	stop    context.CancelFunc
	removed bool
	// gone ends, by leave, when it is no peer any more.
	gone  context.Context
	leave context.CancelFunc
}

// streams are the accepted ones of a class that are open; refused counts those that were too many.
type streams struct {
	open    atomic.Int64
	refused atomic.Uint64
}

func (p *peer) received(c class) *received { return &p.in[c-1] }

// Transport connects a node with its peers. Its methods may be called from any
// goroutine.
type Transport struct {
	cfg  Config
	tune tuning
	// speaks is not changed after New, but by tests.
	speaks versions
	// peers is replaced as a whole, under mu.
	peers    atomic.Pointer[map[cluster.NodeID]*peer]
	door     *Door
	security atomic.Pointer[cluster.PeerSecurity]
	key      atomic.Pointer[nodekey.Key]
	// status is the latest blob of SendStatus.
	status atomic.Pointer[[]byte]
	// notify has room for one signal: some peer's unreachable is set.
	notify chan struct{}
	// strangers are the accepted connections in their handshake.
	strangers *strangers.Room
	// hangups counts the calls of Hangup.
	hangups atomic.Uint64

	mu       sync.Mutex
	listener net.Listener
	// running is Run's context, nil before, and with Answer. outgoing counts the links.
	running  context.Context
	outgoing sync.WaitGroup
	// closing is set before inboundWG and outgoing are waited for: no more Go after that.
	closing          bool
	inboundWG        sync.WaitGroup
	rejectionsLogged map[string]time.Time

	misaddressed, statusTooLarge         atomic.Uint64
	unexpected                           atomic.Uint64
	handshakesRejected, handshakesFailed atomic.Uint64
}

// New returns a Transport that has not started anything.
func New(cfg Config) *Transport {
	t := &Transport{
		cfg: cfg, speaks: versions{versionFirst, versionNewest},
		tune: tuning{
			dialTimeout: dialTimeout, handshakeTimeout: handshakeTimeout, idleTimeout: idleTimeout,
			pingInterval: pingInterval, rejectedWait: rejectedWait, stable: stableAfter,
			leaverCallTime: leaverCallTime, plainMax: plainMax,
		},
		notify:           make(chan struct{}, 1),
		rejectionsLogged: map[string]time.Time{},
	}
	t.strangers = strangers.New(t.strangersLimits(), cfg.Logger)
	t.peers.Store(&map[cluster.NodeID]*peer{})
	t.security.Store(&cfg.Security)
	t.key.Store(cfg.Key)
	t.door = &Door{Self: cfg.Identity, Checker: cfg.Handler, Peer: func(id cluster.NodeID) (Peer, bool) {
		p := t.peer(id)
		if p == nil {
			return Peer{}, false
		}
		return p.Peer, true
	}, Holder: t.holder}
	t.SetPeers(cfg.Peers)
	return t
}

func (t *Transport) strangersLimits() strangers.Limits {
	return strangers.Limits{
		Max: strangersMax, PerSource: strangersMax, Known: t.isPeers, // none lingers: a handshake has its own deadline
		Turns: strangersTurns, TurnEvery: strangersTurnEvery, TurnsWaiting: strangersWaiting,
	}
}

// Listen binds the port, so that a port in use is known before anything else
// happens. From then on the peers' dials are answered, once Run runs.
func (t *Transport) Listen() error {
	if n := len(appendIdentity(nil, t.cfg.Identity)); n+8 > greetingBodyBytesMax {
		return fmt.Errorf("listen for peers: the node's identity has %d bytes, the limit is %d", n, greetingBodyBytesMax-8)
	}
	ln, err := net.Listen("tcp", t.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for peers: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listener = ln
	return nil
}

// Unlisten gives the port back where Run is not called after Listen, or has
// ended.
func (t *Transport) Unlisten() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener != nil {
		_ = t.listener.Close()
	}
}

// Addr returns the bound address, nil before Listen.
func (t *Transport) Addr() net.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener == nil {
		return nil
	}
	return t.listener.Addr()
}

// Run keeps the connections until ctx ends and returns after all its
// goroutines have. It closes the listener last, because a refused dial tells
// the peers that this process is gone; so Run must also be the last part of
// the agent to end. It returns ErrNotListening, or nil. It can run once.
func (t *Transport) Run(ctx context.Context) error { return t.run(ctx, true) }

// Answer is Run for a node that has nothing to say of its own: it takes the
// connections of its peers, and opens none.
func (t *Transport) Answer(ctx context.Context) error { return t.run(ctx, false) }

func (t *Transport) run(ctx context.Context, dials bool) error {
	t.mu.Lock()
	ln := t.listener
	if ln == nil {
		t.mu.Unlock()
		return ErrNotListening
	}
	var accepting sync.WaitGroup
	accepting.Go(func() { t.accept(ctx, ln) })
	if dials {
		t.running = ctx
		for _, p := range t.allPeers() {
			t.startLinks(p)
		}
	}
	t.outgoing.Go(func() { t.notifyUnreachable(ctx) })
	t.mu.Unlock()

	<-ctx.Done()
	t.mu.Lock()
	t.closing = true
	t.mu.Unlock()
	t.outgoing.Wait()
	t.inboundWG.Wait()
	// The only error is that it is closed already, which nobody else does.
	_ = ln.Close()
	accepting.Wait()
	return nil
}

// classOf says on which connection m travels. Every MsgApp goes with the
// entries, also one without: it only moves the commit index or probes, and if
// it overtook the entries before it, the follower would reject it and Raft
// would fall back to probing. Heartbeats carry no index that the peer has not
// confirmed, so they may overtake.
func classOf(m *pb.Message) class {
	switch m.GetType() {
	case pb.MsgApp, pb.MsgSnap, pb.MsgProp:
		return classAppend
	}
	return classControl
}

// Send writes messages to their peers, or queues what the kernel does not take at once.
// It never blocks and reports nothing: a message whose connection is down or whose queue
// is full is dropped and counted, and Handler.PeerUnreachable is called if it was an
// append. The messages and their entries must not be changed afterwards.
func (t *Transport) Send(msgs []*pb.Message) {
	var filled *link
	for _, m := range msgs {
		p := t.peer(cluster.NodeID(m.GetTo()))
		if p == nil {
			t.misaddressed.Add(1)
			continue
		}
		c := classOf(m)
		l := p.links[c-1]
		if !l.q.push(m) {
			l.dropped.Add(1)
			if c == classAppend {
				t.reportUnreachable(p)
			}
			continue
		}
		if filled != l && filled != nil {
			filled.sendNow()
		}
		filled = l
	}
	if filled != nil {
		filled.sendNow()
	}
}

// SendStatus sends the blob to every peer, now and whenever a connection comes
// up. A blob that was not written yet is replaced. One of more than 1 MiB is
// dropped, counted, and logged the first time: peers would take this node for dead.
func (t *Transport) SendStatus(status []byte) {
	if len(status) > controlFrameBytesMax {
		if t.statusTooLarge.Add(1) == 1 {
			t.cfg.Logger.Error("own status is too large to be sent: to its peers this node looks dead", "bytes", len(status), "bytes_max", controlFrameBytesMax)
		}
		return
	}
	blob := bytes.Clone(status)
	t.status.Store(&blob)
	for _, p := range t.allPeers() {
		l := p.links[classControl-1]
		l.statusDue.Store(true)
		l.sendNow()
	}
}

// reportUnreachable makes a call of PeerUnreachable due.
func (t *Transport) reportUnreachable(p *peer) {
	p.unreachable.Store(true)
	select {
	case t.notify <- struct{}{}:
	default:
	}
}

// notifyUnreachable calls PeerUnreachable on a goroutine of its own, because
// Send is called in a turn of Raft's, and the handler takes one.
func (t *Transport) notifyUnreachable(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.notify:
		}
		for _, p := range t.allPeers() {
			if p.unreachable.Swap(false) {
				t.cfg.Handler.PeerUnreachable(p.ID)
			}
		}
	}
}
