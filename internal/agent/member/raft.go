package member

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/role"
)

// raftConfig completes the world's config. The callbacks are called in a turn of consensus: they must not block.
func (m *Member) raftConfig(r consensus.Config) consensus.Config {
	r.Self, r.HasStage, r.Fresh, r.Promised = m.cfg.Self.ID, m.log.HasStage, m.cfg.Home.Fresh(), m.Promised.Longest
	if r.Log == nil {
		r.Log = m.log
	}
	if r.State == nil {
		r.State = new(m.cfg.State.Point())
	}
	if r.OnLease == nil {
		r.OnLease = m.Inbox.LeaseChanged
	}
	r.OnRole = after(r.OnRole, func(s consensus.RoleState) {
		m.cfg.Board.SetRaft(s)
		m.Slot.RoleChanged(s)
	})
	r.OnCommit = after(r.OnCommit, func(mark consensus.Mark) {
		m.Slot.Committed(mark)
		if m.runsMysqld() {
			m.Lag.Committed(mark, m.cfg.Now())
		}
	})
	r.OnState = after(r.OnState, func(o consensus.StateOutcome) {
		if o.Ignored == nil {
			m.cfg.Board.SetState(o.State)
		}
	})
	r.OnAcknowledge = after(r.OnAcknowledge, m.Slot.Acknowledge)
	r.OnRefused = after(r.OnRefused, m.refused)
	r.OnFull = after(r.OnFull, m.full)
	r.OnWanted = after(r.OnWanted, func(w consensus.Wanted) { m.Bulk.Want(w.Staged, w.From) })
	r.OnStalled = func(term uint64, took time.Duration) {
		m.cfg.Logger.Error("the log's disk does not answer", "for", took)
		m.Slot.Stalled(term, took)
	}
	return r
}

// after returns a callback that tells an observer first, if there is one.
func after[T any](observer, then func(T)) func(T) {
	return func(t T) {
		if observer != nil {
			observer(t)
		}
		then(t)
	}
}

func (m *Member) refused(r consensus.Refusal) {
	m.cfg.Logger.Warn("proposal refused", "term", r.Term, "error", r.Err)
	m.Slot.Refused(r)
}

// full notes that the log's disk has no space left (err), or has space again (nil). Nothing is acknowledged
// in between.
func (m *Member) full(err error) {
	reason := ""
	if err != nil {
		reason = "no space left on the log's disk"
		m.cfg.Logger.Error("the log's disk is full: nothing is acknowledged here until there is space", "error", err)
	} else {
		m.cfg.Logger.Info("the log's disk has space again")
	}
	m.cfg.Board.Update(func(s *status.Node) {
		s.LogState, s.LogDetail = status.LogOK, reason
		if reason != "" {
			s.LogState = status.LogFull
		}
	})
	m.Inbox.LogTrouble(role.LogTrouble{Reason: reason})
}

// bulkConfig completes the world's config of copies beside Raft.
func (m *Member) bulkConfig(c bulk.Config) bulk.Config {
	committed := m.Raft.Committed()
	c.Self, c.Tasks = m.cfg.Self.ID, m.cfg.Clock
	c.Stages = bulk.LogStages{Log: m.log, Epoch: func() uint64 { return committed.Mark().Epoch }}
	c.Leads = func(id cluster.NodeID, term uint64) bool { return m.Raft.Role().LedBy(id, term) }
	c.Entries = logcopy.Entries{Node: m.Raft, Log: func() bulk.Reader {
		log := m.cfg.OpenLog()
		log.Damaged = func(error) {} // the peer goes on with another node
		return log
	}}
	source := &logcopy.Source{
		Self: m.cfg.Self.ID, Committed: committed, Role: m.Raft.Role, State: m.cfg.Board.State,
		Log: func() bulk.Reader { return m.cfg.OpenLog() }, Clock: m.cfg.Clock,
	}
	if m.runsMysqld() {
		source.Applied = m.applied
	}
	c.Source = source
	c.Voters, c.Outgoing, c.Learners = m.stageMembers()
	return c
}

// stageMembers returns the nodes that get stages.
func (m *Member) stageMembers() (voters, outgoing, learners []cluster.NodeID) {
	voters, learners = m.Feeder.StageMembers(m.cfg.Board.Members())
	return voters, m.Raft.Committed().State().Outgoing, learners
}

// feeding is the node as a logcopy.Feeder asks it, which leaves learners to their sources.
type feeding struct{ *Member }

// Role and what follows implement logcopy.FeederNode.
func (n feeding) Role() consensus.RoleState                        { return n.Raft.Role() }
func (n feeding) State() cluster.State                             { return n.cfg.Board.State() }
func (n feeding) Nodes() []status.Node                             { return n.cfg.Board.Nodes() }
func (n feeding) SetFed(ctx context.Context, ids []cluster.NodeID) { n.Raft.SetFed(ctx, ids) }
func (n feeding) SetStageMembers()                                 { n.Bulk.SetMembers(n.stageMembers()) }

// followed is the node as a membership.Follower drives it.
type followed struct {
	Peers
	m *Member
}

// SetPeers and what follows implement membership.Node.
func (n followed) SetPeers(former transport.Former) {
	n.Peers.SetPeers(former)
	if n.m.Bulk != nil {
		n.m.Bulk.SetMembers(n.m.stageMembers())
	}
}
func (n followed) Leader() (cluster.NodeID, bool) {
	r := n.m.Raft.Role()
	return r.Leader, r.Leading
}
func (n followed) Committed() (cluster.StatePoint, <-chan struct{}) {
	return n.m.Raft.Committed().StateChanged()
}
func (n followed) CommittedIndex() uint64       { return n.m.Raft.Committed().Mark().Index }
func (n followed) Kept() cluster.StatePoint     { return n.m.cfg.State.Point() }
func (n followed) Keep()                        { n.m.KeepState() }
func (n followed) FirstIndex() uint64           { return n.m.log.FirstIndex() }
func (n followed) Leave(d membership.Departure) { n.m.cfg.Departing.Leave(d) }
func (n followed) LogHolder(s cluster.State, away func(string) bool) (string, int64) {
	return n.m.Purger.Holder(s, away)
}

// host is the node around its mysqld.
type host struct {
	Host
	m *Member
}

// Role and what follows implement primary.Host.
func (h host) Role() status.Role { return h.m.cfg.Board.Own().Role }
func (h host) Log() primary.Log  { return h.m.cfg.OpenLog() }

// MayOpen goes by what is committed: the caller has passed a barrier.
func (h host) MayOpen() error {
	return h.m.Raft.Committed().State().State.MayOpen(h.m.cfg.Self.Name)
}
func (h host) Judged(v replay.Verdict) {
	h.Host.Judged(v)
	if v.Refused == "" && v.Done != nil && !v.Again.IsEmpty() {
		h.m.Marker.UsesXA() // mysqld has rolled these transactions back, and no longer shows them
	}
}
