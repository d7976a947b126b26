package freshness

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Clocks are the clocks of a machine. Boot and Wall are those of a lease (consensus/clocks.go).
type Clocks interface {
	clock.Clock
	Boot() time.Duration
	Wall() time.Duration
}

// answer is what a leader has said when this node asked: that a majority follows it, and up to which index all is committed.
type answer struct {
	index uint64
	// until is an election timeout after the question.
	until Window
}

// Window says until when something counts, by two clocks: the boot clock, which counts while the machine sleeps, and the
// wall clock, since 1970. Like a lease, it believes neither clock alone (consensus/clocks.go). The zero Window is closed.
type Window struct{ Boot, Wall time.Duration }

// WindowOf returns a window that lasts for life from now on.
func WindowOf(c Clocks, life time.Duration) Window {
	wall := c.Wall() // first, as a lease does
	return Window{Wall: wall + life, Boot: c.Boot() + life}
}

// Lasted tells whether a window was open some time ago. It reads the wall clock first.
func (w Window) Lasted(c Clocks, ago time.Duration) bool {
	return c.Wall()-ago < w.Wall && c.Boot()-ago < w.Boot
}

// Heard is what leaders have answered.
type Heard struct {
	clocks Clocks

	mu sync.Mutex
	// answers are those that count, oldest first. There is a question each quarter of an election timeout, and its answer
	// counts for an election timeout: so there are five at most.
	answers []answer
	// from is not 0 if this node has missed something: entries up to from may be older than they seem. known is until when
	// it had missed nothing.
	from  uint64
	known Window
	// applied is the index up to which mysqld has had everything.
	applied uint64
}

// NewHeard returns a Heard that has heard nothing yet.
func NewHeard(c Clocks) *Heard { return &Heard{clocks: c} }

// Hear asks a leader what is committed. Its answer counts for as long as life, from now on.
func (h *Heard) Hear(ctx context.Context, life time.Duration, ask func(context.Context) (uint64, error), commit func() uint64) bool {
	a := answer{until: WindowOf(h.clocks, life)}
	ctx, cancel := h.clocks.WithTimeout(ctx, life)
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
		if old.until.Lasted(h.clocks, 0) {
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
	commit := func() uint64 { return l.Committed().Mark().Index }
	for {
		next := h.clocks.Now() + life/4
		if r := l.Role(); r.Leader != 0 && !r.Leading && h.Hear(ctx, life, l.AskLeader, commit) {
			heard()
		}
		if clock.Sleep(ctx, h.clocks, max(next-h.clocks.Now(), life/16)) != nil {
			return nil
		}
	}
}

// Window is until when a leader counts as heard.
func (h *Heard) Window() Window {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.answers); n > 0 {
		return h.answers[n-1].until
	}
	return Window{}
}

// Log is consensus, as LagStatus asks it.
type Log interface {
	Committed() *consensus.Committed
	// Stalled is for how long the disk of the log has not answered; 0 = it answers.
	Stalled() time.Duration
}

// LagStatus sets whether a node's lag is known, how old its figures are, and the state of its log. polled is when mysqld
// last said what it has; nil = it never did. A replica does not know its lag where committed entries may not reach it:
// the disk of its log is full or hangs, or, if it asks its leader (asks), that leader has not confirmed how recent the
// newest entry here is.
func (h *Heard) LagStatus(s *status.Node, l Log, polled *time.Time, now time.Time, asks bool) {
	if polled != nil {
		s.LagAge = now.Sub(*polled).Seconds()
	}
	logged := s.LogState == "" || s.LogState == status.LogOK
	if took := l.Stalled(); took > 0 && logged {
		logged, s.LogState, s.LogDetail = false, status.LogStalled, fmt.Sprintf("its disk has not answered for %s", took.Round(time.Second))
	}
	s.LagUnknown = s.Leader == 0 || s.Mysqld != status.MysqldRunning || polled == nil || !logged
	if s.Role == status.RoleReplica && asks {
		oldest := time.Duration((s.LagAge + s.LagSeconds) * float64(time.Second))
		s.LagUnknown = !h.KnowsLag(l.Committed().Mark().Index, s.Applied, oldest) || s.LagUnknown
	}
}

// KnowsLag tells whether the lag of this replica's mysqld is known. For that, this node must have committed what was
// committed anywhere an election timeout ago. A replica that was down or cut off first gets what it has missed, and
// the age of that is not known. So mysqld must have all of that, or lack something older: oldest is for how long it
// lacks its oldest missing transaction.
func (h *Heard) KnowsLag(commit, applied uint64, oldest time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if applied == 0 && h.applied > 0 { // mysqld was killed, and has lost its last commits: see consensus.LagTracker
		h.from, h.known, h.applied = max(h.from, h.applied), Window{}, 0
	}
	h.applied = max(h.applied, applied)
	if _, ok := h.passed(commit); !ok {
		return false
	}
	if applied >= h.from {
		h.from = 0
		return true
	}
	return h.known.Lasted(h.clocks, oldest)
}

// passed returns the newest answer that still counts and whose index is committed here.
func (h *Heard) passed(commit uint64) (newest answer, ok bool) {
	for _, a := range h.answers {
		if a.index <= commit && a.until.Lasted(h.clocks, 0) {
			newest, ok = a, true
		}
	}
	return newest, ok
}
