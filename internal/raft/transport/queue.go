package transport

import (
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/raft/frame"
)

// The bounds of one peer's queue of one class, counting what waits and what is
// being written. A message that finds its queue full is dropped.
const (
	// queueMessagesMax: at 10,000 appends per second a follower answers as many
	// times, so 4096 is 0.4 s of answers behind a connection that stalls.
	queueMessagesMax = 4096
	// appendQueueBytesMax is above what Raft lets be in flight to one peer, so a
	// slow link is Raft's back-pressure and no drop: 64 MiB of entries, one more
	// of 16 MiB (longer transactions are staged, see log.stage_size_min), and 16 MiB
	// for headers of 24 bytes at 100 bytes an entry. The bytes are the log cache's own, not copies.
	appendQueueBytesMax = 96 << 20
	// controlQueueBytesMax: 4096 messages of at most 200 bytes fit five times.
	controlQueueBytesMax = 4 << 20
)

// queue holds the messages for one connection. It is closed while there is no
// connection: what Raft says to a peer that cannot be reached is out of date by
// the time it can.
type queue struct {
	messagesMax int
	bytesMax    int64
	// wake has room for one signal: there is something to write.
	wake chan struct{}

	mu   sync.Mutex
	open bool
	msgs []*pb.Message
	// messages and bytes count what is in msgs and what was taken and not done;
	// the latter alone is takenMessages and takenBytes.
	messages, takenMessages int
	bytes, takenBytes       int64
}

func newQueue(messagesMax int, bytesMax int64) *queue {
	return &queue{messagesMax: messagesMax, bytesMax: bytesMax, wake: make(chan struct{}, 1)}
}

// messageBytes is about what m takes in a frame. It is exact for a plain MsgApp.
func messageBytes(m *pb.Message) int64 {
	n := int64(frame.HeaderBytes + appendHeaderBytes + len(m.GetContext()))
	for _, e := range m.GetEntries() {
		n += entryHeaderBytes + int64(len(e.GetData()))
	}
	return n
}

// push adds m, or returns false if the queue is closed or full. One message is
// taken whatever its size, so that the bound cannot block a large one for ever.
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

// take returns all waiting messages, after the ones taken before are done;
// spare is the last taken slice, for reuse. They count against the bounds until
// they are done.
func (q *queue) take(spare []*pb.Message) []*pb.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	msgs := q.msgs
	q.msgs = spare[:0]
	q.takenMessages, q.takenBytes = q.messages, q.bytes
	return msgs
}

// done says that what take returned last was written.
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

// stop closes and empties the queue. It returns the number of messages whose
// fate is unknown or known to be bad: those waiting and those taken and not done.
func (q *queue) stop() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.messages
	q.open, q.msgs = false, nil
	q.messages, q.takenMessages, q.bytes, q.takenBytes = 0, 0, 0, 0
	return n
}

// waitingBytes is what the next take would return.
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
