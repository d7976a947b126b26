package consensus

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/quorate/quorate/internal/cluster"
)

// This is where etcd/raft v3.7.0 does not do what this package needs, and what this package does about it.
// quirks_test.go shows each quirk on raft alone. Its test fails when a newer raft has lost the quirk: then the
// function here can go.
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
//	a follower passes a read index on in the     stepFollower, send         forwardsRead
//	name of the node that asked it (etcd-io/etcd#11466)
//	a learner never forgets its leader           tickElection, promotable   forgetSilentLeader
//	(ForgetLeader: etcd-io/raft#78)
//	a commit index beyond the log is a panic     raftLog.commitTo           mustHave
//	that does not say what to do (etcd-io/etcd#17081)
//	a leader cannot step down by itself          (no call for it)           Resign
//
// For four rows no issue upstream says exactly that:
//
//  - saysNothing: raft gives this answer since etcd-io/etcd#5468 ("raft: fix stuck peer problem causing by
//    modified behavior of quorum checking"). No issue is known about a leader of the answer's own term.
//  - returnToLog: no issue is known. In maybeSendAppend a peer gets a snapshot as soon as entry Next-1 has no
//    term, and the leader never asks the peer again what it has.
//  - tickJoint: etcd-io/etcd#12136 ("raft will not leave joint state automatically anymore if leader steps down
//    before advancing") was the same at a new leader, and is closed. A comment of appliedTo says that a transfer
//    drops the proposal.
//  - Resign: etcd-io/etcd#3866 ("raft: implement leader steps down") brought only CheckQuorum, and
//    etcd-io/raft#83 is about a leader that is removed.
//
// Raft also does some things more often than needed. Other files handle these: appends that only tell a commit
// index (notices.go, etcd-io/raft#131), and log writes that only store a commit index (stored.go).

// saysNothing tells whether m is raft's answer to a message of an earlier term, with a term that is not above
// this node's. Such an answer can only bring its term. But a leader of that very term would take it for the
// answer to its probe: the peer has everything up to index 0, so send the log from entry 1. True answers have a
// higher index: an append without entries is never sent behind index 0.
func (g *Group) saysNothing(m *pb.Message) bool {
	return m.GetType() == pb.MsgAppResp && !m.GetReject() && m.GetIndex() == 0 && m.GetTerm() <= g.role.Term
}

// returnToLog helps raft when it would continue with a peer, which has just answered, at an entry that is
// purged. There is no snapshot, so raft would send the peer nothing more in this term. This happens after an
// answer was lost. Raft knows only the answers that it got, and goes back to the last of them when messages are
// dropped. A purge goes by the peer's status (replay.Needs), which may be further.
//
// The peer is asked, with a message like raft's own, whether it has the last purged entry. It should have it:
// each member had that entry committed, on its disk. If the peer says yes, raft continues from there. If it
// says no, it has lost its log, and nothing changes.
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
		return // it was purged further meanwhile: the peer's next answer leads here again
	}
	if g.asked[peer] != g.role.Term {
		g.asked[peer] = g.role.Term
		g.cfg.Logger.Warn("a peer seems to need entries that were purged here: asking it whether it has them", "peer", peer, "first", first)
	}
	g.out.Send = append(g.out.Send, &pb.Message{
		Type: pb.MsgApp.Enum(), To: &peer, From: &self, Term: new(g.role.Term),
		Index: &purged, LogTerm: &term, Commit: new(purged),
	})
}

// raftCampaignTransfer is raft's mark of a vote that ignores leases
// (campaignTransfer in its raft.go).
const raftCampaignTransfer = "CampaignTransfer"

// mayForce is false for a vote request that ignores the lease of the leader that this node knows, unless that
// leader has given its lease up (I5). The leader gives it up by a transfer (the request has the term after the
// leader's), or by resigning (the request comes from the leader itself and has the second term after it).
func (g *Group) mayForce(m *pb.Message) bool {
	if m.GetType() != pb.MsgVote || string(m.GetContext()) != raftCampaignTransfer {
		return true
	}
	return g.role.Leader == 0 || m.GetTerm() == g.role.Term+1 ||
		m.GetTerm() == g.role.Term+2 && cluster.NodeID(m.GetFrom()) == g.role.Leader
}

// knowsCommitted tells whether this leader has committed an entry of its term. Before that it may not know
// everything that was committed. Raft keeps reads that come before that without a bound and answers all of them
// at once, so raft does not get them.
func (g *Group) knowsCommitted() bool { return g.committed.term() == g.role.Term }

// asksTooEarly tells whether m is a follower's read barrier that raft must not see yet: a single voter would
// answer a learner at once, from what it knows to be committed.
func (g *Group) asksTooEarly(m *pb.Message) bool {
	return m.GetType() == pb.MsgReadIndex && g.role.Leading && !g.knowsCommitted()
}

// forwardsRead tells whether m is a read barrier that came to a node which does not lead. Raft would send it on
// to the leader in the name of the node that asks. But a peer may send only in its own name: the leader would
// close the connection. The node that asks does so again.
func (g *Group) forwardsRead(m *pb.Message) bool {
	return m.GetType() == pb.MsgReadIndex && !g.role.Leading
}

// SendMore makes raft send again what it had to leave out because it was not in memory. The Log says that some
// of that is in memory now. For each peer that raft heard lately and from which it awaits no answer, raft gets
// one more answer to its last heartbeat. That changes nothing else.
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

// tickJoint ends a change of the voters that raft could not end. Raft tries that only when it applies an entry,
// and the attempt is lost while leadership is handed over. On an idle cluster no other entry would come. If
// everything is committed, the end is not under way, and an empty entry makes raft try again.
func (g *Group) tickJoint() {
	mark := g.committed.Mark().Index
	if !g.role.Leading || mark != g.last || !g.knowsCommitted() || !g.committed.joint() {
		return
	}
	_ = g.rn.Propose(nil) // It is dropped while leadership is handed over. The next tick tries again.
}

// forgetSilentLeader makes a node without a vote forget a leader that it has not heard for an election timeout.
// Raft checks that only where a node would stand for election. Otherwise such a node, when it is asked before a
// recovery, would name a leader that is long gone.
func (g *Group) forgetSilentLeader() {
	if g.silence < g.cfg.ElectionTicks || g.role.Leader == 0 || g.role.Leading {
		return
	}
	votes := false // by raft's configuration: in the middle of a change this node may still vote
	g.rn.WithProgress(func(id uint64, kind raft.ProgressType, _ tracker.Progress) {
		votes = votes || id == uint64(g.cfg.Self) && kind == raft.ProgressTypePeer
	})
	if !votes {
		_ = g.rn.ForgetLeader() // no error of ForgetLeader applies here
	}
}

// ErrLogBehind is the error with which a node ends when its log lacks entries that it has acknowledged.
var ErrLogBehind = errors.New("this node's log lacks entries that it has acknowledged")

// mustHave panics with a logFailure if the leader of this term has an acknowledgement from this node for more
// than its log has. A leader tells a follower only of commits up to such an acknowledgement. With such a log
// the node may not vote or acknowledge. If this node is known to have everything that it has acknowledged in
// that term, the leader is wrong: then mustHave returns an error.
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

// Resign steps down into the next term without a successor and stands for election at once. That is the way to
// a new epoch on the same node. For raft, stepping down is a message of a higher term, as any peer may send it.
// Standing is a transfer to itself: its voters need not wait for a lease that it has given up. In another term
// than the given one Resign does nothing.
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
