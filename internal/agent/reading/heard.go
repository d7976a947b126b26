package reading

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/front/netfence"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// answer is what a leader has said when this node asked: that a majority follows it, and up to which index all is committed.
type answer struct {
	index uint64
	// until is an election timeout after the question.
	until netfence.Window
}

// WindowOf returns a window that lasts for life from now on. Its end on the wall clock has no
// monotonic reading: else times would be compared by that.
func WindowOf(life time.Duration) netfence.Window {
	return netfence.Window{Wall: time.Now().Add(life).Round(0), Boot: consensus.BootTime() + life}
}

// lasted tells whether a window was open some time ago. It reads the wall clock first, and, like a lease, believes
// neither clock alone (consensus/clocks.go).
func lasted(w netfence.Window, ago time.Duration) bool {
	return time.Now().Round(0).Add(-ago).Before(w.Wall) && consensus.BootTime()-ago < w.Boot
}

// Heard is what leaders have answered. The zero value is ready.
type Heard struct {
	mu sync.Mutex
	// answers are those that count, oldest first. There is a question each quarter of an election timeout, and its answer
	// counts for an election timeout: so there are five at most.
	answers []answer
	// from is not 0 if this node has missed something: entries up to from may be older than they seem. known is until when
	// it had missed nothing.
	from  uint64
	known netfence.Window
}

// Hear asks a leader what is committed. Its answer counts for as long as life, from now on.
func (h *Heard) Hear(ctx context.Context, life time.Duration, ask func(context.Context) (uint64, error), commit func() uint64) bool {
	a := answer{until: WindowOf(life)}
	ctx, cancel := context.WithTimeout(ctx, life)
	defer cancel()
	var err error
	if a.index, err = ask(ctx); err != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if passed, ok := h.passed(commit()); !ok {
		h.from = a.index
	} else if h.from == 0 {
		h.known = passed.until
	}
	var kept []answer
	for _, old := range h.answers {
		if lasted(old.until, 0) {
			kept = append(kept, old)
		}
	}
	h.answers = append(kept, a)
	return true
}

// Leader is consensus, as Heard asks it.
type Leader interface {
	Role() consensus.RoleState
	Committed() *consensus.Committed
	AskLeader(ctx context.Context) (index uint64, err error)
}

// Run has a follower ask its leader, again and again, whether it still leads, until ctx ends; heard is called when it
// does. A message from a leader that is no answer may be old: it may have lain in a buffer while this agent, or
// this machine, stood still. An answer counts for as long as life.
func (h *Heard) Run(ctx context.Context, life time.Duration, l Leader, heard func()) error {
	ticker := time.NewTicker(life / 4)
	defer ticker.Stop()
	commit := func() uint64 { return l.Committed().Mark().Index }
	for {
		if r := l.Role(); r.Leader != 0 && !r.Leading && h.Hear(ctx, life, l.AskLeader, commit) {
			heard()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Window is until when a leader counts as heard.
func (h *Heard) Window() netfence.Window {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.answers); n > 0 {
		return h.answers[n-1].until
	}
	return netfence.Window{}
}

// KnowsLag tells whether the lag of this replica's mysqld is known. For that, this node must have committed what was
// committed anywhere an election timeout ago. A replica that was down or cut off first gets what it has missed, and
// the age of that is not known. So mysqld must have all of that, or lack something older: oldest is for how long it
// lacks its oldest missing transaction.
func (h *Heard) KnowsLag(commit, applied uint64, oldest time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.passed(commit); !ok {
		return false
	}
	if applied >= h.from {
		h.from = 0
		return true
	}
	return lasted(h.known, oldest)
}

// passed returns the newest answer that still counts and whose index is committed here.
func (h *Heard) passed(commit uint64) (newest answer, ok bool) {
	for _, a := range h.answers {
		if a.index <= commit && lasted(a.until, 0) {
			newest, ok = a, true
		}
	}
	return newest, ok
}
