package quorumloss

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// logOf describes a log up to an entry, with the transactions that it has.
func logOf(log *seglog.Log, last, commit uint64, gtids string) (recovery.Log, error) {
	term, err := log.Term(last)
	if err != nil {
		return recovery.Log{}, fmt.Errorf("read the last entry's term: %w", err)
	}
	return recovery.Log{First: log.FirstIndex(), Last: last, Term: term, Commit: commit, GTIDs: gtids}, nil
}

// ClosedReport is what a node says of itself that a recovery has left behind: what its log has,
// committed or not. The log stays as it is.
func ClosedReport(self string, by *cluster.Recovery, o seglog.Options) (r recovery.Report, err error) {
	r = recovery.Report{Node: self, Out: by.Sentence(self)}
	log, err := seglog.Open(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	newest := log.Segments()[len(log.Segments())-1]
	set := newest.GTIDsBefore.Clone()
	if err := consensus.AddTransactions(set, log, newest.FirstIndex, log.LastIndex()); err != nil {
		return r, err
	}
	r.Log, err = logOf(log, log.LastIndex(), log.HardState().Commit, set.String())
	return r, err
}

// ReportOf is what a node that runs says of itself: what its log has, committed or not, and which
// members it hears. leader is the name of the leader that it follows, or its own; "" = none.
func ReportOf(self cluster.Member, log *seglog.Log, committed *consensus.Committed, leader string, nodes []status.Node) (r recovery.Report, err error) {
	from := committed.Mark().Index + 1 // read before the set, which may have more then
	set, last := committed.GTIDs(), log.LastIndex()
	if err := consensus.AddTransactions(set, log, from, last); err != nil {
		return r, err
	}
	r = recovery.Report{Node: self.Name, Leader: leader}
	if r.Log, err = logOf(log, last, committed.Mark().Index, set.String()); err != nil {
		return recovery.Report{}, err
	}
	for _, n := range nodes {
		if n.Reachable && n.ID != self.ID {
			r.Hears = append(r.Hears, n.Name)
		}
	}
	return r, nil
}
