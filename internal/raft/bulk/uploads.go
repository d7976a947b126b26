package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
)

var errEpochClosed = errors.New("the epoch has ended")

// Uploads are the stages of one epoch that are not proposed yet: the stage that is being written, and a stage
// that waits for a majority. The zero value has none.
type Uploads struct {
	mu     sync.Mutex
	open   []*Upload
	closed bool
}

// Open begins a stage of the epoch, as Bulk.Upload does. The stage's Abort ends it.
func (u *Uploads) Open(ctx context.Context, b *Bulk, id entry.StageID) (StageWriter, error) {
	up, err := b.Upload(ctx, id)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		up.Close()
		return nil, errEpochClosed
	}
	u.open = append(u.open, up)
	return epochStage{up, u}, nil
}

// epochStage is the writer to which the tap writes a large transaction.
type epochStage struct {
	*Upload
	all *Uploads
}

// Abort implements StageWriter.
func (s epochStage) Abort() error {
	s.all.end(s.Upload)
	return nil
}

// Propose proposes the entry that names a stage, once this node and a majority hold the stage. If the entry
// were proposed earlier and this node died, no other node could commit it. Then the upload ends. An entry with
// the id nil names no stage.
func (u *Uploads) Propose(id *entry.StageID, propose func() error) error {
	if id == nil {
		return propose()
	}
	u.mu.Lock()
	at := slices.IndexFunc(u.open, func(up *Upload) bool { return up.id == *id })
	if at < 0 {
		u.mu.Unlock()
		return fmt.Errorf("wait for stage %s: %w", id, errEpochClosed)
	}
	up := u.open[at]
	u.mu.Unlock()
	defer u.end(up)
	if err := up.WaitMajority(); err != nil {
		return err
	}
	return propose()
}

func (u *Uploads) end(up *Upload) {
	u.mu.Lock()
	u.open = slices.DeleteFunc(u.open, func(other *Upload) bool { return other == up })
	u.mu.Unlock()
	up.Close()
}

// Close ends all uploads. An upload that is opened later ends at once.
func (u *Uploads) Close() {
	u.mu.Lock()
	open := u.open
	u.open, u.closed = nil, true
	u.mu.Unlock()
	for _, up := range open {
		up.Close()
	}
}

// LogStages are a log's stages.
type LogStages struct {
	*seglog.Log
	// Epoch returns the newest committed epoch.
	Epoch func() uint64
}

// CreateStage implements Stages. It refuses a stage of an epoch that is over: such a stage would stay until the
// next epoch.
func (s LogStages) CreateStage(id entry.StageID) (StageWriter, error) {
	if over := s.Epoch(); id.Term < over {
		return nil, fmt.Errorf("stage %s: epoch %d is over, %d has begun", id, id.Term, over)
	}
	stage, err := s.Log.CreateStage(id)
	if err != nil {
		return nil, err
	}
	return stage, nil
}

// OpenStage implements Stages.
func (s LogStages) OpenStage(id entry.StageID) (StageReader, error) {
	r, err := s.Log.OpenStage(id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// DropAbandoned removes the stages that no entry can name any more, until ctx ends. A naming entry stands in
// the log before the first entry of the next epoch. So once that first entry is committed, earlier stages are
// in the log or abandoned. drop is the log's DropStages.
func (b *Bulk) DropAbandoned(ctx context.Context, epochChanged func() (uint64, <-chan struct{}), drop func(keep func(entry.StageID) bool) error) {
	for ctx.Err() == nil {
		epoch, changed := epochChanged()
		keep := func(id entry.StageID) bool { return id.Term >= epoch }
		b.Forget(keep)
		if err := drop(keep); err != nil {
			b.cfg.Logger.Warn("cannot remove abandoned stages", "error", err)
		}
		_ = b.cfg.Tasks.Wait(ctx, 0, changed)
	}
}
