package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// openAttempts is how often the log is opened while the disk fails to read it,
	// openRetry the pause in between.
	openAttempts = 4
	openRetry    = 2 * time.Second

	// readingSaid is how often a start says how much of the log it has read.
	readingSaid = 5 * time.Second
)

// Run runs the node until ctx ends or something fails. It starts the node again, in the same
// data directory, if its log turns out to be damaged (the next start heals it), or if the
// directory has another life now (see again).
func Run(ctx context.Context, cfg config.Config, logger *slog.Logger, version string) error {
	if err := FinishRecovery(cfg); err != nil {
		return err
	}
	for {
		a, err := New(cfg, logger, version)
		if err != nil {
			return err
		}
		cfg.Bootstrap = false // a person's word counts for one start
		err = a.Run(ctx)
		if a.again && ctx.Err() == nil {
			continue // in its new life
		}
		if ctx.Err() != nil || !errors.Is(err, seglog.ErrCorrupt) || errors.Is(err, logcopy.ErrUnhealable) {
			return err
		}
		logger.Error("the log turned out to be damaged: starting again to heal it", "error", err)
	}
}

// openSoundLog opens the log, and heals it first if it is damaged.
func (a *Agent) openSoundLog(ctx context.Context) (err error) {
	if err := a.data.CheckLog(); err != nil {
		return err
	}
	o := a.logOptions()
	o.Progress, o.Indexed = a.readingLog(ctx), true
	a.log, err = openLog(ctx, o)
	if errors.Is(err, seglog.ErrCorrupt) || errors.Is(err, seglog.ErrHealing) {
		if err := a.heal(ctx, err, o); err != nil {
			return err
		}
		a.log, err = seglog.Open(o)
	}
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	a.board.Update(func(s *status.Node) { s.Reason = "" })
	return nil
}

// readingLog returns what a start says while it reads its log, which can take minutes. It ends the reading when ctx
// ends. Nobody can ask this node for its status yet: only the agent's log and the service manager show it.
func (a *Agent) readingLog(ctx context.Context) func(done, total int64) error {
	said := time.Now()
	return func(done, total int64) error {
		if time.Since(said) >= readingSaid {
			said = time.Now()
			text := fmt.Sprintf("reading its log: %s of %s", units.Size(done), units.Size(total))
			a.logger.Info(text)
			a.board.Update(func(s *status.Node) { s.Reason = text })
		}
		return context.Cause(ctx)
	}
}

// rebuiltInstead asks the peers of a node that cannot open its log (err says why) whether it is to be rebuilt, and
// obeys. Such a node serves no peer, so it hears of an order nowhere else. It returns err, and what is to be done.
func (a *Agent) rebuiltInstead(ctx context.Context, err error) error {
	if ctx.Err() != nil || a.departing.Because() != nil || len(a.others()) == 0 {
		return err
	}
	ordered := false
	for _, r := range (losing{a}).AskWhoRefuses(ctx, a.transportPeers()) {
		if r.Code == transport.CodeRebuild {
			ordered = true
			a.stance.Refused(r.By, r)
		}
	}
	if ordered && a.asSelf().Fenced {
		return fmt.Errorf("%w (it is to be rebuilt, and an operator has fenced it: remove %s to give up what it has, then start this agent again)", err, a.data.Join(datadir.Fence))
	}
	if errors.Is(err, datadir.ErrLogGone) || errors.Is(err, logcopy.ErrUnhealable) {
		err = fmt.Errorf("%w (\"quorate node rebuild %s\" on another node, then start this agent again)", err, a.self.Name)
	}
	return err
}

// openLog opens the log. A read that fails may succeed a moment later: it counts as damage only
// if it fails every time. A node takes no part in Raft while its log is healed, and if that
// were two of three nodes at once, there would be no leader to heal from.
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
func (a *Agent) heal(ctx context.Context, damage error, o seglog.Options) error {
	a.logger.Error("the log is damaged: this node does not vote until it is healed from its peers", "error", damage)
	last, err := logcopy.Heal(ctx, logcopy.HealConfig{Node: healer{a, damage}, Clock: clock.Machine{}, Log: o}, damage)
	if err != nil {
		return err
	}
	a.logger.Info("the log is healed", "last", last)
	a.records.Healed(time.Now(), fmt.Sprintf("to entry %d, from its peers: %v", last, damage))
	a.board.Update(func(s *status.Node) { s.LogState, s.LogDetail, s.Reason = status.LogOK, "", "" })
	return a.listen() // what served until here has ended
}

// healer is this node while its log is healed.
type healer struct {
	a      *Agent
	damage error
}

// Serve implements logcopy.HealNode.
func (h healer) Serve(ctx context.Context, log *seglog.Log, heal func(context.Context, logcopy.Log, logcopy.Peers) error) error {
	copies := h.a.copiesOf(log)
	h.a.healing = log // the status, which reads it, is served only within serveWhile
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
	h.say("waiting for a leader to copy from, the log goes up to entry %d", copied)
}

// Failed implements logcopy.HealNode.
func (h healer) Failed(from cluster.NodeID, next uint64, err error) {
	h.a.logger.Warn("cannot copy from a peer to heal the log", "peer", h.a.board.Name(from), "next", next, "error", err)
}

// serveWhile serves peers, clients and the status while run does what has to be done before the
// node takes part in Raft. beside runs with it, and ends with it.
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

// endOf returns why the part of the node that ran under ctx has ended: the cause of ctx, which came
// first. ran is the first error of its goroutines. An error of their own is logged.
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
		s.LogState, s.LogDetail = status.LogRepairing, h.damage.Error()
		s.Reason = "the log was damaged: " + fmt.Sprintf(format, args...)
	})
}

// noEntries serves nothing: no node copies a log that is being healed.
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
