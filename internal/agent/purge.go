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
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/seglog"
)

// purgeEvery is how often the log is looked at for segments that may go.
const purgeEvery = time.Minute

// purger removes what is no longer needed from the log.
type purger struct {
	mu sync.Mutex // one at a time
	// blocked is what the last plan by the configured retention said: a string.
	blocked atomic.Value
}

// runPurge purges at intervals.
func (a *Agent) runPurge(ctx context.Context) error {
	ticker := time.NewTicker(purgeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
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
	}
}

// retention is what the configuration says.
func (a *Agent) retention() replay.Retention {
	return replay.Retention{BytesMax: int64(a.cfg.Log.RetentionSize), AgeMax: a.cfg.Log.RetentionAge}
}

// planPurge says what a purge would remove, from what every member said last.
func (a *Agent) planPurge(r replay.Retention) cluster.PurgePlan {
	a.keepState() // what it needs of the log is then as little as can be
	// The segments first: what comes to them meanwhile is needed by nobody less.
	in := replay.PurgeInput{Segments: a.log.Segments(), Retention: r, Now: time.Now()}
	in.Needs, in.Marks = replay.Needs(provider{a}.Status().Nodes)
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
	return strings.TrimPrefix(strings.TrimSuffix(blocked+"; "+a.mark.why(), "; "), "; ")
}

// PurgePlan implements api.Provider.
func (p provider) PurgePlan(r cluster.PurgeRequest) cluster.PurgePlan {
	if p.node == nil {
		return cluster.PurgePlan{Node: p.self.Name, Blocked: errHealing.Error()}
	}
	return p.planPurge(p.retentionOf(r))
}

// Purge implements api.Provider.
func (p provider) Purge(r cluster.PurgeRequest) (cluster.PurgePlan, error) {
	if p.node == nil {
		return p.PurgePlan(r), errHealing
	}
	return p.purgeLog(p.retentionOf(r))
}

func (p provider) retentionOf(r cluster.PurgeRequest) replay.Retention {
	if r.RetentionSize == nil {
		return p.retention()
	}
	return replay.Retention{BytesMax: *r.RetentionSize}
}
