package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/core"
)

// promiseFile holds the longest election timeout by which this node may have promised
// something that still holds (I5): after a restart it votes for nobody as long.
const promiseFile = "promise.json"

// promiseRecord is the content of promise.json.
type promiseRecord struct {
	ElectionTimeout time.Duration `json:"election_timeout_ns"`
}

// promises notes durably that this node promises by an election timeout from now on,
// and returns the longest one with which what it promised before may still hold.
func (d *dataDir) promises(own time.Duration) (longest time.Duration, err error) {
	var r promiseRecord
	b, err := os.ReadFile(d.join(promiseFile))
	switch {
	case errors.Is(err, fs.ErrNotExist): // it never ran, or as a quorate of before, whose leaders went by their own
	case err != nil:
		return 0, fmt.Errorf("read what this node has promised: %w", err)
	default:
		if err := json.Unmarshal(b, &r); err != nil {
			return 0, fmt.Errorf("data directory %s: %s is damaged: remove it once no agent has run here for a minute: %w", d.path, promiseFile, err)
		}
	}
	if r.ElectionTimeout >= own {
		return r.ElectionTimeout, nil
	}
	return own, d.promiseOnly(own)
}

// promiseOnly notes durably that nothing holds but what is promised by an election
// timeout.
func (d *dataDir) promiseOnly(own time.Duration) error {
	return writeJSON(d.join(promiseFile), promiseRecord{ElectionTimeout: own})
}

// runPromise forgets the promises of before once they are over. It began after the time
// from which consensus counts them.
func (a *Agent) runPromise(ctx context.Context) error {
	own := a.cfg.Raft.ElectionTimeout
	if a.promised == own {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(a.promised):
		return a.data.promiseOnly(own)
	}
}

// judgeTimings says whose settings this node's cannot live with, and has core do without
// this node as the leader where it could get no lease.
func (a *Agent) judgeTimings(own cluster.NodeStatus, in *core.Peers) {
	nodes := a.board.all()
	var troubles []string
	for _, n := range nodes {
		if text := cluster.TimingTrouble(own, n); n.ID != own.ID && n.Reachable && text != "" {
			troubles = append(troubles, text)
		}
	}
	text := strings.Join(troubles, "; ")
	if a.board.setTrouble("timings", text) && text != "" {
		a.logger.Warn("the nodes' timings cannot live together", "reason", text)
	}
	in.NoLease = cluster.NoLease(a.board.list(), nodes)
	if inc, ok := a.epoch.incarnation(a.serveTerm.Load()); ok && in.NoLease != "" && !a.serving() {
		a.mail.doubt(core.Doubt{Incarnation: inc, Reason: in.NoLease})
	}
}
