package consensus

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/quorate/quorate/internal/cluster"
)

// What etcd/raft v3.7.0 does otherwise than this package needs, and what is done about it.
// quirks_test.go shows each quirk on raft alone, and fails where a newer raft has lost it:
// then its function here can go.
//
//	quirk                                        where in raft              here
//	an answer to an old message looks like one   raft.Step, m.Term < r.Term saysNothing
//	to the leader's probe
//	a peer that needs what is purged gets a      maybeSendSnapshot          returnToLog
//	snapshot or nothing
//	a forced vote ignores every lease            raft.Step, campaignTransfer mayForce
//	(etcd-io/raft#99)
//	a read index is answered too early by a      stepLeader, MsgReadIndex   asksTooEarly,
//	single voter (etcd-io/etcd#10590), and kept                             knowsCommitted
//	without a bound by others (etcd-io/etcd#12762)
//	the log is read within Step                  maybeSendAppend            SendMore, storage.Entries
//	(etcd-io/etcd#13471)
//	the end of joint consensus is tried only     appliedTo                  tickJoint
//	when an entry is applied, and may be dropped
//	a learner never forgets its leader           tickElection, promotable   forgetSilentLeader
//	(ForgetLeader: etcd-io/raft#78)
//	a commit index beyond the log is a panic     raftLog.commitTo           mustHave
//	that does not say what to do (etcd-io/etcd#17081)
//	a leader cannot step down by itself          (no call for it)           Resign
//
// Four rows have no issue upstream that says just that:
//
//   - saysNothing: raft gives this answer since etcd-io/etcd#5468 ("raft: fix stuck peer problem causing by
//     modified behavior of quorum checking"). No issue is known about a leader of the answer's own term.
//   - returnToLog: no issue is known. In maybeSendAppend a peer gets a snapshot as soon as entry Next-1 has no
//     term, and the leader never asks again what the peer has.
//   - tickJoint: etcd-io/etcd#12136 ("raft will not leave joint state automatically anymore if leader steps down
//     before advancing") was the same at a new leader, and is closed. That a transfer drops the proposal stands
//     in a comment of appliedTo.
//   - Resign: etcd-io/etcd#3866 ("raft: implement leader steps down") brought CheckQuorum alone, and
//     etcd-io/raft#83 is about a leader that is removed.
//
// Files of their own have what raft does more often than needed: appends that only tell a
// commit index (notices.go, etcd-io/raft#131), and writes of nothing else (stored.go).

// saysNothing tells whether m is raft's answer to a message of an earlier term,
// and of no later one than this node's. All that it can do is to bring its term;
// a leader of that very term would take it for the answer to its probe: the peer
// has everything up to index 0, send the log from entry 1. True answers have a
// higher index: an append without entries is never sent behind index 0.
func (g *Group) saysNothing(m *pb.Message) bool {
	return m.GetType() == pb.MsgAppResp && !m.GetReject() && m.GetIndex() == 0 && m.GetTerm() <= g.role.Term
}

// returnToLog helps raft where it would go on for a peer, which has just answered,
// at an entry that is purged: there is no snapshot, so it would send nothing more
// in this term. It comes to that when an answer was lost: of what the peer has,
// raft knows the part that it was told, and goes back to its end when messages
// are dropped; a purge knows what the peer's status says (replay.Needs).
//
// The peer is asked whether it has the last entry that is purged, as raft asks. It
// should: each member had that committed, on its disk. Its yes takes raft there; a
// no, of one that lost its log, changes nothing.
func (g *Group) returnToLog(peer uint64) {
	first := g.cfg.Log.FirstIndex()
	if first <= 1 {
		return // nothing was purged
	}
	purged, self := first-1, uint64(g.cfg.Self)
	lost := false
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		lost = lost || id == peer && id != self && pr.Next <= purged
	})
	if !lost {
		return
	}
	term, err := g.cfg.Log.Term(purged)
	if err != nil {
		return // purged further meanwhile: at the next answer
	}
	if g.asked[peer] != g.role.Term {
		g.asked[peer] = g.role.Term
		g.cfg.Logger.Warn("a peer is looked for before the log's beginning: asked whether it has what was purged", "peer", peer, "first", first)
	}
	g.out.Send = append(g.out.Send, &pb.Message{
		Type: pb.MsgApp.Enum(), To: &peer, From: &self, Term: new(g.role.Term),
		Index: &purged, LogTerm: &term, Commit: new(purged),
	})
}

// raftCampaignTransfer is raft's mark of a vote that ignores leases
// (campaignTransfer in its raft.go).
const raftCampaignTransfer = "CampaignTransfer"

// mayForce is false for a vote request that ignores the lease of the leader that this node
// knows, where that leader has not given it up (I5): by a transfer (the term after its
// own), or by resigning (the second term after its own, itself).
func (g *Group) mayForce(m *pb.Message) bool {
	if m.GetType() != pb.MsgVote || string(m.GetContext()) != raftCampaignTransfer {
		return true
	}
	return g.role.Leader == 0 || m.GetTerm() == g.role.Term+1 ||
		m.GetTerm() == g.role.Term+2 && cluster.NodeID(m.GetFrom()) == g.role.Leader
}

// knowsCommitted tells whether this leader has committed an entry of its term: what
// was committed before, it may not know until then. Raft keeps what is read before
// that, without a bound, and answers all of it at once; so it is not given any.
func (g *Group) knowsCommitted() bool { return g.committed.term() == g.role.Term }

// asksTooEarly tells whether m is a read barrier of a follower that raft must not see:
// a single voter would answer a learner at once, with what it knows to be committed.
func (g *Group) asksTooEarly(m *pb.Message) bool {
	return m.GetType() == pb.MsgReadIndex && g.role.Leading && !g.knowsCommitted()
}

// SendMore has raft send again what it had to leave, because it was not in
// memory: Log says that now some of it is. To raft each peer that it heard of
// lately, and whose answer it does not wait for, has answered its last heartbeat
// once more, which changes nothing else.
func (g *Group) SendMore() {
	if !g.role.Leading {
		return
	}
	var behind []uint64
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id != uint64(g.cfg.Self) && p.RecentActive && !p.IsPaused() && p.Next <= g.last {
			behind = append(behind, id)
		}
	})
	self := uint64(g.cfg.Self)
	for _, id := range behind {
		_ = g.rn.Step(&pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: &id, To: &self, Term: new(g.role.Term)})
	}
	g.observe()
}

// tickJoint ends a change of the voters that raft was kept from ending: it tries that
// only when it applies an entry, and the try is lost while leadership is handed over.
// On an idle cluster no other entry would come. If everything is committed, the end is
// not under way, and an empty entry has raft try again.
func (g *Group) tickJoint() {
	mark := g.committed.Mark().Index
	if !g.role.Leading || mark != g.last || !g.knowsCommitted() || !g.committed.joint() {
		return
	}
	_ = g.rn.Propose(nil) // dropped while leadership is handed over: at the next tick
}

// forgetSilentLeader has a node without a vote forget a leader that it has not heard
// for an election timeout. Raft only looks at that where it would stand for election.
// Who asks such a node, before a recovery, would be told of a leader that is long gone.
func (g *Group) forgetSilentLeader() {
	if g.silence < g.cfg.ElectionTicks || g.role.Leader == 0 || g.role.Leading {
		return
	}
	votes := false // by raft's configuration: in the middle of a change it may still
	g.rn.WithProgress(func(id uint64, kind raft.ProgressType, _ tracker.Progress) {
		votes = votes || id == uint64(g.cfg.Self) && kind == raft.ProgressTypePeer
	})
	if !votes {
		_ = g.rn.ForgetLeader() // it fails for nothing that is here
	}
}

// ErrLogBehind is what a node ends with whose log lacks entries that it has acknowledged.
var ErrLogBehind = errors.New("this node's log lacks entries that it has acknowledged")

// mustHave panics with a logFailure where the leader of this term has an acknowledgement
// from this node for more than its log has. A leader tells no follower of commits beyond
// that. The node may not vote or acknowledge with such a log. It returns an error where this
// node is known to have all that it has acknowledged in that term: then the leader is wrong.
func (g *Group) mustHave(heartbeat *pb.Message) error {
	if heartbeat.GetTerm() < g.role.Term {
		return nil
	}
	if last := g.storage.log.LastIndex(); heartbeat.GetCommit() > last {
		if g.isSound(heartbeat.GetTerm()) {
			return fmt.Errorf("it says that entry %d is committed here, the log ends at %d", heartbeat.GetCommit(), last)
		}
		panic(logFailure{fmt.Errorf("%w: it ends at index %d, and the leader has its acknowledgement for %d. Its data_dir is an older copy, "+
			"or the disk has lost writes: stop this agent and put the newest data_dir back; "+
			"if that is lost, run \"quorate node rebuild %s\" on another node", ErrLogBehind, last, heartbeat.GetCommit(), g.self().Name)})
	}
	return nil
}

// Resign steps down into the next term without a successor and stands for
// election at once: the way to a new epoch on the same node. To raft the first
// is a message of a higher term, as it comes from any peer, and the second a
// transfer to itself: its voters need not wait for a lease that it gave up. In
// another term than the given one it does nothing.
func (g *Group) Resign(term uint64) {
	if !g.role.Leading || g.role.Term != term {
		return
	}
	g.lease.until = clocks{}
	self := uint64(g.cfg.Self)
	next := g.role.Term + 1
	_ = g.rn.Step(&pb.Message{Type: pb.MsgAppResp.Enum(), From: &self, To: &self, Term: &next})
	g.observe()
	_ = g.rn.Step(&pb.Message{Type: pb.MsgTimeoutNow.Enum(), From: &self, To: &self, Term: &next})
	g.observe()
}
