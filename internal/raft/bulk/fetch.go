package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// wantsMax bounds the stages that are wanted at a time. Raft's log goes
	// forward one entry after the other, so one is the rule; more are what a new
	// leader's log replaces.
	wantsMax = 4
	// wantLife is how long a stage is wanted without being asked for again. Raft
	// repeats a message that was cut with every heartbeat; one that it does not
	// repeat names a stage that nobody may have any more.
	wantLife = 10 * time.Second
)

var (
	errBusy = errors.New("the stage is being received from another peer")
	// errUnwanted is what ends a fetch that nobody waits for.
	errUnwanted = errors.New("the stage is not wanted any more")
)

// want is a stage that is being fetched.
type want struct {
	cancel context.CancelFunc
	// from and renewed are those of the last call of Want.
	from    cluster.NodeID
	renewed time.Duration // by the clock
}

// Want begins to fetch the stage that a naming entry names: from node from
// first, then from the others, again and again until the log has it, Forget
// drops it, or it was not asked for again for 10 s. It does not block, and may
// be called as often as there is a reason.
func (b *Bulk) Want(s entry.Staged, from cluster.NodeID) {
	b.mu.Lock()
	if w := b.wants[s.ID]; w != nil {
		w.from, w.renewed = from, b.cfg.Tasks.Now()
		b.mu.Unlock()
		return
	}
	if len(b.wants) >= wantsMax {
		b.mu.Unlock()
		b.counters.wantsRefused.Add(1)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.wants[s.ID] = &want{cancel: cancel, from: from, renewed: b.cfg.Tasks.Now()}
	b.mu.Unlock()
	started := b.start(ctx, func(ctx context.Context) {
		defer b.unwant(s.ID)
		// The error is that it is not wanted any more.
		_ = b.fetch(ctx, s, func() (cluster.NodeID, bool) { return b.wantedFrom(s.ID) })
	})
	if !started {
		b.unwant(s.ID)
	}
}

// Forget drops the wanted stages that keep does not keep; what was received of
// them is aborted soon after.
func (b *Bulk) Forget(keep func(entry.StageID) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, w := range b.wants {
		if !keep(id) {
			w.cancel()
		}
	}
}

func (b *Bulk) unwant(id entry.StageID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wants[id].cancel()
	delete(b.wants, id)
}

// wantedFrom returns who was named last, and whether the stage is wanted still.
func (b *Bulk) wantedFrom(id entry.StageID) (cluster.NodeID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wants[id]
	return w.from, b.cfg.Tasks.Now()-w.renewed < wantLife
}

// FetchStage is Want for a caller that waits: it returns nil once the log has
// the stage, and an error when ctx has ended.
func (b *Bulk) FetchStage(ctx context.Context, s entry.Staged, from cluster.NodeID) error {
	return b.fetch(ctx, s, func() (cluster.NodeID, bool) { return from, true })
}

// fetch fetches a stage, first from whom source names, until source says that it
// is not wanted.
func (b *Bulk) fetch(ctx context.Context, s entry.Staged, source func() (cluster.NodeID, bool)) error {
	for failures, full := 0, 0; ; failures++ {
		from, wanted := source()
		if !wanted {
			return fmt.Errorf("fetch stage %v: %w", s.ID, errUnwanted)
		}
		err := b.fetchRound(ctx, s, from)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("fetch stage %v: %w", s.ID, context.Cause(ctx))
		}
		b.counters.fetchesFailed.Add(1)
		wait := backOff(failures, 0)
		if errors.Is(err, seglog.ErrFull) {
			full++
			wait = backOff(failures, full)
			b.warnSeldom(&b.ownFull, "cannot fetch stage: this node's disk is full", "stage", s.ID.String(), "bytes", s.Bytes, "err", err)
		} else {
			b.logFailure(failures, "cannot fetch stage", "stage", s.ID.String(), "err", err)
		}
		if err := clock.Sleep(ctx, b.cfg.Tasks, wait); err != nil {
			return fmt.Errorf("fetch stage %v: %w", s.ID, err)
		}
	}
}

// fetchRound tries each peer once, first first; no more of them where this
// node's own disk is full.
func (b *Bulk) fetchRound(ctx context.Context, s entry.Staged, first cluster.NodeID) error {
	peers := b.allPeers()
	order := slices.Clone(peers)
	if i := slices.Index(order, first); i >= 0 {
		order = slices.Insert(slices.Delete(order, i, i+1), 0, first)
	}
	var errs []error
	for _, peer := range order {
		err := b.fetchOnce(ctx, s, peer)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, seglog.ErrFull) {
			return err
		}
		errs = append(errs, fmt.Errorf("node %d: %w", peer, err))
	}
	return errors.Join(errs...)
}

// fetchOnce returns nil if the log has the stage.
func (b *Bulk) fetchOnce(ctx context.Context, s entry.Staged, peer cluster.NodeID) error {
	release, busy := b.claim(s.ID)
	if release == nil {
		_ = b.until(ctx, busy)
		if b.cfg.Stages.HasStage(s.ID) {
			return nil
		}
		return errBusy
	}
	defer release()
	if b.cfg.Stages.HasStage(s.ID) {
		return nil
	}
	st, hangUp, err := b.open(ctx, peer, frameGet, encodeID(s.ID))
	if err != nil {
		return err
	}
	defer hangUp()
	if _, err := st.expect(frameReady, silenceMax); err != nil {
		return err
	}
	w, err := b.createStage(s.ID)
	if err != nil {
		return fmt.Errorf("create stage: %w", err)
	}
	in := body{s: st}
	err = in.writeTo(w, s.Bytes)
	if err == nil {
		// Not what the peer says that it sent: its disk may have spoilt it.
		err = w.Finish(s.Bytes, s.CRC)
	}
	if err != nil {
		return b.abort(w, err)
	}
	b.counters.stagesFetched.Add(1)
	return nil
}
