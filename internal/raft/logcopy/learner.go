package logcopy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

// A learner's source is the node that feeds it in place of the leader. Why that is
// sound is in consensus/group_source.go. Nothing rests on it: a learner that gets
// nothing says so in its status, and the leader sends it the log again.

const (
	// sourcePatience is how long a source may be away before the learner asks for the leader.
	sourcePatience = 3 * time.Second
	// sourceTakeMax bounds how long a learner's log takes to have a part on its disk.
	sourceTakeMax = 30 * time.Second
)

var errFeedChange = errors.New("this node is to be fed by another one")

// SourcePeers are asked for the log: see bulk.Bulk.
type SourcePeers interface {
	Follow(ctx context.Context, from cluster.NodeID, index uint64, f func(bulk.Point, []seglog.Entry) error, alive func() error) error
	FetchStage(ctx context.Context, s entry.Staged, from cluster.NodeID) error
}

// Table is what a Learner needs of a status table: see board.Board.
type Table interface {
	Name(id cluster.NodeID) string
	// Changes returns a channel that is closed at the next change of the cluster state, or of
	// the leader.
	Changes() <-chan struct{}
	// Wake has this node's status told to all now.
	Wake()
}

// LearnerConfig is what a Learner needs. All fields are required.
type LearnerConfig struct {
	Self      cluster.NodeID
	Committed *consensus.Committed
	Role      func() consensus.RoleState
	// Step has raft take entries of the source: see consensus.Runner.StepRelayed.
	Step   func(ctx context.Context, r consensus.Relayed) error
	Peers  SourcePeers
	Table  Table
	Clock  clock.Clock
	Logger *slog.Logger
}

// Learner gets the log from this node's source, while it has one.
type Learner struct {
	cfg LearnerConfig
	// failed is the source whose last part was not taken; 0 = none. It is alive, and the leader
	// has to feed this node until a part is taken. It is Run's.
	failed cluster.NodeID

	mu    sync.Mutex
	fedBy string        // "" = the leader
	until time.Duration // by its clock, if its source gives no sign of life before
}

// NewLearner returns one that nobody feeds so far.
func NewLearner(cfg LearnerConfig) *Learner { return &Learner{cfg: cfg} }

// FedBy names the source that feeds this node; "" = the leader has to.
func (l *Learner) FedBy() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fedBy != "" && l.cfg.Clock.Now() >= l.until {
		l.note("")
	}
	return l.fedBy
}

// fed notes who feeds this node, and within which time that has to give a sign of life.
func (l *Learner) fed(by string, within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = l.cfg.Clock.Now() + within
	l.note(by)
}

// note tells this node's peers at once who feeds it. l.mu is held.
func (l *Learner) note(by string) {
	if before := l.fedBy; before != by {
		l.fedBy = by
		l.cfg.Logger.Info("this learner is fed by another node", "by", by, "was", before)
		l.cfg.Table.Wake()
	}
}

// source returns who is to feed this node in place of the leader. While it loses its
// vote that is the leader: commits may wait for it.
func (l *Learner) source() (cluster.NodeID, bool) {
	p := l.cfg.Committed.State()
	_, from, ok := sourceOf(p.State, l.cfg.Self)
	return from.ID, ok && from.ID != l.cfg.Role().Leader && !slices.Contains(p.Outgoing, l.cfg.Self)
}

// Run gets the log from the source, while there is one, until ctx ends.
func (l *Learner) Run(ctx context.Context) error {
	said := ""
	for ctx.Err() == nil {
		changed := l.cfg.Table.Changes()
		from, ok := l.source()
		if !ok {
			l.failed = 0
			l.fed("", 0)
			_ = l.cfg.Clock.Wait(ctx, 0, changed)
			continue
		}
		err := l.follow(ctx, from)
		if text := err.Error(); text != said && ctx.Err() == nil && !errors.Is(err, errFeedChange) {
			l.cfg.Logger.Warn("the source of this node does not feed it", "source", l.cfg.Table.Name(from), "error", err)
			said = text
		}
		_ = l.cfg.Clock.Wait(ctx, retry, nil)
	}
	return nil
}

// follow takes what a source gives until that ends, and returns why it did.
func (l *Learner) follow(ctx context.Context, from cluster.NodeID) error {
	name := l.cfg.Table.Name(from)
	alive := func() error {
		if l.failed != from {
			l.fed(name, sourcePatience)
		}
		if now, ok := l.source(); !ok || now != from {
			return errFeedChange
		}
		return nil
	}
	take := func(p bulk.Point, found []seglog.Entry) error {
		// While a part is on its way to the disk nobody says anything.
		if l.failed != from {
			l.fed(name, sourcePatience+sourceTakeMax)
		}
		if err := l.take(ctx, from, consensus.Relayed{RelayPoint: consensus.RelayPoint(p), Entries: found}); err != nil {
			l.failed = from
			l.fed("", 0)
			return err
		}
		l.failed = 0
		l.fed(name, sourcePatience)
		return nil
	}
	return l.cfg.Peers.Follow(ctx, from, l.cfg.Committed.Mark().Index+1, take, alive)
}

// take takes entries and returns once they are committed here, on this node's
// disk. Stages that they name are copied first, however long that takes.
func (l *Learner) take(ctx context.Context, from cluster.NodeID, r consensus.Relayed) error {
	for _, e := range r.Entries {
		if s, ok := e.Staged(); ok {
			if err := l.cfg.Peers.FetchStage(ctx, s, from); err != nil {
				return err
			}
		}
	}
	ctx, cancel := l.cfg.Clock.WithTimeout(ctx, sourceTakeMax)
	defer cancel()
	if err := l.cfg.Step(ctx, r); err != nil {
		return err
	}
	last := r.Entries[len(r.Entries)-1].Index
	for {
		mark, changed := l.cfg.Committed.Changed()
		if mark.Index >= last {
			return nil
		}
		if err := l.cfg.Clock.Wait(ctx, 0, changed); err != nil {
			return fmt.Errorf("wait until entry %d of the source is committed here: %w", last, err)
		}
	}
}
