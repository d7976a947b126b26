package transport

import (
	"net"
	"sync"
	"syscall"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/sys/nowait"
)

// sendNowBytesMax bounds what Send writes itself. A longer batch takes time to encode, and may not fit into the
// kernel's buffer: the link's goroutine writes it.
const sendNowBytesMax = 64 << 10

// pen writes to a link's connection. The goroutine that holds it takes everything that is queued and writes it.
// Send writes as much as goes without waiting, the link's goroutine writes the rest. So frames keep the order
// of the queue, and mostly no goroutine has to be woken.
type pen struct {
	mu sync.Mutex
	// raw is the connection; nil: there is none, or it is not one of the kernel's. tls is the TLS connection
	// over it; nil: it is plain.
	raw syscall.RawConn
	tls *tlsConn
	// msgs were taken from the queue. encoded is how many of them are in batch; bytes is the size of batch.
	// unsent is the part of it that is not written yet.
	msgs    []*pb.Message
	batch   batch
	encoded int
	bytes   int
	unsent  net.Buffers
	// busy: something was written since the last tick of the ping timer.
	busy bool
}

// begin gives the pen a new connection, or nil. Bytes that were not written to the connection before are lost.
func (p *pen) begin(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raw, p.busy, p.unsent = nil, true, nil
	if p.tls, _ = conn.(*tlsConn); conn != nil {
		p.raw = rawOf(conn)
	}
	p.batch.reset()
	clear(p.msgs)
}

// sendNow writes what is queued, if no other goroutine is writing and it goes without waiting. Else it wakes
// the link's goroutine.
func (l *link) sendNow() {
	if !l.tryWrite() {
		l.q.signal()
	}
}

func (l *link) tryWrite() (done bool) {
	p := &l.pen
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	if p.raw == nil || len(p.unsent) > 0 || l.q.waitingBytes() > sendNowBytesMax {
		return false
	}
	l.fill(false)
	if p.tls != nil {
		sealed, err := p.tls.seal(p.unsent)
		// The connection is over; the link's goroutine will find that.
		if p.unsent = sealed; err != nil {
			return false
		}
	}
	n := nowait.Write(p.raw, p.unsent...)
	for n > 0 && n >= len(p.unsent[0]) {
		n -= len(p.unsent[0])
		p.unsent = p.unsent[1:]
	}
	if len(p.unsent) > 0 {
		p.unsent[0] = p.unsent[0][n:]
		return false
	}
	l.written()
	return true
}

// writeAll writes what is queued to conn, however long that takes. If a ping is due and nothing is queued, it
// writes a ping.
func (l *link) writeAll(conn net.Conn, pingTick bool) error {
	p := &l.pen
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.unsent) > 0 { // with TLS they are records already
		below := conn
		if p.tls != nil {
			below = p.tls.under.Conn
		}
		if _, err := p.unsent.WriteTo(below); err != nil {
			return err
		}
		l.written()
	}
	l.fill(pingTick && !p.busy)
	if pingTick {
		p.busy = false
	}
	var err error
	switch {
	case len(p.unsent) == 0:
	case p.tls != nil:
		err = p.tls.writeRecords(p.unsent)
	default:
		_, err = p.unsent.WriteTo(conn)
	}
	if err != nil {
		return err
	}
	l.written()
	return nil
}

// fill takes what is queued and encodes it. Everything that was taken before must be written.
func (l *link) fill(ping bool) {
	p := &l.pen
	p.msgs = l.q.take(p.msgs)
	p.encoded = l.encode(&p.batch, p.msgs)
	if ping && p.batch.empty() {
		// An empty frame is never too large.
		_ = p.batch.add(framePing, nil, l.class)
	}
	p.unsent, p.bytes = p.batch.whole(), 0
	for _, piece := range p.unsent {
		p.bytes += len(piece)
	}
}

// written notes that the whole batch was written.
func (l *link) written() {
	p := &l.pen
	l.q.done()
	clear(p.msgs) // the slice is used again; the messages are not kept
	p.busy = p.busy || p.bytes > 0
	l.sent.Add(uint64(p.encoded))
	l.sentBytes.Add(uint64(p.bytes))
	p.unsent, p.encoded, p.bytes = nil, 0, 0
	p.batch.reset()
}
