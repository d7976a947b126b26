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

// Uploads are the stages of one epoch that are not proposed yet: the stage that is
// being written, and one that waits for a majority. Its zero value has none.
type Uploads struct {
	mu     sync.Mutex
	open   []*Upload
	closed bool
}

// Open begins a stage of the epoch, as Bulk.Upload does. Its Abort ends it.
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

// epochStage is what the tap writes a large transaction to.
type epochStage struct {
	*Upload
	all *Uploads
}

// Abort implements StageWriter.
func (s epochStage) Abort() error {
	s.all.end(s.Upload)
	return nil
}

// Propose proposes the entry that names a stage once this node and a majority hold that:
// named earlier, it could be committed by nobody if this node died. Then the upload ends.
// The entry with the id nil names none.
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

// Close ends all of them, and those that are opened later.
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
	// Epoch is the newest that is committed.
	Epoch func() uint64
}

// CreateStage implements Stages. A stage of an epoch that is over would stay
// until the next one.
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

// DropAbandoned removes what is left of stages that nothing can name any more, until ctx
// ends: a naming entry stands in the log before the next epoch's first entry, so once
// that is committed, earlier stages are in the log or abandoned. drop is the log's
// DropStages.
func (b *Bulk) DropAbandoned(ctx context.Context, epochChanged func() (uint64, <-chan struct{}), drop func(keep func(entry.StageID) bool) error) {
	for ctx.Err() == nil {
		epoch, changed := epochChanged()
		keep := func(id entry.StageID) bool { return id.Term >= epoch }
		b.Forget(keep)
		if err := drop(keep); err != nil {
			b.cfg.Logger.Warn("remove abandoned stages", "error", err)
		}
		_ = b.cfg.Tasks.Wait(ctx, 0, changed)
	}
}
