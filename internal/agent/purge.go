package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/operate"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/seglog"
)

// purgeEvery is how often the log is looked at for segments that may go.
const purgeEvery = time.Minute

// purgeTimeout bounds the wait for a purge that an operator asks for: it syncs the
// directory for every segment that it removes.
const purgeTimeout = time.Minute

// purger removes what is no longer needed from the log.
type purger struct {
	mu sync.Mutex // one at a time
	// blocked is what the last plan by the configured retention said: a string.
	blocked atomic.Value
}

// runPurge purges at intervals.
func (a *Agent) runPurge(ctx context.Context) error {
	return every(ctx, purgeEvery, func() error {
		if err := a.heard.note(a.self.ID, a.board.Nodes()); err != nil {
			a.logger.Warn("note what members need of the log", "error", err)
		}
		p, err := a.purgeLog(a.retention())
		if errors.Is(err, seglog.ErrFailed) {
			return err
		}
		if err != nil {
			a.logger.Error("purge the log", "error", err)
		}
		if before, _ := a.purge.blocked.Swap(p.Blocked).(string); p.Blocked != "" && before == "" {
			a.logger.Warn("the log cannot be purged", "reason", p.Blocked)
		}
		return nil
	})
}

// retention is what the configuration says.
func (a *Agent) retention() replay.Retention {
	return replay.Retention{BytesMax: int64(a.cfg.Log.RetentionSize), AgeMax: a.cfg.Log.RetentionAge}
}

// planPurge says what a purge would remove, from what every member said last.
func (a *Agent) planPurge(r replay.Retention) cluster.PurgePlan {
	a.keepState() // what it needs of the log is then as little as can be
	// The segments first: what comes to them meanwhile is needed by nobody less.
	segments := a.log.Segments()
	return a.planPurgeFor(r, segments, a.nodes())
}

// planPurgeFor says it from what these said.
func (a *Agent) planPurgeFor(r replay.Retention, segments []seglog.SegmentInfo, nodes []cluster.NodeStatus) cluster.PurgePlan {
	in := replay.PurgeInput{Segments: segments, Retention: r, Now: time.Now()}
	in.Needs, in.Marks = replay.Needs(membership.ForPurge(a.node.Committed().State(), a.self.ID, nodes))
	in.Needs = append(in.Needs, a.stateNeed())
	p := replay.PlanPurge(in)
	p.Node = a.self.Name
	return p
}

// purgeLog removes what the plan lets go, and returns the plan with UpTo and
// Bytes as it came out.
func (a *Agent) purgeLog(r replay.Retention) (cluster.PurgePlan, error) {
	a.purge.mu.Lock()
	defer a.purge.mu.Unlock()
	p := a.planPurge(r)
	if p.UpTo == 0 {
		return p, nil
	}
	removed, err := a.log.Purge(p.UpTo)
	p.UpTo, p.Bytes, p.Done = 0, 0, len(removed) > 0
	for i, s := range removed {
		p.UpTo, p.Bytes = s.LastIndex, p.Bytes+s.Bytes
		a.logger.Info("segment purged", "first", s.FirstIndex, "last", s.LastIndex, "bytes", s.Bytes, "why", p.Segments[i].Why)
	}
	if err != nil {
		return p, fmt.Errorf("purge the log: %w", err)
	}
	return p, nil
}

// purgeBlocked says why the log is longer than it should be; "" = it is not.
func (a *Agent) purgeBlocked() string {
	blocked, _ := a.purge.blocked.Load().(string)
	xa := a.xa.why(time.Now(), a.cfg.MySQL.XAPreparedMaxAge)
	return strings.TrimPrefix(strings.TrimSuffix(blocked+"; "+xa, "; "), "; ")
}

// controlPurge purges this node's log now, or says what that would remove.
func (a *Agent) controlPurge(_ context.Context, r control.Request) (operate.Done, error) {
	var args cluster.PurgeRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	retention := a.retention()
	if size := args.RetentionSize; size != nil {
		if *size < 0 {
			return operate.Done{}, control.Errorf(control.CodeInvalid, "retention_size %d is not a number of bytes", *size)
		}
		retention = replay.Retention{BytesMax: *size}
	}
	if args.DryRun {
		return operate.Done{Result: a.planPurge(retention), ReadOnly: true}, nil
	}
	p, err := a.purgeLog(retention)
	d := operate.Done{Result: p, ReadOnly: err == nil && !p.Done, What: "purge the log of " + a.self.Name}
	if p.Done {
		d.What += fmt.Sprintf(" up to entry %d, %d bytes", p.UpTo, p.Bytes)
	}
	return d, err
}
