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
	// dialTimeout covers name resolution and TCP. After 1 s the kernel would repeat a lost SYN, and a new dial
	// does the same.
	dialTimeout = time.Second
	// handshakeTimeout bounds all of a handshake on either side.
	handshakeTimeout = 2 * time.Second
	// userTimeout is how long sent bytes may go unacknowledged. Raft elects after 1 s without asking the
	// transport; this only frees the connection.
	userTimeout = 5 * time.Second
	// idleTimeout ends an accepted connection on which nothing comes: its sender's host is gone. Pings come at
	// least every 2 × pingInterval. Where nothing comes on any, it also ends the peer's routed streams.
	idleTimeout  = 10 * time.Second
	pingInterval = 2 * time.Second

	backOffMin = 50 * time.Millisecond
	backOffMax = time.Second
	// FoundAfter is the time within which every peer that can reach a process dials it after it has begun to
	// listen, even if nobody listened there before: the longest back-off and a dial. A peer that knows only the
	// process's name, or an old address, and has slow name servers, needs longer.
	FoundAfter = backOffMax + dialTimeout
	// rejectedWait is the wait after a rejection: most often a person must change something first. It is not
	// longer than backOffMax, or FoundAfter would not hold.
	rejectedWait = time.Second
	// stableAfter: if a connection has lasted this long, its loss is followed by a dial without a wait.
	stableAfter = time.Second

	acceptRetryWait = 50 * time.Millisecond
	// strangersMax bounds the accepted connections whose handshake is in progress. Eight peers that open routes
	// (routesOpenedMax), with all other connections that they may open, take a quarter.
	strangersMax = 1024
	// strangersTurns is how many TLS handshakes with addresses that are no peer's are under way at a time. Each
	// costs some 0.3 ms of a processor, before the caller has shown a key.
	strangersTurns = 2
	// strangersTurnEvery is the time between two such handshakes, for all those addresses together: 100 a
	// second. Up to strangersWaiting connections wait for theirs, up to 1 s: half of the time for a whole
	// handshake.
	strangersTurnEvery = 10 * time.Millisecond
	strangersWaiting   = 100
	// routesOpenedMax bounds the routes to one peer that are being opened. When a primary is found, each client
	// that waits (up to 1000) needs a route. TLS with all of them at once would take longer than a handshake
	// may.
	routesOpenedMax = 16
	// bulkStreamsMax bounds the bulk streams that one peer may have open here: a stage that it pushes, one or
	// two stages that it fetches, and a question. If a dialler opens more, its stream is closed at once, and it
	// tries again.
	bulkStreamsMax = 4
	// rejectionsLoggedMax bounds the memory of rejections that were logged, of all sources together.
	rejectionsLoggedMax = 64
	// rejectionQuiet is for how long the same sentence is not logged again for the same source. So a node that
	// is left out by mistake still gets a line now and then, and so does a caller that tries again later.
	rejectionQuiet = 10 * time.Minute
)

// Errors of this package that callers branch on.
var (
	// ErrUnknownPeer means that Config.Peers has no node with this id.
	ErrUnknownPeer = errors.New("transport: unknown peer")
	// errUnanswered means that a peer closes a connection without TLS before it answers.
	errUnanswered = errors.New("it closes connections without TLS, and does not answer: " +
		"if it requires TLS, write the key of each node into node.toml (quorate key show, on each host)")
	// ErrNotListening means that Run was called before Listen.
	ErrNotListening = errors.New("transport: not listening")
)

// Peer is another node, as the configuration or the cluster state names it.
type Peer struct {
	ID   cluster.NodeID
	Name string
	// Addr is the host:port where its agent listens. The host should have one address: a refused dial counts
	// only if every address refuses.
	Addr string
	// Key and NextKey are the keys by which the peer is known: it shows one of them; "" = none.
	Key, NextKey cluster.Key
}

// PeerOf returns a member as a peer.
func PeerOf(m cluster.Member) Peer {
	return Peer{ID: m.ID, Name: m.Name, Addr: m.Peer, Key: m.Key, NextKey: m.NextKey}
}

// PeersOf returns members as peers.
func PeersOf(members []cluster.Member) (peers []Peer) {
	for _, m := range members {
		peers = append(peers, PeerOf(m))
	}
	return peers
}

// Handler gets what the transport receives and notices. Its methods are called from the transport's goroutines,
// several at a time, and never from within Send. Once the handler is shutting down, they must return. Only Raft
// may wait longer: until a disk that hangs answers.
type Handler interface {
	// Raft takes a message from a peer; the handler owns it. Messages of one peer and class come in the order
	// in which they were sent. While Raft blocks, nothing else is read from that connection. That slows the
	// peer down; after 5 s of it the peer drops its connection. more says that the next message is here, and
	// follows at once unless the peer is broken.
	Raft(m *pb.Message, more bool)
	// Status takes a peer's latest status blob; the handler owns it. An error is only logged: the blob may be
	// of another version.
	Status(from cluster.NodeID, status []byte) error
	// PeerUp says that this node's control connection to the peer was established.
	PeerUp(id cluster.NodeID)
	// PeerDown says, with refused=false, that this node's control connection to the peer was lost: once for
	// each PeerUp. With refused=true it says that a new dial was refused, so the peer's process is gone and its
	// host is alive. That comes at most once after each sign of life (a connection in either direction).
	PeerDown(id cluster.NodeID, refused bool)
	// PeerUnreachable says that appends to the peer were dropped or may be lost on their way. One call may
	// stand for many messages.
	PeerUnreachable(id cluster.NodeID)
	// Rejected says that this node's connection was refused, by the peer or by this node's own check of the
	// peer's answer. It is called again at every attempt, each second.
	Rejected(id cluster.NodeID, err *RejectedError)
	// CheckPeer is asked at each handshake in either direction, after all other checks. The text of its error
	// is sent to the dialling peer; for a *RejectedError its code is sent, too.
	CheckPeer(id Identity) error
	// Route takes a stream that the peer's router opened. The handler owns conn. Route must return at once: Run
	// waits for the call.
	Route(conn net.Conn, from cluster.NodeID)
	// RouteRead is the same for a client that only reads, from a replica.
	RouteRead(conn net.Conn, from cluster.NodeID)
	// Bulk serves a stream that the peer opened for bulk copies, and returns when that is over. Then, or when
	// ctx ends, the transport closes conn. Run waits for the call.
	Bulk(ctx context.Context, from cluster.NodeID, conn net.Conn)
	// Call answers the one question that comes on a stream that the peer opened, and returns. Everything else
	// is as with Bulk.
	Call(ctx context.Context, from cluster.NodeID, conn net.Conn)
}

// CallChecker is a Handler with other rules than CheckPeer for a peer that only has a question (DialCall).
type CallChecker interface {
	// CheckCaller is called instead of CheckPeer when such a peer dials.
	CheckCaller(id Identity) error
}

// Hearer is a Handler that is told who dials, whether that node is welcome or not.
type Hearer interface {
	// Hears tells whether the Handler wants to know that now. Then also a node whose key no member has may say who it
	// is, before it is refused.
	Hears() bool
	// Heard is called while Hears, for each node of the same cluster that dials this node by its id, with the address
	// from which it comes. What a node that is refused says of itself is not proven, its name included. refused is nil
	// if the node is welcome.
	Heard(id Identity, from net.Addr, refused *RejectedError)
}

// Config is what a Transport needs. All fields but Key, Authority and Security are required.
type Config struct {
	Identity Identity
	// Key is this node's own key, until SetKey gives it another; nil = it has none, and all connections are
	// plain.
	Key *nodekey.Key
	// Authority names the owners of keys that are not pinned; nil = there is no authority.
	Authority *nodekey.Authority
	// Security says how connections are protected, until SetSecurity changes it.
	Security cluster.PeerSecurity
	// Listen is the host:port to bind.
	Listen string
	// Peers are the other nodes; an entry with this node's own id is ignored.
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

// peer is the whole state of one peer.
type peer struct {
	Peer
	// links are the outgoing connections, by class-1.
	links [2]*link
	// in counts what the accepted connections bring, and inbound has these connections (under Transport.mu),
	// both by class-1.
	in      [2]received
	inbound [2]*inbound
	// reading has a value while an accepted connection is being read, by class-1.
	reading     [2]chan struct{}
	bulk, calls streams
	// version is the protocol version of this node's control connection; 0 = there is none.
	version atomic.Uint32
	// heard says, by class-1, since when the reader of an accepted connection waits: a time since Transport.began,
	// or handling. shookHands is when the peer took part in a handshake last.
	heard      [2]atomic.Int64
	shookHands atomic.Int64
	reach      atomic.Pointer[reach]
	// opening has a value for each route that is being opened.
	opening chan struct{}
	// at are the addresses of the peer's name when it was found last; nil = never. finding looks for them now
	// (under Transport.mu). lost: the name was not found in time, which was logged. from is the address from
	// which the peer came last.
	at      atomic.Pointer[[]net.IPAddr]
	finding *finding
	lost    atomic.Bool
	from    atomic.Pointer[netip.Addr]
	// unreachable is set when a call of PeerUnreachable is due.
	unreachable atomic.Bool
	// hungUp is the number of the newest Hangup of this peer: a connection whose handshake began before it is
	// closed. Under Transport.mu.
	hungUp uint64
	// stop ends the peer's links. removed is set by SetPeers. Both under Transport.mu.
	stop    context.CancelFunc
	removed bool
	// gone ends when the node is no peer any more; leave ends it.
	gone  context.Context
	leave context.CancelFunc
}

// streams counts the accepted streams of one class: those that are open, and those that were refused because
// there were too many.
type streams struct {
	open    atomic.Int64
	refused atomic.Uint64
}

func (p *peer) received(c class) *received { return &p.in[c-1] }

// Transport connects a node with its peers. Its methods may be called from any
// goroutine.
type Transport struct {
	cfg   Config
	tune  tuning
	began time.Time
	// speaks is not changed after New, except by tests.
	speaks versions
	// lookup finds the addresses of a name, and is not changed after New, except by tests.
	lookup func(ctx context.Context, host string) ([]net.IPAddr, error)
	// peers is replaced as a whole, under mu.
	peers    atomic.Pointer[map[cluster.NodeID]*peer]
	door     *Door
	security atomic.Pointer[cluster.PeerSecurity]
	key      atomic.Pointer[nodekey.Key]
	// status is the latest blob of SendStatus.
	status atomic.Pointer[[]byte]
	// notify has room for one signal: unreachable is set for some peer.
	notify chan struct{}
	// strangers are the accepted connections whose handshake is in progress.
	strangers *strangers.Room
	// hangups counts the calls of Hangup.
	hangups atomic.Uint64

	mu       sync.Mutex
	listener net.Listener
	// running is Run's context; nil before Run, and with Answer. outgoing counts the links and the lookups.
	running  context.Context
	outgoing sync.WaitGroup
	// closing is set before Run waits for inboundWG and outgoing. After that nothing may be added to them.
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
		cfg: cfg, began: time.Now(), speaks: versions{versionFirst, versionNewest},
		tune: tuning{
			dialTimeout: dialTimeout, handshakeTimeout: handshakeTimeout, idleTimeout: idleTimeout,
			pingInterval: pingInterval, rejectedWait: rejectedWait, stable: stableAfter,
			leaverCallTime: leaverCallTime, plainMax: plainMax,
		},
		lookup:           net.DefaultResolver.LookupIPAddr,
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
	if h, ok := cfg.Handler.(Hearer); ok {
		t.door.Hears = h.Hears
	}
	t.SetPeers(cfg.Peers)
	return t
}

func (t *Transport) strangersLimits() strangers.Limits {
	return strangers.Limits{
		// No connection lingers here: a handshake has its own deadline.
		Max: strangersMax, PerSource: strangersMax, Known: t.isPeers,
		Turns: strangersTurns, TurnEvery: strangersTurnEvery, TurnsWaiting: strangersWaiting,
	}
}

// Listen binds the port, so that a port in use is known before anything else happens. The peers' dials are
// answered once Run runs.
func (t *Transport) Listen() error {
	if n := len(appendIdentity(nil, t.cfg.Identity)); n+8 > greetingBodyBytesMax {
		return fmt.Errorf("listen for peers: the node's identity has %d bytes, the limit is %d", n, greetingBodyBytesMax-8)
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	ln, err := lc.Listen(context.Background(), "tcp", t.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for peers: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listener = ln
	return nil
}

// Unlisten closes the listener if Run is not called after Listen, or has ended.
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

// Run keeps the connections until ctx ends, and returns after all its goroutines have ended. It closes the
// listener last, because a refused dial tells the peers that this process is gone. So Run must also be the last
// part of the agent to end. It returns ErrNotListening, or nil. It can run once.
func (t *Transport) Run(ctx context.Context) error { return t.run(ctx, true) }

// Answer is Run for a node that has nothing to send: it accepts the connections of its peers, and opens none.
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
	// The only possible error is that ln is closed already, which is ignored.
	_ = ln.Close()
	accepting.Wait()
	return nil
}

// classOf says on which connection m travels. Every MsgApp goes with the entries, even without entries of its
// own. Such a message only moves the commit index, or probes. If it overtook the entries before it, the
// follower would reject it and Raft would fall back to probing. Heartbeats carry no index that the peer has not
// confirmed, so they may overtake.
func classOf(m *pb.Message) class {
	switch m.GetType() {
	case pb.MsgApp, pb.MsgSnap, pb.MsgProp:
		return classAppend
	}
	return classControl
}

// Send writes messages to their peers, or queues what the kernel does not take at once. It never blocks and
// reports nothing. A message whose connection is down or whose queue is full is dropped and counted. If it was
// an append, Handler.PeerUnreachable is called. The messages and their entries must not be changed afterwards.
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

// SendStatus sends the blob to every peer, now and whenever a connection comes up. A blob that was not written
// yet is replaced. A blob of more than 1 MiB is dropped, counted, and logged the first time: peers then take
// this node for dead.
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

// notifyUnreachable calls PeerUnreachable on a goroutine of its own: Send is called in a turn of Raft's, and
// the handler takes a turn itself. It also looks for silent peers.
func (t *Transport) notifyUnreachable(ctx context.Context) {
	look := time.NewTicker(t.tune.idleTimeout / 10)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			t.endSilent()
		case <-t.notify:
		}
		for _, p := range t.allPeers() {
			if p.unreachable.Swap(false) {
				t.cfg.Handler.PeerUnreachable(p.ID)
			}
		}
	}
}
