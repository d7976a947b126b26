package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Stages: large transactions on their way beside the log (packages tap, bulk,
// seglog). Here they are only tied together.

// copiesConfig is how this node copies beside the log.
func (a *Agent) copiesConfig() bulk.Config {
	return bulk.Config{Logger: a.logger, Dial: func(ctx context.Context, id cluster.NodeID) (bulk.Conn, error) {
		conn, err := a.peers.DialBulk(ctx, id)
		if err != nil {
			return nil, err
		}
		return bulk.NetConn(conn), nil
	}}
}

// copiesOf makes the copies beside a log that has no Raft, because it is healed or made. No node copies from it.
func (a *Agent) copiesOf(log *seglog.Log) *bulk.Bulk {
	cfg := a.copiesConfig()
	cfg.Self, cfg.Entries, cfg.Tasks = a.self.ID, noEntries{}, clock.Machine{}
	cfg.Stages = bulk.LogStages{Log: log, Epoch: func() uint64 { return 0 }}
	cfg.Voters, cfg.Learners = a.Feeder.StageMembers(a.board.Members())
	return bulk.New(cfg)
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
			texts = append(texts, status.CommitsWait+fmt.Sprintf("stage %s (%s): no majority has room for it, no space left on the disk of %s",
				id, size, strings.Join(others, ", ")))
		} else if failing := names(b.Failing); len(failing) > 0 {
			texts = append(texts, status.CommitsWait+fmt.Sprintf("stage %s (%s): it cannot be copied to %s: %v",
				id, size, strings.Join(failing, ", "), b.Why))
		} else {
			texts = append(texts, fmt.Sprintf("no space left on this node's disk for stage %s, after %s of it were written", id, size))
		}
	}
	return strings.Join(texts, "; ")
}

// openEvents opens a staged transaction of the log.
func (a *Agent) openEvents(id entry.StageID) (mysqlwire.StageEvents, error) {
	return feed.Open(a.log, id, a.damaged)
}
