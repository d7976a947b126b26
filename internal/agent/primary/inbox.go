package primary

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// tickInterval is how often the role machine sees the time while that alone may change something.
	tickInterval = 100 * time.Millisecond
	// idleTick is how often it does while nothing is waited for.
	idleTick = time.Minute
	// inputsMax bounds the inputs that wait for the role machine. Each source has few under
	// way at a time; a full queue blocks the source.
	inputsMax = 256
)

// Inbox is what waits for the role machine. Everybody may call its methods, but for Shell's.
//
// Put waits while the queue is full. The others are for callers that may not block: what they bring
// is bounded by keeping only what matters. Of Raft's states and of the peers' reports that is the
// newest, of doubts the first, which fences already, of the log's state the newest.
type Inbox struct {
	cfg InboxConfig

	mu      sync.Mutex
	queue   []role.Input
	raft    *role.RaftChanged
	peers   *role.Peers
	doubted *role.Doubt
	trouble *role.LogTrouble
	woken   bool
	// served is what Serving said when the role machine looked last.
	served bool
	// room is closed when the queue has some again; nil = nobody waits for that.
	room chan struct{}
	// changed has room for one: something is there.
	changed chan struct{}
}

// InboxConfig is what an Inbox needs.
type InboxConfig struct {
	Clock clock.Clock
	// Pick returns which of n sources is taken from: a number below n. It must neglect none.
	Pick func(n int) int
	// Serving tells whether clients are served here, Lease for how long they may be as it is now.
	// ServiceChanged is called when Serving has changed.
	Serving        func() bool
	Lease          func() (left time.Duration, ok bool)
	ServiceChanged func()
}

// NewInbox returns an empty one.
func NewInbox(cfg InboxConfig) *Inbox { return &Inbox{cfg: cfg, changed: make(chan struct{}, 1)} }

// Put queues an input. It waits while the queue is full, until ctx ends.
func (b *Inbox) Put(ctx context.Context, in role.Input) {
	for {
		room := b.tryPut(in)
		if room == nil || b.cfg.Clock.Wait(ctx, 0, room) != nil {
			return
		}
	}
}

// tryPut queues an input, or returns what tells of room for one.
func (b *Inbox) tryPut(in role.Input) (room <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) < inputsMax {
		b.queue = append(b.queue, in)
		b.wake()
		return nil
	}
	if b.room == nil {
		b.room = make(chan struct{})
	}
	return b.room
}

// RaftChanged keeps the newest of its kind until the role machine takes it.
func (b *Inbox) RaftChanged(in role.RaftChanged) { b.leave(func() { b.raft = &in }) }

// Peers is as RaftChanged.
func (b *Inbox) Peers(in role.Peers) { b.leave(func() { b.peers = &in }) }

// LogTrouble is as RaftChanged.
func (b *Inbox) LogTrouble(in role.LogTrouble) { b.leave(func() { b.trouble = &in }) }

// Doubt keeps the first about the newest incarnation.
func (b *Inbox) Doubt(incarnation uint64, reason string) {
	b.leave(func() {
		if b.doubted == nil || b.doubted.Incarnation < incarnation {
			b.doubted = &role.Doubt{Incarnation: incarnation, Reason: reason}
		}
	})
}

// LeaseChanged has the role machine's goroutine look where clients are served since, or are no more.
func (b *Inbox) LeaseChanged() {
	serving := b.cfg.Serving()
	b.mu.Lock()
	defer b.mu.Unlock()
	if serving != b.served {
		b.woken = true
		b.wake()
	}
}

func (b *Inbox) leave(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	b.wake()
}

// wake is called with b.mu held.
func (b *Inbox) wake() {
	select {
	case b.changed <- struct{}{}:
	default: // there is a signal already
	}
}

// Mail takes what was left by those who may not block, away from the role machine: tests look so.
func (b *Inbox) Mail() (batch []role.Input) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeMail()
}

func (b *Inbox) takeMail() (batch []role.Input) {
	if b.raft != nil {
		batch = append(batch, *b.raft)
	}
	if b.doubted != nil {
		batch = append(batch, *b.doubted)
	}
	if b.trouble != nil {
		batch = append(batch, *b.trouble)
	}
	if b.peers != nil {
		batch = append(batch, *b.peers)
	}
	b.raft, b.peers, b.doubted, b.trouble, b.woken = nil, nil, nil, nil, false
	return batch
}

func (b *Inbox) takeInput() []role.Input {
	in := b.queue[0]
	b.queue = b.queue[1:]
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
	return []role.Input{in}
}

// next waits until there is something, or a tick is due, and takes it.
func (b *Inbox) next(ctx context.Context, due time.Duration) (batch []role.Input, ticked bool, err error) {
	for {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		now := b.cfg.Clock.Now()
		batch, ticked, ok := b.take(now >= due)
		if ok {
			return batch, ticked, nil
		}
		if err := b.cfg.Clock.Wait(ctx, due-now, b.changed); err != nil {
			return nil, false, err
		}
	}
}

// take takes from one source of those that have something; a tick that is due is one. ok: there was one.
func (b *Inbox) take(due bool) (batch []role.Input, ticked, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sources []func() []role.Input
	if due {
		sources = append(sources, func() []role.Input { ticked = true; return nil })
	}
	if len(b.queue) > 0 {
		sources = append(sources, b.takeInput)
	}
	if b.woken || b.raft != nil || b.peers != nil || b.doubted != nil || b.trouble != nil {
		sources = append(sources, b.takeMail)
	}
	if len(sources) == 0 {
		return nil, false, false
	}
	return sources[b.cfg.Pick(len(sources))](), ticked, true
}

// nextTick is when the role machine has to see the time next. While it is idle that is for the end of
// the lease alone: nothing else tells of it.
func (b *Inbox) nextTick(idle bool) time.Duration {
	if !idle {
		return tickInterval
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.served {
		if left, ok := b.cfg.Lease(); ok {
			return max(tickInterval/10, left)
		}
	}
	return idleTick
}

// look takes note of whether clients are served: the lease came or went, or an effect did it.
func (b *Inbox) look() {
	serving := b.cfg.Serving()
	b.mu.Lock()
	changed := serving != b.served
	b.served = serving
	b.mu.Unlock()
	if changed {
		b.cfg.ServiceChanged()
	}
}
