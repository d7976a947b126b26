package consensus

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Log is what the group needs of the durable log. *seglog.Log implements it.
type Log interface {
	Append(entries []seglog.Entry, hs *seglog.HardState) error
	HardState() seglog.HardState
	FirstIndex() uint64
	LastIndex() uint64
	Term(index uint64) (uint64, error)
	Entries(lo, hi, bytesMax uint64) ([]seglog.Entry, error)
	EntriesInMemory(lo, hi, bytesMax uint64) ([]seglog.Entry, error)
	Arrived() <-chan struct{}
	Segments() []seglog.SegmentInfo
}

// storage shows a Log to raft.
type storage struct {
	log       Log
	confState *pb.ConfState
	// rn is the raft node that reads here. handsOut is set while it reads the entries that it hands out.
	rn       *raft.RawNode
	handsOut bool
}

func newStorage(log Log, p cluster.StatePoint) *storage {
	return &storage{log: log, confState: confStateOf(p)}
}

// ready returns what raft hands out. Committed entries are part of it: for these raft waits for the disk.
func (s *storage) ready() raft.Ready {
	s.handsOut = true
	defer func() { s.handsOut = false }()
	return s.rn.Ready()
}

// sends tells whether raft reads entries to send them to a peer. A leader reads entries only for that, and to
// hand them out. When it reads to send it must not wait for the disk: only that peer's progress depends on it,
// and all commits would wait.
func (s *storage) sends() bool {
	return !s.handsOut && s.rn.BasicStatus().RaftState == raft.StateLeader
}

// raiseTerm stores the term of the last entry, if the hard state has a lower term: a crash may have come
// between the writes of the two, and raft does not accept such a log. This node has answered no one in that
// term, so it has no vote in it.
func raiseTerm(log Log) error {
	hs := log.HardState()
	term, err := log.Term(log.LastIndex())
	if err != nil || term <= hs.Term {
		return err
	}
	return log.Append(nil, &seglog.HardState{Term: term, Commit: hs.Commit})
}

// InitialState implements raft.Storage.
func (s *storage) InitialState() (*pb.HardState, *pb.ConfState, error) {
	hs := s.log.HardState()
	if hs == (seglog.HardState{}) {
		return nil, s.confState, nil
	}
	return &pb.HardState{Term: new(hs.Term), Vote: new(hs.Vote), Commit: new(hs.Commit)}, s.confState, nil
}

// Entries implements raft.Storage. To a leader that sends, entries that have to be read from disk look
// compacted, for the moment. Then raft asks for a snapshot, learns that there is none at the moment, and leaves
// that peer alone until the peer answers again (raft.maybeSendAppend) or Group.SendMore says that the entries
// can be read.
func (s *storage) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	read := s.log.Entries
	if s.sends() {
		read = s.log.EntriesInMemory
	}
	found, err := read(lo, hi, maxSize)
	if errors.Is(err, seglog.ErrNotInMemory) {
		return nil, raft.ErrCompacted
	}
	if err != nil {
		return nil, storageError(err)
	}
	return toRaft(found), nil
}

// logFailure is the panic of the group when the log is not what raft relies on and raft cannot go on. The shell
// ends the node.
type logFailure struct{ error }

// Unwrap returns what is wrong with the log.
func (f logFailure) Unwrap() error { return f.error }

// Term implements raft.Storage.
func (s *storage) Term(i uint64) (uint64, error) {
	if i == 0 {
		return 0, nil
	}
	t, err := s.log.Term(i)
	if err != nil {
		return 0, storageError(err)
	}
	return t, nil
}

// LastIndex implements raft.Storage.
func (s *storage) LastIndex() (uint64, error) { return s.log.LastIndex(), nil }

// FirstIndex implements raft.Storage.
func (s *storage) FirstIndex() (uint64, error) { return s.log.FirstIndex(), nil }

// Snapshot implements raft.Storage. There are no snapshots. Nothing is purged that a member lacks, so every
// peer can be served from the log. Where raft does not know that, Group.returnToLog helps.
func (s *storage) Snapshot() (*pb.Snapshot, error) {
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}

// storageError returns raft's own error for an error of the log. It panics with a logFailure for an error that
// raft does not know.
func storageError(err error) error {
	switch {
	case errors.Is(err, seglog.ErrCompacted):
		return raft.ErrCompacted
	case errors.Is(err, seglog.ErrUnavailable):
		return raft.ErrUnavailable
	}
	panic(logFailure{fmt.Errorf("read the log for raft: %w", err)})
}

func toRaft(found []seglog.Entry) []*pb.Entry {
	entries := make([]*pb.Entry, len(found))
	backing := make([]struct {
		term, index uint64
		entry       pb.Entry
	}, len(found))
	for i := range found {
		b := &backing[i]
		b.term, b.index = found[i].Term, found[i].Index
		b.entry.Term, b.entry.Index = &b.term, &b.index
		b.entry.Type = pb.EntryType(found[i].Type).Enum()
		b.entry.Data = found[i].Data
		entries[i] = &b.entry
	}
	return entries
}

func fromRaft(dst []seglog.Entry, entries []*pb.Entry) []seglog.Entry {
	for _, e := range entries {
		dst = append(dst, seglog.Entry{
			Index: e.GetIndex(), Term: e.GetTerm(), Type: uint8(e.GetType()), Data: e.GetData(),
		})
	}
	return dst
}

// replayPoint says where the commit check starts after a restart: at the index before the newest segment whose
// start is committed. It also returns the GTIDs of all entries up to there. The index is at most through, the
// index up to which the cluster state is known: so the commit check finds all later changes.
func replayPoint(log Log, through uint64) (applied uint64, gtids *gtid.Set) {
	commit := min(log.HardState().Commit, through)
	gtids = &gtid.Set{}
	applied = log.FirstIndex() - 1
	for _, s := range log.Segments() {
		if s.FirstIndex == 0 || s.FirstIndex-1 > commit {
			break
		}
		applied, gtids = s.FirstIndex-1, s.GTIDsBefore
	}
	return applied, gtids.Clone()
}
