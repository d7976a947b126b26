package agent

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
)

const (
	// stateEvery is how often it is noted how far into the log the state is known,
	// while the log grows. At its next start the node looks for changes from there
	// on, and until then it purges nothing behind that.
	stateEvery = 10 * time.Second
)

// openState reads the cluster state that belongs to the log, and makes sure that
// there is a file from now on.
func (a *Agent) openState() error {
	if err := a.state.Load(a.data.Home, a.cfg.ClusterMembers(), a.log.FirstIndex()); err != nil {
		return err
	}
	if err := a.records.Open(); err != nil {
		return err
	}
	if err := a.writeState(a.state.Point()); err != nil {
		return err
	}
	a.board.SetState(a.state.Point().State)
	return nil
}

// chronicled has what follows from one step of the role machine written into the history.
func (a *Agent) chronicled(s history.Step) {
	if a.chronicle.Elected(s) {
		var logged time.Time
		for _, s := range a.log.Segments() {
			if s.LastTime > 0 {
				logged = time.Unix(s.LastTime, 0)
			}
		}
		a.chronicle.LookBack(a.board.LastPrimary(), a.lag.NewestAt(), logged)
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
		a.records.Copy(ctx, a.board.Nodes(), a.askSince)
		return nil
	})
}

// askSince asks another node for lines that it has written.
func (a *Agent) askSince(ctx context.Context, to cluster.NodeID, request string, since cluster.AuditSince) (lines []cluster.AuditEntry, err error) {
	err = a.requests.Request(ctx, to, request, since, &lines)
	return lines, err
}

// onState takes a committed change, in a turn of consensus: it must not block.
func (a *Agent) onState(o consensus.StateOutcome) {
	a.logger.Info("cluster state", "change", o.Change.String(), "by", o.Change.By, "index", o.Index,
		"version", o.State.Version, "applied", o.Applied)
	if o.Applied {
		a.board.SetState(o.State)
	}
	a.records.Committed(o)
}

// keepState writes what is known of the cluster state now.
func (a *Agent) keepState() {
	if err := a.writeState(a.node.Committed().State()); err != nil {
		a.logger.Warn("keep the cluster state: it is tried again", "error", err)
	}
}

// writeState makes a state durable, and before it the audit log's lines, which are not
// written twice.
func (a *Agent) writeState(p cluster.StatePoint) error {
	if err := a.records.WriteAudit(); err != nil {
		return err
	}
	return a.state.Write(p)
}

// stateNeed is what cluster.json needs of the log: at its next start this node
// looks there for the changes that the file lacks.
func (a *Agent) stateNeed() replay.Need {
	return replay.Need{Who: a.self.Name, From: a.state.Point().Through + 1, Why: "its " + datadir.ClusterState + " goes up to there", Known: true}
}

// runState keeps cluster.json and the audit log, and looks how full the log's disk is. It has a
// goroutine of its own: all wait for a disk.
func (a *Agent) runState(ctx context.Context) error {
	ticker := time.NewTicker(stateEvery)
	defer ticker.Stop()
	for {
		a.keepState()
		a.requests.EndMaintenance(ctx)
		a.lookAtLogDisk()
		a.records.WriteHistory() // last: nothing waits for it
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-a.records.Signal():
		}
	}
}
