package transport

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
)

// link owns the outgoing connection of one class to one peer.
type link struct {
	t     *Transport
	p     *peer
	class class
	q     *queue
	pen   pen
	log   *slog.Logger
	// statusDue is set when the latest status has not been written yet.
	statusDue atomic.Bool
	// alive has room for one signal: the peer has just connected to us.
	alive chan struct{}
	// dialError is why the newest attempt has failed; nil = it has not failed.
	dialError atomic.Pointer[string]
	// plain: the newest connection is without TLS.
	plain atomic.Bool

	sent, sentBytes, dropped, connects, losses atomic.Uint64
}

func newLink(t *Transport, p *peer, c class) *link {
	q := newQueue(queueMessagesMax, appendQueueBytesMax)
	if c == classControl {
		q = newQueue(queueMessagesMax, controlQueueBytesMax)
	}
	return &link{
		t: t, p: p, class: c, q: q, alive: make(chan struct{}, 1),
		log: t.cfg.Logger.With("peer", p.Name, "class", c.String()),
	}
}

// dialState is what a link's loop remembers between attempts.
type dialState struct {
	// failures is the number of attempts since the last stable connection.
	failures int
	// refusalDue is set when the peer gives a sign of life. It is cleared when a refusal after that was
	// reported.
	refusalDue bool
	// lastText is the last error that was logged. An error that repeats each second is logged once.
	lastText string
}

// run keeps the connection up until ctx ends.
func (l *link) run(ctx context.Context) {
	var s dialState
	for ctx.Err() == nil {
		conn, as, err := l.t.connect(ctx, l.p.Peer, l.class)
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			l.pause(ctx, &s, l.failed(&s, err))
			continue
		}
		started := time.Now()
		l.plain.Store(isPlain(conn))
		stop := l.endPlain(conn)
		l.serve(ctx, conn, as.version)
		stop()
		// A sign of life from before the loss says nothing about the time after it.
		l.drainAlive()
		s.refusalDue, s.lastText = true, ""
		// The dial right after a loss tells whether the peer's process is dead.
		// A connection that never lasts must not become a busy loop, though.
		if time.Since(started) >= l.t.tune.stable {
			s.failures = 0
			continue
		}
		l.pause(ctx, &s, l.backOff(&s))
	}
}

// endPlain closes a connection without TLS after a while, so that the next one can have TLS if the peer has it
// by then.
func (l *link) endPlain(conn net.Conn) (stop func()) {
	if !l.plain.Load() || l.t.key.Load() == nil || *l.t.security.Load() == cluster.PeersPlain {
		return func() {}
	}
	timer := time.AfterFunc(l.t.tune.plainMax, func() { _ = conn.Close() })
	return func() { timer.Stop() }
}

// failed reports a failed attempt and returns how long to wait before the next.
func (l *link) failed(s *dialState, err error) time.Duration {
	text := err.Error()
	l.dialError.Store(&text)
	if text != s.lastText {
		s.lastText = text
		l.log.Warn("cannot connect to peer", "err", err)
	}
	if errors.Is(err, errRefused) && s.refusalDue {
		s.refusalDue = false
		if l.class == classControl {
			l.t.cfg.Handler.PeerDown(l.p.ID, true)
		}
	}
	var rejected *RejectedError
	if errors.As(err, &rejected) {
		if l.class == classControl {
			l.t.cfg.Handler.Rejected(l.p.ID, rejected)
		}
		return l.t.tune.rejectedWait
	}
	return l.backOff(s)
}

// backOff returns the next wait: 50 ms, doubled up to 1 s, minus a random part of up to a half. So nodes that
// lost each other at the same time do not dial at the same time.
func (l *link) backOff(s *dialState) time.Duration {
	d := min(backOffMin<<min(s.failures, 10), backOffMax)
	s.failures++
	return d - rand.N(d/2)
}

// pause waits for d, or less if the peer connects to this node, but never less than half of backOffMin. Two
// nodes that lose each other's connections at once must not wake each other in a busy loop.
func (l *link) pause(ctx context.Context, s *dialState, d time.Duration) {
	least := min(d, backOffMin/2)
	timer := time.NewTimer(least)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	timer.Reset(d - least)
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-l.alive:
		s.refusalDue = true
	}
}

// peerAlive ends a pause: the peer's process has just given a sign of life.
func (l *link) peerAlive() {
	select {
	case l.alive <- struct{}{}:
	default:
	}
}

func (l *link) drainAlive() {
	select {
	case <-l.alive:
	default:
	}
}

// serve uses one established connection until it is lost or ctx ends.
func (l *link) serve(ctx context.Context, conn net.Conn, version uint16) {
	// Closing the connection ends a blocked write as well as the watcher.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	lost := make(chan error, 1)
	go func() {
		err := watch(conn)
		_ = conn.Close()
		lost <- err
	}()
	l.dialError.Store(nil)
	l.connects.Add(1)
	l.pen.begin(conn)
	l.q.start()
	l.log.Info("connected to peer", "protocol", version)
	if l.class == classControl {
		l.p.version.Store(uint32(version))
		if l.t.status.Load() != nil {
			l.statusDue.Store(true)
			l.q.signal()
		}
		l.t.cfg.Handler.PeerUp(l.p.ID)
	}

	watched, err := l.write(conn, lost)
	stop()
	_ = conn.Close()
	if !watched {
		// If the watcher closed the connection, it knows the reason.
		if reason := <-lost; errors.Is(err, net.ErrClosed) {
			err = reason
		}
	}
	l.pen.begin(nil)
	l.dropped.Add(uint64(l.q.stop()))
	l.losses.Add(1)
	if l.class == classControl {
		l.p.version.Store(0) // its next process may have another version
	}
	if ctx.Err() != nil {
		return
	}
	l.log.Warn("lost connection to peer", "err", err)
	if l.class == classControl {
		l.t.cfg.Handler.PeerDown(l.p.ID, false)
	} else {
		// Appends on their way are lost: Raft must not wait for their answers.
		l.t.reportUnreachable(l.p)
	}
}

// errTalksBack means that a peer sent bytes on a connection on which it may only read.
var errTalksBack = errors.New("transport: peer sent data on a one-way connection")

// watch returns once conn is lost. The peer never sends here. So a read ends only when the peer's process or
// host ends, or when the kernel gives the connection up.
func watch(conn net.Conn) error {
	var one [1]byte
	n, err := conn.Read(one[:])
	if n > 0 {
		return errTalksBack
	}
	return err
}

// write sends what Send has not sent itself, until the connection is lost. It returns the reason. watched: the
// reason was received from lost, which is empty now.
func (l *link) write(conn net.Conn, lost <-chan error) (watched bool, err error) {
	ping := time.NewTicker(l.t.tune.pingInterval)
	defer ping.Stop()
	for {
		pingTick := false
		select {
		case err := <-lost:
			return true, err
		case <-l.q.wake:
		case <-ping.C:
			pingTick = true
		}
		if err := l.writeAll(conn, pingTick); err != nil {
			return false, err
		}
	}
}

// encode puts msgs, and the status if it is due, into b and returns how many of msgs it took. A message that
// cannot be sent is dropped: Raft will notice that it did not arrive.
func (l *link) encode(b *batch, msgs []*pb.Message) int {
	encoded := 0
	for _, m := range msgs {
		if err := b.addRaft(m, l.class); err != nil {
			l.dropped.Add(1)
			l.log.Error("cannot send message", "err", err)
			continue
		}
		encoded++
	}
	if l.class == classControl && l.statusDue.Swap(false) {
		if err := b.add(frameStatus, *l.t.status.Load(), l.class); err != nil {
			l.log.Error("cannot send status", "err", err)
		}
	}
	return encoded
}
