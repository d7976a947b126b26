package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Stages: large transactions on their way beside the log (packages tap, bulk,
// seglog). Here they are only tied together.

func (a *Agent) bulkConfig(log *seglog.Log, epoch func() uint64, entries bulk.Entries) bulk.Config {
	cfg := bulk.Config{
		Self: a.self.ID, Stages: bulk.LogStages{Log: log, Epoch: epoch}, Entries: entries, Tasks: clock.Machine{}, Logger: a.logger,
		Dial: func(ctx context.Context, id cluster.NodeID) (bulk.Conn, error) {
			conn, err := a.peers.DialBulk(ctx, id)
			if err != nil {
				return nil, err
			}
			return bulk.NetConn(conn), nil
		},
	}
	if a.node != nil {
		cfg.Leads = func(id cluster.NodeID, term uint64) bool { return a.node.Role().LedBy(id, term) }
	}
	cfg.Voters, cfg.Outgoing, cfg.Learners = a.bulkMembers()
	return cfg
}

func (a *Agent) bulkMembers() (voters, outgoing, learners []cluster.NodeID) {
	if a.node != nil {
		outgoing = a.node.Committed().State().Outgoing
	}
	voters, learners = a.feeder.StageMembers(a.board.Members())
	return voters, outgoing, learners
}

// committedEntries opens the committed log for a peer that copies it.
func (a *Agent) committedEntries() bulk.Reader {
	log := a.logReader()
	log.Damaged = func(error) {} // the peer goes on elsewhere
	return log
}

func (a *Agent) onWanted(w consensus.Wanted) { a.bulk.Want(w.Staged, w.From) }

// runStages removes what is left of stages that nothing can name any more.
func (a *Agent) runStages(ctx context.Context) error {
	a.bulk.DropAbandoned(ctx, a.node.Committed().EpochChanged, a.log.DropStages)
	return nil
}

// stageBlocked says which stages wait because disks are full, or copies fail.
func (a *Agent) stageBlocked(blocked []bulk.Blocked) string {
	names := func(ids []cluster.NodeID) (names []string) {
		for _, id := range ids {
			if id != a.self.ID {
				names = append(names, a.board.Name(id))
			}
		}
		return names
	}
	var texts []string
	for _, b := range blocked {
		others := names(b.Full)
		id := fmt.Sprintf("%d-%d", b.ID.Term, b.ID.Number)
		if size := units.Size(int64(b.Bytes)); len(others) > 0 {
			texts = append(texts, fmt.Sprintf("commits wait for stage %s (%s): no majority can hold it, no space left on the disk of %s",
				id, size, strings.Join(others, ", ")))
		} else if failing := names(b.Failing); len(failing) > 0 {
			texts = append(texts, fmt.Sprintf("commits wait for stage %s (%s): it cannot be copied to %s: %v",
				id, size, strings.Join(failing, ", "), b.Why))
		} else {
			texts = append(texts, fmt.Sprintf("no space left on this node's disk for stage %s, %s of it were written", id, size))
		}
	}
	return strings.Join(texts, "; ")
}

// openEvents opens a staged transaction of the log.
func (a *Agent) openEvents(id entry.StageID) (mysqlwire.StageEvents, error) {
	return feed.Open(a.log, id, a.damaged)
}
