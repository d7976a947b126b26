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
	// idleTick is how often it sees the time while it waits for nothing.
	idleTick = time.Minute
	// inputsMax bounds the inputs that wait for the role machine. Each source has few inputs
	// under way at a time; a full queue blocks the source.
	inputsMax = 256
)

// Inbox has what waits for the role machine. Any goroutine may call its exported methods; the others
// are for Shell.
//
// Put waits while the queue is full. The other methods are for callers that may not block: they keep
// only what matters, so the Inbox stays bounded. That is the newest state of Raft, the newest report
// of the peers, the newest state of the log, and the first doubt about the newest mysqld, which fences.
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
	// room is closed when the queue has room again; nil = nobody waits for that.
	room chan struct{}
	// changed has room for one signal: the Inbox has something.
	changed chan struct{}
}

// InboxConfig is what an Inbox needs.
type InboxConfig struct {
	Clock clock.Clock
	// Pick chooses one of n sources: a number below n. It must neglect no source.
	Pick func(n int) int
	// Serving tells whether clients are served here, Lease for how long the present lease allows
	// that. ServiceChanged is called when Serving has changed.
	Serving        func() bool
	Lease          func() (left time.Duration, ok bool)
	ServiceChanged func()
}

// NewInbox returns an empty Inbox.
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

// tryPut queues an input, or returns a channel that is closed when there is room for it.
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

// RaftChanged keeps the newest input of its kind until the role machine takes it.
func (b *Inbox) RaftChanged(in role.RaftChanged) { b.leave(func() { b.raft = &in }) }

// Peers does the same as RaftChanged.
func (b *Inbox) Peers(in role.Peers) { b.leave(func() { b.peers = &in }) }

// LogTrouble does the same as RaftChanged.
func (b *Inbox) LogTrouble(in role.LogTrouble) { b.leave(func() { b.trouble = &in }) }

// Doubt keeps the first doubt about the newest incarnation.
func (b *Inbox) Doubt(incarnation uint64, reason string) {
	b.leave(func() {
		if b.doubted == nil || b.doubted.Incarnation < incarnation {
			b.doubted = &role.Doubt{Incarnation: incarnation, Reason: reason}
		}
	})
}

// LeaseChanged wakes the role machine's goroutine if clients are served now and were not, or the reverse.
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

// Mail takes out what callers that may not block have left, so that the role machine does not get it. It is for
// tests.
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

// take takes from one of the sources that have something; a tick that is due is a source, too. ok=false: none
// has anything.
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

// nextTick is after how long the role machine has to see the time again. While it is idle it needs the
// time only for the end of the lease, of which nothing else tells.
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

// look notes whether clients are served: the lease, or an effect, may have changed that.
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
