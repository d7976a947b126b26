package consensus

import (
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Bounds of what waits for a turn.
const (
	// proposalsMax is how many entries may wait for a turn. An entry grows
	// while it waits at the tap, so a short queue makes larger groups.
	proposalsMax = 4
	// messagesMax is how many peer messages may wait for the turn; beyond
	// that a peer's reader waits, which is TCP's back-pressure.
	messagesMax = 1024
	// messagesBytesMax bounds the entries in the waiting messages. It is what a leader may have in flight to
	// this node. Each reader may bring one more message before it waits.
	messagesBytesMax = inflightBytesMax
)

// Inbox holds what waits for the goroutine with the turn. Any goroutine may add to it.
type Inbox struct {
	mu        sync.Mutex
	messages  []*pb.Message
	bytes     int           // of the entries in messages
	taken     []*pb.Message // taken for the next turn; only the goroutine with the turn uses it
	proposals [][]byte
	room      chan struct{} // signals that there may be room for a proposal, or that there will be none; nil: no goroutine waits for it
	blocked   bool          // no proposal is taken
	written   bool          // the write under way has ended, with writeErr
	writeErr  error
	// calls are for the keeper. Each has a caller that waits for it. dropped: the node has stopped and takes no
	// calls.
	calls   []*call
	dropped bool
}

// call is a function that a caller wants to run in a turn of the keeper. done is closed after that, or when
// there will be no turn.
type call struct {
	f    func(now time.Duration)
	done chan struct{}
}

// Message leaves a peer's message for the next turn. full: so much waits that the caller must wait for the
// turn.
func (in *Inbox) Message(m *pb.Message) (full bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.messages = append(in.messages, m)
	for _, e := range m.GetEntries() {
		in.bytes += len(e.GetData())
	}
	return len(in.messages) > messagesMax || in.bytes > messagesBytesMax
}

// Propose leaves a proposal for the next turn, if there is room.
func (in *Inbox) Propose(data []byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.proposals) >= proposalsMax {
		return false
	}
	in.proposals = append(in.proposals, data)
	if len(in.proposals) < proposalsMax {
		in.signal() // other callers may wait, too
	}
	return true
}

func (in *Inbox) signal() {
	if in.dropped {
		return // room is closed
	}
	select {
	case in.room <- struct{}{}:
	default:
	}
}

// Wrote leaves the result of the write under way.
func (in *Inbox) Wrote(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.written, in.writeErr = true, err
}

func (in *Inbox) takeWritten() (err error, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	err, ok = in.writeErr, in.written
	in.written, in.writeErr = false, nil
	return err, ok
}

// Take takes the messages that wait, for the next turn. Then it reads the clock of that turn: the messages came
// before that time (see ticks.go).
func (in *Inbox) Take(clock func() time.Duration) (now time.Duration) {
	in.mu.Lock()
	if len(in.taken) == 0 {
		in.messages, in.taken = in.taken, in.messages
	} else {
		in.taken = append(in.taken, in.messages...)
		clear(in.messages)
		in.messages = in.messages[:0]
	}
	in.bytes = 0
	in.mu.Unlock()
	return clock()
}

// stepped forgets the messages that were taken.
func (in *Inbox) stepped() {
	clear(in.taken)
	in.taken = in.taken[:0]
}

func (in *Inbox) takeProposal() (data []byte, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.proposals) == 0 {
		return nil, false
	}
	data = in.proposals[0]
	in.proposals = append(in.proposals[:0], in.proposals[1:]...)
	in.signal()
	return data, true
}

// Left tells whether something waits that a turn would take.
func (in *Inbox) Left() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.messages) > 0 || in.written || len(in.proposals) > 0 && !in.blocked
}

func (in *Inbox) setBlocked(blocked bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.blocked = blocked
}

// call leaves a call for the keeper. It returns false if there will be no turn for it.
func (in *Inbox) call(c *call) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.dropped {
		in.calls = append(in.calls, c)
	}
	return !in.dropped
}

// takeCall takes the oldest call; nil: there is none.
func (in *Inbox) takeCall() (c *call) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.calls) > 0 {
		c, in.calls = in.calls[0], in.calls[1:]
	}
	return c
}

// giveUp takes a call back when its caller does not wait any more. The keeper may have taken it already.
func (in *Inbox) giveUp(c *call) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.calls = slices.DeleteFunc(in.calls, func(o *call) bool { return o == c })
}

// called tells whether a call waits.
func (in *Inbox) called() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.calls) > 0
}

// drop forgets everything that waits, because the node has stopped.
func (in *Inbox) drop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.messages, in.bytes, in.proposals, in.written, in.writeErr = nil, 0, nil, false, nil
	for _, c := range in.calls {
		close(c.done)
	}
	in.calls = nil
	if !in.dropped {
		in.dropped = true
		close(in.room)
	}
}
