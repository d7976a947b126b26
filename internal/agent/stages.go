package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/quorate/quorate/internal/bulk"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/mysqlwire"
	"github.com/quorate/quorate/internal/seglog"
	"github.com/quorate/quorate/internal/units"
)

// Stages: large transactions on their way beside the log (packages tap, bulk,
// seglog). Here they are only tied together.

func (a *Agent) bulkConfig(log *seglog.Log, epoch func() uint64, entries bulk.Entries) bulk.Config {
	cfg := bulk.Config{
		Self: a.self.ID, Dial: a.peers.DialBulk, Stages: logStages{log, epoch}, Entries: entries, Logger: a.logger,
	}
	cfg.Voters, cfg.Outgoing, cfg.Learners = a.bulkMembers()
	return cfg
}

func (a *Agent) bulkMembers() (voters, outgoing, learners []cluster.NodeID) {
	if a.node != nil {
		outgoing = a.node.Committed().State().Outgoing
	}
	fed := a.fed.Load()
	for _, m := range a.board.Members() {
		switch {
		case m.Votes():
			voters = append(voters, m.ID)
		case fed == nil || !slices.Contains(*fed, m.ID): // else it copies them from its source
			learners = append(learners, m.ID)
		}
	}
	return voters, outgoing, learners
}

// logStages shows the log's stages to package bulk.
type logStages struct {
	*seglog.Log
	// epoch is the newest that is committed.
	epoch func() uint64
}

// CreateStage implements bulk.Stages. A stage of an epoch that is over would stay
// until the next one.
func (s logStages) CreateStage(id entry.StageID) (bulk.StageWriter, error) {
	if over := s.epoch(); id.Term < over {
		return nil, fmt.Errorf("stage %s: epoch %d is over, %d has begun", id, id.Term, over)
	}
	stage, err := s.Log.CreateStage(id)
	if err != nil {
		return nil, err
	}
	return stage, nil
}

// OpenStage implements bulk.Stages.
func (s logStages) OpenStage(id entry.StageID) (bulk.StageReader, error) {
	r, err := s.Log.OpenStage(id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// committedEntries shows the committed log to a peer that repairs its own.
type committedEntries struct{ a *Agent }

// Open implements bulk.Entries.
func (c committedEntries) Open() bulk.Reader {
	log := c.a.logReader()
	log.damaged = func(error) {} // the peer goes on elsewhere
	return log
}

// Tail implements bulk.Entries.
func (c committedEntries) Tail(ctx context.Context) (bulk.Tail, error) {
	t, err := c.a.node.Tail(ctx)
	return bulk.Tail(t), err
}

// uploads are the stages of one epoch that are not proposed yet: the one that is
// being written, and one that waits for a majority.
type uploads struct {
	mu     sync.Mutex
	open   map[entry.StageID]*bulk.Upload
	closed bool
}

var errEpochClosed = errors.New("the epoch has ended")

func (u *uploads) add(up *bulk.Upload, id entry.StageID) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return errEpochClosed
	}
	if u.open == nil {
		u.open = map[entry.StageID]*bulk.Upload{}
	}
	u.open[id] = up
	return nil
}

func (u *uploads) get(id entry.StageID) *bulk.Upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open[id]
}

// end closes one upload: it is proposed, or aborted.
func (u *uploads) end(id entry.StageID) {
	u.mu.Lock()
	up := u.open[id]
	delete(u.open, id)
	u.mu.Unlock()
	if up != nil {
		up.Close()
	}
}

// close ends all of them.
func (u *uploads) close() {
	u.mu.Lock()
	open := u.open
	u.open, u.closed = nil, true
	u.mu.Unlock()
	for _, up := range open {
		up.Close()
	}
}

// stageWriter is what the tap writes a large transaction to.
type stageWriter struct {
	*bulk.Upload
	id      entry.StageID
	uploads *uploads
}

// Abort implements mysqlwire.StageWriter.
func (w stageWriter) Abort() error {
	w.uploads.end(w.id)
	return nil
}

// openStage begins a stage of an epoch.
func (a *Agent) openStage(ctx context.Context, u *uploads, id entry.StageID) (mysqlwire.StageWriter, error) {
	up, err := a.bulk.Upload(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := u.add(up, id); err != nil {
		up.Close()
		return nil, err
	}
	return stageWriter{up, id, u}, nil
}

// waitStage waits until this node and a majority hold a stage: named earlier, it
// could be committed by nobody if this node died.
func (e *epoch) waitStage(ctx context.Context, id entry.StageID) error {
	up := e.uploads.get(id)
	if up == nil {
		return fmt.Errorf("wait for stage %s: %w", id, errEpochClosed)
	}
	return up.WaitMajority(ctx)
}

func (a *Agent) onWanted(w consensus.Wanted) { a.bulk.Want(w.Staged, w.From) }

// runStages removes what is left of stages that nothing can name any more: a
// naming entry stands in the log before the next epoch's first entry, so once
// that is committed, earlier stages are in the log or abandoned.
func (a *Agent) runStages(ctx context.Context) error {
	for {
		epoch, changed := a.node.Committed().EpochChanged()
		keep := func(id entry.StageID) bool { return id.Term >= epoch }
		a.bulk.Forget(keep)
		if err := a.log.DropStages(keep); err != nil {
			a.logger.Warn("remove abandoned stages", "error", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// stageBlocked says which stages wait because disks are full, or copies fail.
func (a *Agent) stageBlocked(blocked []bulk.Blocked) string {
	names := func(ids []cluster.NodeID) (names []string) {
		for _, id := range ids {
			if id != a.self.ID {
				names = append(names, a.board.Name(id))
			}
		}
		return names
	}
	var texts []string
	for _, b := range blocked {
		others := names(b.Full)
		id := fmt.Sprintf("%d-%d", b.ID.Term, b.ID.Number)
		if size := units.Size(int64(b.Bytes)); len(others) > 0 {
			texts = append(texts, fmt.Sprintf("commits wait for stage %s (%s): no majority can hold it, no space left on the disk of %s",
				id, size, strings.Join(others, ", ")))
		} else if failing := names(b.Failing); len(failing) > 0 {
			texts = append(texts, fmt.Sprintf("commits wait for stage %s (%s): it cannot be copied to %s: %v",
				id, size, strings.Join(failing, ", "), b.Why))
		} else {
			texts = append(texts, fmt.Sprintf("no space left on this node's disk for stage %s, %s of it were written", id, size))
		}
	}
	return strings.Join(texts, "; ")
}

// stageEvents is a staged transaction for the feed.
type stageEvents struct {
	*seglog.StageReader
	id      entry.StageID
	damaged func(error)
}

// Damaged implements mysqlwire.StageEvents.
func (s stageEvents) Damaged(err error) {
	s.damaged(&seglog.CorruptError{File: "stage " + s.id.String(), Detail: err.Error()})
}

// Size implements mysqlwire.StageEvents.
func (s stageEvents) Size() int64 {
	n, _ := s.Bytes()
	return n
}

// openEvents opens a staged transaction of the log.
func (a *Agent) openEvents(id entry.StageID) (mysqlwire.StageEvents, error) {
	r, err := a.log.OpenStage(id)
	if err != nil {
		return nil, err
	}
	return stageEvents{r, id, a.damaged}, nil
}
