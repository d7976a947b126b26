package transport

import (
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/raft/frame"
)

// The bounds of one peer's queue of one class. They count what waits and what is being written. A message that
// finds its queue full is dropped.
const (
	// queueMessagesMax: at 10,000 appends per second a follower sends as many answers, so 4096 is 0.4 s of
	// answers behind a connection that stalls.
	queueMessagesMax = 4096
	// appendQueueBytesMax is more than Raft lets be in flight to one peer, so a slow link slows Raft down and
	// drops nothing: 64 MiB of entries, one more of 16 MiB (longer transactions are staged, see
	// log.stage_size_min), and 16 MiB for headers of 24 bytes at 100 bytes an entry. The bytes are the log
	// cache's own, not copies.
	appendQueueBytesMax = 96 << 20
	// controlQueueBytesMax is five times 4096 messages of at most 200 bytes.
	controlQueueBytesMax = 4 << 20
)

// queue holds the messages for one connection. It is closed while there is no connection: messages to a peer
// that cannot be reached would be out of date when it can be reached again.
type queue struct {
	messagesMax int
	bytesMax    int64
	// wake has room for one signal: there is something to write.
	wake chan struct{}

	mu   sync.Mutex
	open bool
	msgs []*pb.Message
	// messages and bytes count what is in msgs, and what was taken and is not done. takenMessages and
	// takenBytes count only the second.
	messages, takenMessages int
	bytes, takenBytes       int64
}

func newQueue(messagesMax int, bytesMax int64) *queue {
	return &queue{messagesMax: messagesMax, bytesMax: bytesMax, wake: make(chan struct{}, 1)}
}

// messageBytes is about the size of m in a frame. It is exact for a plain MsgApp.
func messageBytes(m *pb.Message) int64 {
	n := int64(frame.HeaderBytes + appendHeaderBytes + len(m.GetContext()))
	for _, e := range m.GetEntries() {
		n += entryHeaderBytes + int64(len(e.GetData()))
	}
	return n
}

// push adds m, or returns false if the queue is closed or full. An empty queue takes a message of any size, so
// that the bound cannot block a large message for ever.
func (q *queue) push(m *pb.Message) bool {
	n := messageBytes(m)
	q.mu.Lock()
	fits := q.open && q.messages < q.messagesMax && (q.messages == 0 || q.bytes+n <= q.bytesMax)
	if fits {
		q.msgs = append(q.msgs, m)
		q.messages++
		q.bytes += n
	}
	q.mu.Unlock()
	return fits
}

// signal wakes the link's goroutine.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns all waiting messages. What was taken before must be done. spare is the slice that was taken
// before, for reuse. The messages count against the bounds until they are done.
func (q *queue) take(spare []*pb.Message) []*pb.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	msgs := q.msgs
	q.msgs = spare[:0]
	q.takenMessages, q.takenBytes = q.messages, q.bytes
	return msgs
}

// done says that the messages of the last take were written.
func (q *queue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages -= q.takenMessages
	q.bytes -= q.takenBytes
	q.takenMessages, q.takenBytes = 0, 0
}

// start opens the queue.
func (q *queue) start() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = true
}

// stop closes and empties the queue. It returns the number of messages that are lost or may be lost: those that
// wait, and those that were taken and are not done.
func (q *queue) stop() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.messages
	q.open, q.msgs = false, nil
	q.messages, q.takenMessages, q.bytes, q.takenBytes = 0, 0, 0, 0
	return n
}

// waitingBytes is the size of what the next take would return.
func (q *queue) waitingBytes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes - q.takenBytes
}

func (q *queue) size() (open bool, messages int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open, q.messages, q.bytes
}
