package consensus

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/log/seglog"
)

// storedState is what the log was last given of the hard state. The commit index in it is a hint and never
// synced: after a crash Raft learns it again. So the log does not get it at each commit of transactions. It
// gets it with the next entries, and once in a heartbeat interval.
type storedState struct {
	seglog.HardState
	ticks int  // since the log last got a commit index without entries
	due   bool // store the commit index, if there is a newer one
}

func (g *Group) tickStored() {
	if g.stored.ticks++; g.stored.ticks >= g.cfg.HeartbeatTicks {
		g.stored.due = true
	}
}

// mustStore tells whether one of raft's messages to the log must be written. A message that has only a commit
// index is left out. It may carry raft's answer to itself that the entries before it are on disk. That answer
// is not lost: the newest message that had entries, or another term, has the same one. It names the last entry
// and the term, and neither has changed. (There are no snapshots.)
func (g *Group) mustStore(m *pb.Message) bool {
	s := &g.stored
	must := len(m.GetEntries()) > 0 || m.Term != nil && (m.GetTerm() != s.Term || m.GetVote() != s.Vote)
	for _, r := range m.GetResponses() {
		must = must || r.GetType() != pb.MsgStorageAppendResp
	}
	if commit := g.rn.BasicStatus().GetCommit(); m.Term == nil && len(m.GetEntries()) > 0 && commit > s.Commit {
		// Raft says a commit index once, and that message was left out.
		m.Term, m.Vote, m.Commit = new(s.Term), new(s.Vote), &commit
	}
	if must && m.Term != nil {
		s.HardState = seglog.HardState{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
	}
	return must
}

// storeCommit gives the log a newer commit index, if that is due.
func (g *Group) storeCommit() {
	s := &g.stored
	if !s.due {
		return
	}
	s.due, s.ticks = false, 0
	commit := g.rn.BasicStatus().GetCommit()
	if commit == s.Commit {
		return
	}
	s.Commit = commit
	g.out.Append = append(g.out.Append, &pb.Message{
		Type: pb.MsgStorageAppend.Enum(), To: new(uint64(raft.LocalAppendThread)), From: new(uint64(g.cfg.Self)),
		Term: new(s.Term), Vote: new(s.Vote), Commit: &commit,
	})
}
