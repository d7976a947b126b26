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

// A learner with a source gets the log from that node, and from the leader nothing
// but heartbeats. Raft has no such thing, and need not know of it: what the source
// gives the learner takes for a message of the leader, which it is in all that
// counts. For the source gives entries only up to its newest committed one, and only
// while that is of its own term T. Its leader in T made that entry, so, by the log
// matching property, the leader's log up to there is the same, entry by entry: it
// could have sent them itself. They are committed, so no log ever has others there.
// The learner's answers go to the leader, as always: it knows how far the learner is.

// RelayPoint is up to where a node may give entries in the leader's place.
type RelayPoint struct {
	Term   uint64
	Leader cluster.NodeID
	// Commit is the newest committed index there; its entry is of Term.
	Commit uint64
}

// Relayed are committed entries that a learner got from its source.
type Relayed struct {
	RelayPoint
	Entries []seglog.Entry
}

// ErrNoRelay refuses entries that did not come from the leader.
var ErrNoRelay = errors.New("entries in the leader's place are refused")

// RelayPoint says up to where a node may feed a learner in the leader's place; ok is false
// while the newest committed entry is not of this very term, or nobody is known to lead in it.
func (c *Committed) RelayPoint(role RoleState) (p RelayPoint, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = RelayPoint{Term: c.markTerm, Leader: role.Leader, Commit: c.mark.Index}
	return p, role.Leader != 0 && role.Term == c.markTerm
}

// StepRelayed takes what a learner's source gave. Entries that it has are passed
// over. A nil error means stepped: what was taken shows in the commit check.
func (g *Group) StepRelayed(r Relayed) error {
	if _, ok := g.committed.State().State.SourceOf(g.self()); !ok {
		return fmt.Errorf("%w: this node has a vote, or no source", ErrNoRelay)
	}
	if r.Term < g.role.Term || r.Leader == 0 || r.Term == g.role.Term && g.role.Leader != 0 && g.role.Leader != r.Leader {
		return fmt.Errorf("%w: they are of term %d and leader %d, here it is term %d and leader %d",
			ErrNoRelay, r.Term, r.Leader, g.role.Term, g.role.Leader)
	}
	// Raft drops a message that begins before what it knows to be committed: its own
	// log is sound up to there, and the commit check follows.
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
		_ = g.rn.Step(m) // it fails for nothing that is here
		// The source gives in the leader's name only while it hears of it.
		g.silence = 0
		g.observe()
	}
	return nil
}

// SetFed says which learners are fed by their sources now, as they said themselves
// just before: to them this leader sends no entries. A new leader feeds all until it is
// told.
func (g *Group) SetFed(ids []cluster.NodeID) {
	clear(g.fed)
	for _, id := range ids {
		g.fed[uint64(id)] = true
	}
}

// feedVoters forgets who was fed by a source and has a vote now, so that nobody takes
// it for that when it has lost the vote again.
func (g *Group) feedVoters() {
	maps.DeleteFunc(g.fed, func(id uint64, _ bool) bool { return !g.isFed(id) })
}

// leavesToSource tells whether a message of raft to a peer is not sent, because the
// peer gets what it brings from its source. To raft it is lost.
func (g *Group) leavesToSource(m *pb.Message) bool {
	return m.GetType() == pb.MsgApp && g.role.Leading && g.isFed(m.GetTo())
}

// isFed tells whether a peer is a learner that is fed by its source.
func (g *Group) isFed(id uint64) bool {
	return g.fed[id] && slices.ContainsFunc(g.cfg.Members, func(m cluster.Member) bool {
		return uint64(m.ID) == id && m.Kind == cluster.KindLearner
	})
}

// answersInVain tells whether m is the answer to a heartbeat of a learner that is fed
// by its source: raft would read the log for it, to send what it lacks. Nothing else
// comes of it: a learner counts for no majority.
func (g *Group) answersInVain(m *pb.Message) bool {
	return m.GetType() == pb.MsgHeartbeatResp && g.role.Leading && m.GetTerm() == g.role.Term && g.isFed(m.GetFrom())
}

// joint tells whether a change of the voters is not complete.
func (c *Committed) joint() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.state.Outgoing) > 0
}
