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

// A learner's source is the node that feeds it instead of the leader. consensus/group_source.go says why that
// is sound. No promise depends on it: a learner that gets nothing says so in its status, and then the leader
// sends it the log again.

const (
	// sourcePatience is how long a source may be silent before the learner asks the leader to feed it.
	sourcePatience = 3 * time.Second
	// sourceTakeMax bounds the time until one part is on the disk of the learner's log.
	sourceTakeMax = 30 * time.Second
)

var errFeedChange = errors.New("another node must feed this node now")

// SourcePeers asks the source for the log: see bulk.Bulk.
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
	// Wake makes this node send its status to all peers now.
	Wake()
}

// LearnerConfig is what a Learner needs. All fields are required.
type LearnerConfig struct {
	Self      cluster.NodeID
	Committed *consensus.Committed
	Role      func() consensus.RoleState
	// Step gives entries of the source to raft: see consensus.Runner.StepRelayed.
	Step   func(ctx context.Context, r consensus.Relayed) error
	Peers  SourcePeers
	Table  Table
	Clock  clock.Clock
	Logger *slog.Logger
}

// Learner gets the log from this node's source, while the node has one.
type Learner struct {
	cfg LearnerConfig
	// failed is the source whose last part could not be taken; 0 = none. That source is alive, but the leader
	// has to feed this node until a part is taken. Only Run uses it.
	failed cluster.NodeID

	mu    sync.Mutex
	fedBy string        // "" = the leader
	until time.Duration // by Clock: the source counts as silent then, unless it gives a sign of life before
}

// NewLearner returns a Learner that no source feeds yet.
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

// fed notes which source feeds this node ("" = none), and within which time that source has to give a sign of
// life.
func (l *Learner) fed(by string, within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = l.cfg.Clock.Now() + within
	l.note(by)
}

// note notes which source feeds this node. If that is news, this node's peers are told at once. l.mu is held.
func (l *Learner) note(by string) {
	if before := l.fedBy; before != by {
		l.fedBy = by
		l.cfg.Logger.Info("the source that feeds this learner has changed; without a source the leader feeds it", "by", by, "was", before)
		l.cfg.Table.Wake()
	}
}

// source returns the node that has to feed this node instead of the leader. While this node loses its vote,
// only the leader feeds it: commits may wait for this node.
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

// follow takes what a source gives until the stream ends, and returns why it ended.
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
		// While a part is on its way to the disk, the source is not heard.
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

// take takes entries and returns once they are committed here, on this node's disk. It copies the stages that
// they name first, however long that takes.
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
