package consensus

import (
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// AppendRun is one append to the log: contiguous entries, and the hard state
// that comes after them, or nil.
type AppendRun struct {
	Entries   []seglog.Entry
	HardState *seglog.HardState
}

// AppendRuns turns storage messages into appends, in order: usually one for
// all. Their responses are due once all runs are durable.
func AppendRuns(batch []*pb.Message) (runs []AppendRun) {
	var run AppendRun
	for _, m := range batch {
		es := m.GetEntries()
		if n := len(run.Entries); n > 0 && len(es) > 0 && es[0].GetIndex() != run.Entries[n-1].Index+1 {
			runs = append(runs, run)
			run = AppendRun{}
		}
		run.Entries = fromRaft(run.Entries, es)
		if m.Term != nil {
			run.HardState = &seglog.HardState{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
		}
	}
	if len(run.Entries) > 0 || run.HardState != nil {
		runs = append(runs, run)
	}
	return runs
}

// Newest returns the hard state to store with the run, or nil. Its term and vote are those of stored where
// stored is newer: votes overtake entries while the disk is full.
func (r AppendRun) Newest(stored seglog.HardState) *seglog.HardState {
	hs := r.HardState
	if hs != nil && (hs.Term < stored.Term || hs.Term == stored.Term && hs.Vote == 0) {
		return &seglog.HardState{Term: stored.Term, Vote: stored.Vote, Commit: max(hs.Commit, stored.Commit)}
	}
	return hs
}

// FullDisk decides what may leave a node whose log has found its disk full. Entries wait for space, and so does
// every answer that depends on them. Votes go on, or one dead node of three would stop the cluster. Before a
// vote leaves, the newest term and vote of all waiting messages must be stored. This includes the run that did
// not fit: raft may grant a vote again that it gave before, and then its storage message names no term. On most
// file systems the hard state has its place on the disk, even if the disk is full. Where a file system copies
// on write, the hard state may not fit either: then nothing leaves.
//
// It has no I/O: Driver does what it says.
type FullDisk struct {
	self    cluster.NodeID
	waiting AppendRun // the newest term and vote that were not on disk when they came; no entries
}

// NewFullDisk takes the runs that are not on disk: the run that did not fit, and those behind it.
func NewFullDisk(self cluster.NodeID, runs []AppendRun) *FullDisk {
	d := &FullDisk{self: self}
	for _, run := range runs {
		d.note(run)
	}
	return d
}

func (d *FullDisk) note(run AppendRun) {
	var before seglog.HardState
	if d.waiting.HardState != nil {
		before = *d.waiting.HardState
	}
	if hs := run.Newest(before); hs != nil {
		d.waiting.HardState = hs
	}
}

// Take takes a storage message that came while the disk is full. The votes may be sent once the hard state that
// Vote returns is stored. If storing fails, they are not sent at all, and the candidate asks again. waits=true:
// the message has entries and must be written later. Without entries the message needs nothing more: raft
// allows that its other responses are lost.
func (d *FullDisk) Take(m *pb.Message) (votes []*pb.Message, waits bool) {
	if m.Term != nil {
		d.note(AppendRun{HardState: &seglog.HardState{Term: m.GetTerm(), Vote: m.GetVote()}})
	}
	var rest []*pb.Message
	for _, r := range m.GetResponses() {
		if t := r.GetType(); r.GetTo() != uint64(d.self) && (t == pb.MsgVoteResp || t == pb.MsgPreVoteResp) {
			votes = append(votes, r)
		} else {
			rest = append(rest, r)
		}
	}
	m.Responses = rest
	return votes, len(m.GetEntries()) > 0
}

// Vote returns the hard state that must be stored before any vote is sent, or nil if stored has it already. Its
// commit index is that of stored: a newer commit index may cover entries that are not here.
func (d *FullDisk) Vote(stored seglog.HardState) *seglog.HardState {
	hs := d.waiting.Newest(stored)
	if hs == nil || hs.Term == stored.Term && hs.Vote == stored.Vote {
		return nil
	}
	return &seglog.HardState{Term: hs.Term, Vote: hs.Vote, Commit: stored.Commit}
}

// CheckAnswers panics if an answer to a peer leaves while the promise in it is not stored: a vote that is
// forgotten is given twice.
func CheckAnswers(responses []*pb.Message, stored seglog.HardState) {
	for _, r := range responses {
		if t := r.GetType(); r.GetReject() || t != pb.MsgVoteResp && t != pb.MsgAppResp {
			continue
		}
		kept := stored.Term > r.GetTerm() ||
			stored.Term == r.GetTerm() && (r.GetType() == pb.MsgAppResp || stored.Vote == r.GetTo())
		invariant.Check(kept, "vote", "%s of term %d to node %d leaves while %+v is on disk", r.GetType(), r.GetTerm(), r.GetTo(), stored)
	}
}
