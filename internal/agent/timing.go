package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/core"
)

// promiseFile holds the longest election timeout by which this node may have promised
// something that still holds (I5): after a restart it votes for nobody as long.
const promiseFile = "promise.json"

// promiseRetry is the pause between two tries to write it.
const promiseRetry = 10 * time.Second

// promiseRecord is the content of promise.json.
type promiseRecord struct {
	ElectionTimeout time.Duration `json:"election_timeout_ns"`
}

// promises notes durably that this node promises by an election timeout from now on,
// and returns the longest one with which what it promised before may still hold. A file
// that is damaged may have said any that a configuration can have.
//
// noted=false: it is not on disk, and has to get there. That is no error but where the
// file says less: without one there is nothing to fall behind.
func (d *dataDir) promises(own time.Duration, logger *slog.Logger) (longest time.Duration, noted bool, err error) {
	var r promiseRecord
	b, err := os.ReadFile(d.join(promiseFile))
	switch {
	case errors.Is(err, fs.ErrNotExist): // it never ran, or as a quorate of before, whose leaders went by their own
		longest = own
	case err != nil:
		return 0, false, fmt.Errorf("read what this node has promised: %w", err)
	default:
		err = json.Unmarshal(b, &r)
		longest = max(own, r.ElectionTimeout)
		if err != nil || r.ElectionTimeout <= 0 || r.ElectionTimeout > config.ElectionTimeoutMax {
			r, longest = promiseRecord{}, max(own, config.ElectionTimeoutMax)
			logger.Warn("what this node has promised is damaged: it votes for nobody for as long as any promise can hold", "file", d.join(promiseFile), "for", longest, "error", err)
		}
	}
	if r.ElectionTimeout == longest {
		return longest, true, nil
	}
	err = d.promiseOnly(longest)
	if err != nil && r.ElectionTimeout == 0 {
		logger.Warn("note what this node promises", "error", err)
		return longest, false, nil
	}
	return longest, err == nil, err
}

// promiseOnly notes durably that nothing holds but what is promised by an election
// timeout.
func (d *dataDir) promiseOnly(own time.Duration) error {
	return writeJSON(d.join(promiseFile), promiseRecord{ElectionTimeout: own})
}

// runPromise forgets the promises of before once they are over. It began after the time
// from which consensus counts them. Where the disk takes nothing it tries again: the
// longer promise is the safe one.
func (a *Agent) runPromise(ctx context.Context) error {
	own := a.cfg.Raft.ElectionTimeout
	if a.promised == own && a.promiseNoted {
		return nil
	}
	for wait := a.promised; ; wait = promiseRetry {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		err := a.data.promiseOnly(own)
		if err == nil {
			return nil
		}
		a.logger.Warn("note what this node promises: it is tried again", "error", err)
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
