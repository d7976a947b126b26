package agent

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/consensus"
)

const (
	// stateEvery is how often the node notes, while the log grows, up to which entry it
	// knows every change of the state. Its next start looks for changes from there on, so
	// nothing behind that is purged.
	stateEvery = 10 * time.Second
)

// chronicled puts the events of one step of the role machine into the history.
func (a *Agent) chronicled(s history.Step) {
	if a.chronicle.Elected(s) {
		var logged time.Time
		for _, s := range a.log.Segments() {
			if s.LastTime > 0 {
				logged = time.Unix(s.LastTime, 0)
			}
		}
		a.chronicle.LookBack(a.board.LastPrimary(), a.Lag.NewestAt(), logged)
	}
	for _, e := range a.chronicle.Note(s) {
		if e.Kind == cluster.EventPrimary {
			a.changes[e.Change(a.self.Name)].Inc()
		}
		if e.Kind == cluster.EventLeft {
			a.board.Served(e.Term)
		}
		a.records.Tell(e)
	}
}

// runRecords copies what other nodes have written into their audit logs and histories.
func (a *Agent) runRecords(ctx context.Context) error {
	return every(ctx, history.CopyEvery, func() error {
		a.records.Copy(ctx, a.board.Nodes(), a.askLines)
		return nil
	})
}

// askLines asks another node for lines of its audit log, or of its history.
func (a *Agent) askLines(ctx context.Context, to cluster.NodeID, request string, args any) (lines []cluster.AuditEntry, err error) {
	err = a.requests.Request(ctx, to, request, args, &lines)
	return lines, err
}

// onState is told of a committed change, in a turn of consensus: it must not block.
func (a *Agent) onState(o consensus.StateOutcome) {
	logger := a.logger.With("change", o.Change.String(), "by", o.Change.By, "index", o.Index, "version", o.State.Version)
	if o.Ignored != nil {
		logger.Warn("ignored a change of the cluster state", "reason", o.Ignored)
	} else {
		logger.Info("the cluster state has changed")
	}
	a.records.Committed(o)
}

// writeState makes a state durable, and the audit log's lines before it: after that, no start
// brings these changes again. An audit log that cannot be written is in nobody's way: its lines wait.
func (a *Agent) writeState(p cluster.StatePoint) error {
	if err := a.records.WriteAudit(); err != nil {
		a.logger.Error("cannot write the audit log: trying again", "error", err)
	}
	return a.state.Write(p)
}

// runState keeps cluster.json and the audit log, and looks how full the log's disk is. It has a
// goroutine of its own, because all of this waits for a disk.
func (a *Agent) runState(ctx context.Context) error {
	ticker := time.NewTicker(stateEvery)
	defer ticker.Stop()
	for {
		before := a.state.Point().Through
		a.KeepState()
		if a.state.Point().Through > before { // this node knows all of the state, and its log goes on
			a.board.SetTrouble(aboutNewer, "")
		}
		a.requests.EndMaintenance(ctx)
		a.logDisk.Store(a.lookAtDisk("log"))
		a.records.WriteHistory() // last: nothing waits for it
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-a.records.Signal():
		}
	}
}
