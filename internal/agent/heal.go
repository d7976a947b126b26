package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// openAttempts is how often a log is opened that the disk does not give back,
	// openRetry the pause in between.
	openAttempts = 4
	openRetry    = 2 * time.Second
)

// Run runs nodes until ctx ends or something fails: one after the other in the
// same data directory, because one whose log turns out to be damaged while it
// runs ends, and is started again to be healed.
func Run(ctx context.Context, cfg config.Config, logger *slog.Logger, version string) error {
	if err := FinishRecovery(cfg); err != nil {
		return err
	}
	for {
		a, err := New(cfg, logger, version)
		if err != nil {
			return err
		}
		cfg.Bootstrap = false // it begins once
		err = a.Run(ctx)
		if a.again && ctx.Err() == nil {
			continue // as what it is now
		}
		if ctx.Err() != nil || !errors.Is(err, seglog.ErrCorrupt) || errors.Is(err, logcopy.ErrUnhealable) {
			return err
		}
		logger.Error("the log turned out to be damaged: starting again to heal it", "error", err)
	}
}

// openLog opens the log. What the disk fails to read may be there a moment later: only
// what cannot be read again and again is damage. A log that is healed takes no part in
// Raft, and two of three at once would have no leader to heal from.
func openLog(ctx context.Context, o seglog.Options) (*seglog.Log, error) {
	for attempt := 1; ; attempt++ {
		log, err := seglog.Open(o)
		if attempt == openAttempts || !errors.Is(err, seglog.ErrCorrupt) || !errors.Is(err, syscall.EIO) {
			return log, err
		}
		o.Logger.Warn("the disk cannot read the log: trying again", "attempt", attempt, "of", openAttempts, "error", err)
		select {
		case <-time.After(openRetry):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// heal brings a damaged log back from the peers. This node takes no part in Raft
// meanwhile, and only shows its state.
func (a *Agent) heal(ctx context.Context, damage error) error {
	a.logger.Error("the log is damaged: this node does not vote until it is healed from its peers", "error", damage)
	last, err := logcopy.Heal(ctx, logcopy.HealConfig{Node: healer{a, damage}, Clock: clock.Machine{}, Log: a.logOptions()}, damage)
	if err != nil {
		return err
	}
	a.logger.Info("the log is healed", "last", last)
	a.records.Healed(time.Now(), fmt.Sprintf("to entry %d, from its peers: %v", last, damage))
	a.board.Update(func(s *status.Node) { s.LogState, s.LogDetail, s.Reason = status.LogOK, "", "" })
	return a.listen() // what served until here has ended
}

// healer is this node as its log is healed.
type healer struct {
	a      *Agent
	damage error
}

// Serve implements logcopy.HealNode.
func (h healer) Serve(ctx context.Context, log *seglog.Log, heal func(context.Context, logcopy.Log, logcopy.Peers) error) error {
	copies := h.a.copiesOf(log)
	h.a.healing = log // nobody asks for the status so far, nor once it has ended
	defer func() { h.a.healing = nil }()
	return h.a.serveWhile(ctx, func(ctx context.Context) error { return heal(ctx, log, copies) }, copies.Run)
}

// Others implements logcopy.HealNode.
func (h healer) Others() []cluster.NodeID { return h.a.others() }

// Copies implements logcopy.HealNode.
func (h healer) Copies(from cluster.NodeID, copied, until uint64) {
	h.say("copying from %s, entry %d of %d", h.a.board.Name(from), copied, until)
}

// Waits implements logcopy.HealNode.
func (h healer) Waits(copied uint64) {
	h.say("waiting for a leader to copy from, has entry %d", copied)
}

// Failed implements logcopy.HealNode.
func (h healer) Failed(from cluster.NodeID, next uint64, err error) {
	h.a.logger.Warn("heal the log: copy from a peer", "peer", h.a.board.Name(from), "next", next, "error", err)
}

// serveWhile shows this node to its peers, and its status, while something runs that has to be
// done before the node takes part in Raft. beside ends with it.
func (a *Agent) serveWhile(ctx context.Context, run func(context.Context) error, beside ...func(context.Context) error) error {
	ctx, end := a.departing.Context(ctx)
	defer end()
	eg, ctx := errgroup.WithContext(ctx)
	for _, serve := range append(beside, a.peers.Run, a.router.Run, a.reads.Run, a.api.Run, a.runGossip) {
		eg.Go(func() error { return serve(ctx) })
	}
	done := false
	eg.Go(func() error {
		err := run(ctx)
		if done = err == nil; done {
			end()
		}
		return err
	})
	err := a.endOf(ctx, eg.Wait())
	if done {
		return nil
	}
	return err
}

// endOf returns why a part of the node has ended whose goroutines had ctx: what came first. ran is
// the first error of these. Where that is another one, it is logged.
func (a *Agent) endOf(ctx context.Context, ran error) error {
	if err := unlessStopped(ctx, ran); err != nil {
		a.logger.Error("a part of the node ended with an error while the node stopped it", "error", err)
	}
	return context.Cause(ctx)
}

// others are the other members that this node knows.
func (a *Agent) others() (ids []cluster.NodeID) {
	for _, m := range a.board.Members() {
		if m.ID != a.self.ID {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// say shows where the healing is.
func (h healer) say(format string, args ...any) {
	h.a.board.Update(func(s *status.Node) {
		s.LogState, s.LogDetail = status.LogRepairing, h.damage.Error() // who waits is woken
		s.Reason = "the log was damaged: " + fmt.Sprintf(format, args...)
	})
}

// noEntries serves nothing: a log that is being healed is nobody's source.
type noEntries struct{}

var errHealing = errors.New("this node's log is being healed")

// Open implements bulk.Entries.
func (noEntries) Open() bulk.Reader { return noEntries{} }

// Close implements bulk.Reader.
func (noEntries) Close() {}

// ReadCommitted implements bulk.Reader.
func (noEntries) ReadCommitted(uint64, uint64) ([]seglog.Entry, bool, error) {
	return nil, false, errHealing
}

// Tail implements bulk.Entries.
func (noEntries) Tail(context.Context) (bulk.Tail, error) { return bulk.Tail{}, errHealing }
