package consensus

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
)

// A learner with a source gets the log from that node. From the leader it gets only heartbeats. Raft has no
// such feature, and need not know of it: the learner treats what the source gives it like a message of the
// leader. That is correct for this reason. The source gives only entries up to its newest committed entry, and
// only while that entry is of the source's own term T. The leader of T made that entry. So, by the log matching
// property, the leader's log up to there is the same, entry by entry: the leader could have sent them itself.
// They are committed, so no log ever has other entries there. The learner sends its answers to the leader, as
// always, so the leader knows how far the learner is.

// RelayPoint is the point up to which a node may give entries in the leader's place.
type RelayPoint struct {
	Term   uint64
	Leader cluster.NodeID
	// Commit is the newest committed index at that node. Its entry is of Term.
	Commit uint64
}

// Relayed are committed entries that a learner got from its source.
type Relayed struct {
	RelayPoint
	Entries []seglog.Entry
}

// ErrNoRelay refuses entries that did not come from the leader.
var ErrNoRelay = errors.New("entries of a source are refused")

// RelayPoint returns the point up to which a node may feed a learner in the leader's place. ok is false while
// the newest committed entry is not of the current term, or no leader of that term is known.
func (c *Committed) RelayPoint(role RoleState) (p RelayPoint, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = RelayPoint{Term: c.markTerm, Leader: role.Leader, Commit: c.mark.Index}
	return p, role.Leader != 0 && role.Term == c.markTerm
}

// StepRelayed takes entries that a learner's source gave. Entries that this node has already are skipped. A nil
// error means that the entries were stepped; the commit check shows which of them were taken.
func (g *Group) StepRelayed(r Relayed) error {
	if _, ok := g.committed.State().State.SourceOf(g.self()); !ok {
		return fmt.Errorf("%w: this node has a vote, or no source", ErrNoRelay)
	}
	if r.Term < g.role.Term || r.Leader == 0 || r.Term == g.role.Term && g.role.Leader != 0 && g.role.Leader != r.Leader {
		return fmt.Errorf("%w: they are of term %d and leader %d; this node knows term %d and leader %d",
			ErrNoRelay, r.Term, r.Leader, g.role.Term, g.role.Leader)
	}
	// Raft drops a message that begins before its commit index. This node's log is sound up to that index, and
	// the commit check follows.
	has := max(g.committed.Mark().Index, g.rn.BasicStatus().GetCommit())
	entries := slices.DeleteFunc(slices.Clone(r.Entries), func(e seglog.Entry) bool { return e.Index <= has })
	if len(entries) == 0 {
		return nil
	}
	last := entries[len(entries)-1]
	if entries[0].Index != has+1 || last.Index != has+uint64(len(entries)) || last.Index > r.Commit || last.Term > r.Term {
		return fmt.Errorf("%w: entries %d to %d of up to term %d do not follow entry %d, or are not committed up to %d in term %d",
			ErrNoRelay, entries[0].Index, last.Index, last.Term, has, r.Commit, r.Term)
	}
	term, err := g.storage.Term(has)
	if err != nil {
		return fmt.Errorf("read the term of entry %d: %w", has, err)
	}
	m := g.cutBeforeMissingStage(&pb.Message{
		Type: pb.MsgApp.Enum(), From: new(uint64(r.Leader)), To: new(uint64(g.cfg.Self)), Term: &r.Term,
		Index: &has, LogTerm: &term, Entries: toRaft(entries), Commit: &r.Commit,
	})
	if m != nil {
		if err := g.examineEntries(m); err != nil {
			return fmt.Errorf("%w: %w", ErrNoRelay, err)
		}
		_ = g.rn.Step(m) // no error of Step applies here
		// The source gives entries in the leader's name only while it hears the leader.
		g.silence = 0
		g.observe()
	}
	return nil
}

// SetFed sets which learners get entries from their sources now. They said so themselves just before. This
// leader sends them no entries. A new leader feeds all learners until SetFed is called.
func (g *Group) SetFed(ids []cluster.NodeID) {
	clear(g.fed)
	for _, id := range ids {
		g.fed[uint64(id)] = true
	}
}

// feedVoters forgets nodes that were fed by a source and have a vote now. If such a node loses its vote later,
// it must not count as fed.
func (g *Group) feedVoters() {
	maps.DeleteFunc(g.fed, func(id uint64, _ bool) bool { return !g.isFed(id) })
}

// leavesToSource tells whether a message of raft to a peer is not sent, because the peer gets its entries from
// its source. For raft the message is lost.
func (g *Group) leavesToSource(m *pb.Message) bool {
	return m.GetType() == pb.MsgApp && g.role.Leading && g.isFed(m.GetTo())
}

// isFed tells whether a peer is a learner that is fed by its source.
func (g *Group) isFed(id uint64) bool {
	return g.fed[id] && slices.ContainsFunc(g.cfg.Members, func(m cluster.Member) bool {
		return uint64(m.ID) == id && m.Kind == cluster.KindLearner
	})
}

// answersInVain tells whether m is the answer to a heartbeat by a learner that is fed by its source. Raft would
// read the log to send what the learner lacks. Nothing else depends on that answer: a learner counts for no
// majority.
func (g *Group) answersInVain(m *pb.Message) bool {
	return m.GetType() == pb.MsgHeartbeatResp && g.role.Leading && m.GetTerm() == g.role.Term && g.isFed(m.GetFrom())
}

// joint tells whether a change of the voters is still incomplete.
func (c *Committed) joint() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.state.Outgoing) > 0
}
