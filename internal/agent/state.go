package agent

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/replay"
)

const (
	// stateEvery is how often it is noted how far into the log the state is known,
	// while the log grows. At its next start the node looks for changes from there
	// on, and until then it purges nothing behind that.
	stateEvery = 10 * time.Second
	// outcomesMax bounds the changes that wait for a line in the audit log. They
	// come one by one, from people; beyond it lines are missing, and that is logged.
	outcomesMax = 1024
)

// stateKeeper keeps the cluster state on disk: cluster.json and the audit log.
type stateKeeper struct {
	datadir.State
	// audit is of what operators did, history of what became of the nodes.
	audit, history auditLog
	// changed notes durably, before the first change is kept, that there are some.
	changed func() error

	writing sync.Mutex // one at a time; before mu

	mu       sync.Mutex
	outcomes []cluster.AuditEntry
	lost     int
	events   []cluster.AuditEntry // that wait for a line in the history
	// signal has room for one: there is a change to be written.
	signal chan struct{}
}

func newStateKeeper() *stateKeeper { return &stateKeeper{signal: make(chan struct{}, 1)} }

// committed notes a change for the audit log. It does not block.
func (k *stateKeeper) committed(o consensus.StateOutcome) {
	line := cluster.AuditEntry{
		At: o.Change.At, By: o.Change.By, What: o.Change.String(), Result: "done",
		Index: o.Index, Version: o.State.Version,
	}
	if !o.Applied {
		line.Result, line.Version = "ignored: another change came first", 0
	}
	k.note(line)
}

// note adds a line to the audit log, or to the history if it is of an event. It does
// not block.
func (k *stateKeeper) note(line cluster.AuditEntry) {
	k.mu.Lock()
	queue := &k.outcomes
	if line.Event != nil {
		queue = &k.events
	}
	if len(*queue) < outcomesMax {
		*queue = append(*queue, line)
	} else {
		k.lost++
	}
	k.mu.Unlock()
	select {
	case k.signal <- struct{}{}:
	default:
	}
}

// write makes what was committed durable: the audit log's lines first, which are
// not written twice, then the state.
func (k *stateKeeper) write(p cluster.StatePoint) (lost int, err error) {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	lines := k.outcomes
	k.outcomes, lost, k.lost = nil, k.lost, 0
	k.mu.Unlock()
	if err := k.audit.append(lines...); err != nil {
		k.mu.Lock()
		k.outcomes = append(lines, k.outcomes...)
		k.mu.Unlock()
		return lost, err
	}
	if p.State.Version > 0 && k.changed != nil {
		if err := k.changed(); err != nil {
			return lost, err
		}
	}
	return lost, k.Write(p)
}

// writeHistory makes durable what waits for a line in the history, and tells whether
// there was any. It is apart from write: nothing waits for the history.
func (k *stateKeeper) writeHistory() (some bool, err error) {
	k.mu.Lock()
	events := k.events
	k.events = nil
	k.mu.Unlock()
	if err = k.history.append(events...); err != nil {
		k.mu.Lock()
		k.events = append(events, k.events...)
		k.mu.Unlock()
	}
	return len(events) > 0, err
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openState reads the cluster state that belongs to the log, and makes sure that
// there is a file from now on.
func (a *Agent) openState() error {
	if err := a.keptState(a.log.FirstIndex()); err != nil {
		return err
	}
	if err := a.state.audit.open(a.data.Join(auditFile), a.self.Name); err != nil {
		return err
	}
	if err := a.state.history.open(a.data.Join(historyFile), a.self.Name); err != nil {
		a.logger.Warn("the history cannot be read: the node goes on without what it says", "error", err)
	}
	a.noteLastChange()
	if _, err := a.state.write(a.state.Point()); err != nil {
		return err
	}
	if err := a.data.hasState(); err != nil {
		return err
	}
	a.state.changed = a.data.hasChanges
	if a.state.Point().State.Version > 0 {
		if err := a.data.hasChanges(); err != nil {
			return err
		}
	}
	a.board.SetState(a.state.Point().State)
	return nil
}

// hasState notes durably that there is a cluster.json.
func (d *dataDir) hasState() error {
	if d.identity.State {
		return nil
	}
	d.identity.State = true
	return d.WriteIdentity(d.identity)
}

// hasChanges notes durably that the log has changes of the cluster state: from now on
// no older quorate may run here.
func (d *dataDir) hasChanges() error {
	if d.identity.Format >= datadir.FormatState {
		return nil
	}
	d.identity.Format = datadir.FormatState
	return d.WriteIdentity(d.identity)
}

// onState takes a committed change, in a turn of consensus: it must not block.
func (a *Agent) onState(o consensus.StateOutcome) {
	a.logger.Info("cluster state", "change", o.Change.String(), "by", o.Change.By, "index", o.Index,
		"version", o.State.Version, "applied", o.Applied)
	if o.Applied {
		a.board.SetState(o.State)
	}
	a.state.committed(o)
}

// keepState writes what is known of the cluster state now.
func (a *Agent) keepState() {
	lost, err := a.state.write(a.node.Committed().State())
	if err != nil {
		a.logger.Warn("keep the cluster state: it is tried again", "error", err)
	}
	if lost > 0 {
		a.logger.Warn("lines are missing in the audit log or the history: too many came at once", "missing", lost)
	}
}

// keepHistory writes what waits for a line in the history.
func (a *Agent) keepHistory() {
	some, err := a.state.writeHistory()
	if err != nil {
		a.logger.Warn("keep the history: it is tried again", "error", err)
	} else if some {
		a.noteLastChange()
	}
}

// stateNeed is what cluster.json needs of the log: at its next start this node
// looks there for the changes that the file lacks.
func (a *Agent) stateNeed() replay.Need {
	return replay.Need{Who: a.self.Name, From: a.state.Point().Through + 1, Why: "its " + datadir.ClusterState + " goes up to there", Known: true}
}

// runState keeps cluster.json and the audit log. It has a goroutine of its own:
// both wait for a disk.
func (a *Agent) runState(ctx context.Context) error {
	ticker := time.NewTicker(stateEvery)
	defer ticker.Stop()
	for {
		a.keepState()
		a.endMaintenance(ctx)
		a.keepHistory() // last: nothing waits for it
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-a.state.signal:
		}
	}
}
