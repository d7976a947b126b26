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
	// wantsMax bounds the stages that are wanted at a time. Raft's log goes forward one entry after the other,
	// so mostly there is one. There are more when a new leader's log replaces a part of this node's.
	wantsMax = 4
	// wantLife is how long a stage is wanted without a new call of Want. Raft repeats a message that was cut
	// with every heartbeat. If it does not repeat the message any more, perhaps no node has that stage any
	// more.
	wantLife = 10 * time.Second
)

var (
	errBusy = errors.New("the stage is being received from another peer")
	// errUnwanted ends a fetch for which no caller waits any more.
	errUnwanted = errors.New("the stage is not wanted any more")
)

// want is a stage that is being fetched.
type want struct {
	cancel context.CancelFunc
	// from and renewed are from the last call of Want.
	from    cluster.NodeID
	renewed time.Duration // by the clock
}

// Want begins to fetch the stage that a naming entry names: first from node from, then from the others. It
// tries again until the log has the stage, Forget drops it, or Want was not called again for it for 10 s. Want
// does not block, and may be called often.
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
		// The error only says that the stage is not wanted any more.
		_ = b.fetch(ctx, s, func() (cluster.NodeID, bool) { return b.wantedFrom(s.ID) })
	})
	if !started {
		b.unwant(s.ID)
	}
}

// Forget drops the wanted stages for which keep returns false. What was received of them is aborted soon after.
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

// wantedFrom returns the node that Want named last, and whether the stage is still wanted.
func (b *Bulk) wantedFrom(id entry.StageID) (cluster.NodeID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wants[id]
	return w.from, b.cfg.Tasks.Now()-w.renewed < wantLife
}

// FetchStage is Want for a caller that waits: it returns nil once the log has the stage, and an error when ctx
// has ended.
func (b *Bulk) FetchStage(ctx context.Context, s entry.Staged, from cluster.NodeID) error {
	return b.fetch(ctx, s, func() (cluster.NodeID, bool) { return from, true })
}

// fetch fetches a stage until the log has it. Before each round source names the node to ask first, and says
// whether the stage is still wanted.
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

// fetchRound tries each peer once, beginning with first. If this node's own disk is full, it stops.
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
		// The naming entry decides, and not what the peer says that it sent: its disk may have damaged the
		// stage.
		err = w.Finish(s.Bytes, s.CRC)
	}
	if err != nil {
		return b.abort(w, err)
	}
	b.counters.stagesFetched.Add(1)
	return nil
}
