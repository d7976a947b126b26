package consensus

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// surveyBytesMax bounds how much of a log is read at a time.
const surveyBytesMax = 1 << 20

// Survey is what a log would amount to if all of it were committed.
type Survey struct {
	State cluster.StatePoint
	GTIDs *gtid.Set
}

// SurveyLog puts the whole log of a node that does not run through the commit check, as if it were committed to
// its end. point is the cluster state that the node has kept. If the log would not pass, that is an error.
func SurveyLog(log Log, point cluster.StatePoint) (s Survey, err error) {
	if _, err := firstPoint(GroupConfig{Log: log, State: &point}); err != nil {
		return s, err
	}
	defer func() {
		switch broken := recover().(type) {
		case nil:
		case invariant.Violation:
			err = fmt.Errorf("the log cannot be committed as it is: %w", broken)
		default:
			panic(broken)
		}
	}()
	applied, gtids := replayPoint(log, point.Through)
	c := newCommitted(applied, gtids)
	c.setState(point)
	for next, last := applied+1, log.LastIndex(); next <= last; {
		found, err := log.Entries(next, last+1, surveyBytesMax)
		if err != nil {
			return s, fmt.Errorf("read the log from entry %d: %w", next, err)
		}
		for _, e := range found {
			if e.Type == uint8(pb.EntryNormal) {
				c.apply(e.Index, e.Term, e.Data)
			} else {
				c.surveyMembers(e.Index, e.Term, e.Data)
			}
		}
		next += uint64(len(found))
	}
	return Survey{State: c.State(), GTIDs: c.GTIDs()}, nil
}

// surveyMembers is Group.applyMembers without a raft.
func (c *Committed) surveyMembers(index, term uint64, data []byte) {
	cc := &pb.ConfChangeV2{}
	err := proto.Unmarshal(data, cc)
	invariant.Check(err == nil, "members", "entry %d changes the members and cannot be read: %v", index, err)
	c.apply(index, term, nil)
	if cc.LeaveJoint() {
		c.endMembers(index)
		return
	}
	c.applyMembers(index, cc)
}

// AddTransactions adds to set the transactions of a log's entries from index from up to index to, whether they
// are committed or not.
func AddTransactions(set *gtid.Set, log Log, from, to uint64) error {
	for from <= to {
		found, err := log.Entries(from, to+1, surveyBytesMax)
		if err != nil {
			return fmt.Errorf("read the log from entry %d: %w", from, err)
		}
		for _, e := range found {
			if e.Type != uint8(pb.EntryNormal) {
				continue
			}
			if err := addTransactions(set, e.Data); err != nil {
				return fmt.Errorf("read entry %d: %w", e.Index, err)
			}
		}
		from += uint64(len(found))
	}
	return nil
}

func addTransactions(set *gtid.Set, data []byte) error {
	h, body, err := entry.Parse(data)
	if err != nil {
		return err
	}
	switch h.Kind {
	case entry.KindStaged:
		_, id, err := stagedTransaction(h, body)
		if err != nil {
			return err
		}
		set.Add(id)
	case entry.KindTransactions:
		for tx, err := range binlog.Transactions(body) {
			if err != nil {
				return err
			}
			set.Add(tx.GTID)
		}
	}
	return nil
}
