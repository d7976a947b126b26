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
	// dialError is why the newest attempt has failed; nil = it has not.
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
	// refusalDue is set by a sign of life of the peer and cleared when a
	// refusal after it was reported.
	refusalDue bool
	// lastText is the last error that was logged: an error that repeats itself
	// each second is worth one line.
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
		// A sign of life from before the loss says nothing about after it.
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

// endPlain ends a connection without TLS after a while where the peer may have TLS by then.
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

// backOff returns the next wait: 50 ms, doubled up to 1 s, less up to a half at
// random so that nodes that lost each other together do not dial in step.
func (l *link) backOff(s *dialState) time.Duration {
	d := min(backOffMin<<min(s.failures, 10), backOffMax)
	s.failures++
	return d - rand.N(d/2)
}

// pause waits for d, or less if the peer connects to us, but never less than
// half of backOffMin: two nodes that lose each other's connections at once must
// not wake each other in a busy loop.
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

// peerAlive ends a pause: the peer's process has just shown that it is there.
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
		// The watcher knows why, if it was the one who closed the connection.
		if reason := <-lost; errors.Is(err, net.ErrClosed) {
			err = reason
		}
	}
	l.pen.begin(nil)
	l.dropped.Add(uint64(l.q.stop()))
	l.losses.Add(1)
	if l.class == classControl {
		l.p.version.Store(0) // its next process may be of another one
	}
	if ctx.Err() != nil {
		return
	}
	l.log.Warn("lost connection to peer", "err", err)
	if l.class == classControl {
		l.t.cfg.Handler.PeerDown(l.p.ID, false)
	} else {
		// Appends on their way are gone: Raft must not wait for their answers.
		l.t.reportUnreachable(l.p)
	}
}

// errTalksBack means that a peer sent bytes on a connection that it only reads.
var errTalksBack = errors.New("transport: peer sent data on a one-way connection")

// watch returns once conn is lost. The peer never sends here, so a read ends
// only when its process or its host does, or when the kernel gives it up.
func watch(conn net.Conn) error {
	var one [1]byte
	n, err := conn.Read(one[:])
	if n > 0 {
		return errTalksBack
	}
	return err
}

// write sends what Send has not sent itself, until the connection is lost. It returns
// why, and whether the reason came from (and so emptied) lost.
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

// encode puts msgs, and the status if it is due, into b and returns how many
// of msgs it took. One that cannot be sent is dropped: Raft will hear that it
// did not arrive.
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
