package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Log is the log that is purged: see seglog.Log.
type Log interface {
	Segments() []seglog.SegmentInfo
	Purge(upTo uint64) ([]seglog.SegmentInfo, error)
}

// Config is what a Purger needs. All fields are required.
type Config struct {
	Self      cluster.NodeID
	Name      string // of this node
	Log       Log
	Committed *consensus.Committed
	// Nodes returns the present status of every member.
	Nodes func() []status.Node
	// KeepState makes the committed cluster state durable, or logs why it could not. StateNeed is what the
	// cluster state needs of the log after that.
	KeepState func()
	StateNeed func() replay.Need
	Heard     *Heard
	// Retention is from the configuration. Every is how often the log is looked at.
	Retention replay.Retention
	Every     time.Duration
	Clock     clock.Clock
	Now       func() time.Time
	Logger    *slog.Logger
}

// Purger removes what is no longer needed from the log.
type Purger struct {
	cfg Config
	mu  sync.Mutex // one purge at a time
	// blocked is the reason in the last plan of Run: a string.
	blocked atomic.Value
}

// New returns a Purger that has not looked yet.
func New(cfg Config) *Purger { return &Purger{cfg: cfg} }

// Run purges at intervals, until ctx ends or the log's disk fails.
func (p *Purger) Run(ctx context.Context) error {
	for p.cfg.Clock.Wait(ctx, p.cfg.Every, nil) == nil {
		if err := p.cfg.Heard.note(p.cfg.Self, p.cfg.Nodes()); err != nil {
			p.cfg.Logger.Warn("note what members need of the log", "error", err)
		}
		plan, err := p.Purge(p.cfg.Retention)
		if errors.Is(err, seglog.ErrFailed) {
			return err
		}
		if err != nil {
			p.cfg.Logger.Error("purge the log", "error", err)
		}
		if before, _ := p.blocked.Swap(plan.Blocked).(string); plan.Blocked != "" && before == "" {
			p.cfg.Logger.Warn("the log cannot be purged", "reason", plan.Blocked)
		}
	}
	return nil
}

// Blocked says why the log is longer than it should be; "" = it is not.
func (p *Purger) Blocked() string {
	blocked, _ := p.blocked.Load().(string)
	return blocked
}

// Plan says what a purge would remove, by what every member said last.
func (p *Purger) Plan(r replay.Retention) cluster.PurgePlan {
	p.cfg.KeepState() // then the cluster state needs as little of the log as possible
	segments := p.cfg.Log.Segments()
	return p.plan(r, segments, p.cfg.Nodes())
}

func (p *Purger) plan(r replay.Retention, segments []seglog.SegmentInfo, nodes []status.Node) cluster.PurgePlan {
	in := replay.PurgeInput{Segments: segments, Retention: r, Now: p.cfg.Now()}
	in.Needs, in.Marks = replay.Needs(membership.ForPurge(p.cfg.Committed.State(), p.cfg.Self, nodes))
	in.Needs = append(in.Needs, p.cfg.StateNeed())
	plan := replay.PlanPurge(in)
	plan.Node = p.cfg.Name
	return plan
}

// Purge removes what the plan allows. It returns the plan with the UpTo and Bytes that were really removed.
func (p *Purger) Purge(r replay.Retention) (cluster.PurgePlan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	plan := p.Plan(r)
	if plan.UpTo == 0 {
		return plan, nil
	}
	removed, err := p.cfg.Log.Purge(plan.UpTo)
	plan.UpTo, plan.Bytes, plan.Done = 0, 0, len(removed) > 0
	for i, s := range removed {
		plan.UpTo, plan.Bytes = s.LastIndex, plan.Bytes+s.Bytes
		p.cfg.Logger.Info("segment purged", "first", s.FirstIndex, "last", s.LastIndex, "bytes", s.Bytes, "why", plan.Segments[i].Why)
	}
	if err != nil {
		return plan, fmt.Errorf("purge the log: %w", err)
	}
	return plan, nil
}

// Holder returns the member that makes the log longer than cluster state s allows, among the members that are
// away; "" = there is none. bytes is the length of the log. For a member that this agent has not heard, Holder
// takes what an agent of this node heard last.
func (p *Purger) Holder(s cluster.State, away func(name string) bool) (name string, bytes int64) {
	segments := p.cfg.Log.Segments()
	for _, segment := range segments {
		bytes += segment.Bytes
	}
	if s.RetainBytesMax == 0 || bytes <= s.RetainBytesMax {
		return "", bytes
	}
	nodes := p.cfg.Heard.fill(s, p.cfg.Nodes())
	return replay.Holder(nodes, bytes-s.RetainBytesMax, away, func(nodes []status.Node) cluster.PurgePlan {
		return p.plan(replay.Retention{BytesMax: s.RetainBytesMax}, segments, nodes)
	}), bytes
}
