package quorumloss

import (
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

// ClosedLog is what the log of a node has that takes no part, committed or not.
func ClosedLog(log *seglog.Log) (recovery.Log, error) {
	newest := log.Segments()[len(log.Segments())-1]
	set := newest.GTIDsBefore.Clone()
	if err := consensus.AddTransactions(set, log, newest.FirstIndex, log.LastIndex()); err != nil {
		return recovery.Log{}, err
	}
	return logOf(log, log.LastIndex(), log.HardState().Commit, set.String())
}

// ReportOf is what a node that runs says of itself: what its log has, committed or not, and
// whom it hears of. leader is the name of the leader that it follows, or its own; "" = none.
func ReportOf(self cluster.Member, log *seglog.Log, committed *consensus.Committed, leader string, nodes []status.Node) (r recovery.Report, err error) {
	from := committed.Mark().Index + 1 // before the set: it may have more
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

// SituationOf is what the node itself, whose agent does not run, knows when it is to be
// recovered. superseded is the recovery without it that it has accepted, or nil.
func SituationOf(self, clusterName string, log *seglog.Log, survey consensus.Survey, superseded *cluster.Recovery) (s recovery.Situation, err error) {
	p := survey.State
	s = recovery.Situation{
		Cluster: clusterName, Survivor: self,
		Voters: recovery.VoterNames(p.State, p.State.Voters()), Outgoing: recovery.VoterNames(p.State, p.Outgoing),
	}
	if superseded != nil {
		s.Out = superseded.Sentence(self)
	}
	s.Log, err = logOf(log, log.LastIndex(), log.HardState().Commit, survey.GTIDs.String())
	return s, err
}
