package consensus

import (
	"bytes"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// noticeAfter is how long a follower may lack a commit index that it could use. It is
// longer than the time from a commit to the next append while one client writes, and
// short beside everything that a replica does then.
const noticeAfter = 5 * time.Millisecond

// noticeContext in a heartbeat marks it as a notice: it carries a commit index and wants
// no answer. Raft's rounds count from 1, so raft itself never sends this context. An agent of an
// older version takes a notice for a heartbeat and answers it; round 0 is never open, so that answer
// counts for nothing.
var noticeContext = [raftContextBytes]byte{}

// notices knows which commit index this leader has told each follower. It is valid in one term.
//
// At each commit raft sends every follower an append message without entries, and the follower answers. That is
// half of all messages of a commit. While clients write, the next append brings the commit index as well, so
// these messages are left out (saysCommitOnly). A follower that still lacks the index after noticeAfter gets a
// notice. It gets the notice at once if a client may wait for it. No ACK depends on notices: only the leader
// sends ACKs.
type notices struct {
	// told is the newest commit index that was sent to a peer. since is the time from which on the peer could
	// use a newer one.
	told  map[uint64]uint64
	since map[uint64]time.Duration
	// urgent is the commit index up to which a node or client may wait.
	urgent uint64
	// asked are the peers that raft asks in this turn, by an append without entries, what they have. Such an
	// append finds lost messages, so it is sent.
	asked map[uint64]bool
	// due is when the next notice is due; 0 = none is. stale: compute due again.
	due   time.Duration
	stale bool
}

func (n *notices) end() {
	*n = notices{told: map[uint64]uint64{}, since: map[uint64]time.Duration{}, asked: map[uint64]bool{}}
}

// NoticeAt is when Notify is due; 0 = it is not.
func (g *Group) NoticeAt() time.Duration { return g.notices.due }

// Notify makes the next Ready tell followers of commits that they have lacked for too long.
func (g *Group) Notify(now time.Duration) { g.now, g.notices.stale = now, true }

// isNotice tells whether m is a notice, or the answer to one.
func isNotice(m *pb.Message) bool {
	t := m.GetType()
	return (t == pb.MsgHeartbeat || t == pb.MsgHeartbeatResp) && bytes.Equal(m.GetContext(), noticeContext[:])
}

// noteStep notes what a message to this leader means for the notices.
func (g *Group) noteStep(m *pb.Message) {
	n := &g.notices
	if !g.role.Leading {
		return
	}
	switch m.GetType() {
	case pb.MsgHeartbeatResp:
		n.asked[m.GetFrom()] = true // raft asks each peer that may lack something, and the answer tells what it has
	case pb.MsgAppResp:
		n.stale = true
		if m.GetReject() {
			n.lost(m.GetFrom())
		}
	case pb.MsgReadIndex:
		g.waitedFor(g.rn.BasicStatus().GetCommit()) // raft answers with this index
	}
}

// lost notes that messages to a peer may not have arrived.
func (n *notices) lost(peer uint64) { delete(n.told, peer) }

// waitedFor notes that a node or client waits to learn that an index is committed.
func (g *Group) waitedFor(index uint64) {
	g.notices.urgent, g.notices.stale = max(g.notices.urgent, index), true
}

// saysCommitOnly tells whether all that m can do at the peer is to bring a commit index. While raft searches
// for the end of the peer's log, it waits for the answer, so m has to go. While the members change, all
// messages go: the last of them reaches the node that the change removes. A new leader may still have such a
// change from the leader before it.
func (g *Group) saysCommitOnly(m *pb.Message) (only bool) {
	to := m.GetTo()
	if m.GetType() != pb.MsgApp || len(m.GetEntries()) > 0 || !g.role.Leading || g.notices.asked[to] ||
		!g.knowsCommitted() || g.membersTerm == g.role.Term || g.committed.joint() {
		return false
	}
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		only = only || id == to && p.State == tracker.StateReplicate
	})
	g.notices.stale = true
	return only
}

// noteSent notes which commit index a message brings to a peer. An append counts only up to its last entry: the
// peer may lack what is behind.
func (g *Group) noteSent(m *pb.Message) {
	if !g.role.Leading {
		return
	}
	n, to, commit := &g.notices, m.GetTo(), m.GetCommit()
	switch m.GetType() {
	case pb.MsgApp:
		commit = min(commit, m.GetIndex()+uint64(len(m.GetEntries())))
	case pb.MsgHeartbeat:
	default:
		return
	}
	if commit > n.told[to] {
		n.told[to], n.stale = commit, true
	}
}

// tellCommits sends the notices that are due.
func (g *Group) tellCommits() {
	n := &g.notices
	clear(n.asked)
	if !n.stale || !g.role.Leading {
		return
	}
	n.stale, n.due = false, 0
	commit := g.rn.BasicStatus().GetCommit()
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		usable := min(p.Match, commit) // the peer may have nothing behind that
		if id == uint64(g.cfg.Self) || p.State != tracker.StateReplicate || usable <= n.told[id] || g.isFed(id) {
			delete(n.since, id)
			return
		}
		if _, ok := n.since[id]; !ok {
			n.since[id] = g.now
		}
		due := n.since[id] + noticeAfter
		if g.now < due && n.told[id] >= n.urgent {
			if n.due == 0 || due < n.due {
				n.due = due
			}
			return
		}
		delete(n.since, id)
		n.told[id] = usable
		g.out.Send = append(g.out.Send, &pb.Message{
			Type: pb.MsgHeartbeat.Enum(), To: &id, From: new(uint64(g.cfg.Self)), Term: new(g.role.Term),
			Commit: &usable, Context: noticeContext[:],
		})
	})
}
