package mysqlwire

import (
	"encoding/binary"
	"sync"
)

// ackMagic is the first byte of an acknowledgement and the mark of a
// semi-synchronous stream (kPacketMagicNum, plugin/semisync/semisync.h).
const ackMagic = 0xef

// ackTracker is the ackQueue behind a lock, for the tap's three goroutines and
// the callers of Ack. The lock is never held during I/O.
type ackTracker struct {
	// ready holds a token if take may return a position.
	ready chan struct{}

	mu    sync.Mutex
	queue ackQueue
}

func newAckTracker() *ackTracker { return &ackTracker{ready: make(chan struct{}, 1)} }

func (a *ackTracker) received(number uint64, end Position) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue.received(number, end)
}

func (a *ackTracker) skipped(position Position) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue.skipped(position)
	signal(a.ready)
}

func (a *ackTracker) handOut(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue.handOut(number)
}

func (a *ackTracker) commit(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue.commit(number)
	signal(a.ready)
}

func (a *ackTracker) take() (Position, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.take()
}

func (a *ackTracker) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue.close()
}

func (a *ackTracker) outstanding() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.outstanding()
}

// appendAck appends the packet that acknowledges everything up to position:
//
//	+-----------+----------+------+-----------------+------------------+
//	| u24 bytes | sequence | 0xEF | u64 LE position | binlog base name |
//	+-----------+----------+------+-----------------+------------------+
//
// The sequence number is always 0: the source's receiver resets its own before
// each read (sql/ack_receiver.cc). The name is compared by length first and
// must have no path (facts Q2), which is how it arrived in the stream.
func appendAck(dst []byte, position Position) []byte {
	dst = appendPacketHeader(dst, 1+8+len(position.File), 0)
	dst = append(dst, ackMagic)
	dst = binary.LittleEndian.AppendUint64(dst, position.Offset)
	return append(dst, position.File...)
}
