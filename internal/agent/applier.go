package agent

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/mysqld"
)

// applierWatch knows whether a replica's mysqld applies what is committed. What has
// stopped is started again every two seconds, and may stop again at once: so it counts as
// stopped until it has applied something, or lacks nothing.
type applierWatch struct {
	why      string // "" = it applies
	executed string // gtid_executed when it was seen stopped last
}

// stuckMin is for how many seconds nothing was applied before an error that may pass by
// itself counts.
const stuckMin = 2

// observe takes a poll of a replica and returns why it does not apply; "" = it does. full
// is what its mysqld has said of a full disk, l what it lacks, and stuck for how many
// seconds it has applied nothing although it lacks something.
func (w *applierWatch) observe(s mysqld.ReplicaStatus, full string, l consensus.Lag, stuck float64) string {
	why := ""
	switch receives := s.IORunning || s.IOConnecting && stuck < stuckMin; {
	case s.SQLError != "" && !s.SQLRunning:
		why = "replication has stopped: " + s.SQLError
	case s.IOError != "" && !receives:
		why = "replication cannot read: " + s.IOError
	case !s.SQLRunning || !s.IORunning && !s.IOConnecting:
		why = "replication is not running"
	case full != "" && stuck >= stuckMin:
		why = full
	}
	if why != "" {
		*w = applierWatch{why, s.Executed}
	} else if s.Executed != w.executed || l.Transactions == 0 {
		w.why = ""
	}
	return w.why
}

// cannotTakeOver says of a replica that does not apply what follows from it.
func cannotTakeOver(why, node string) string {
	return fmt.Sprintf("it cannot take over: %s; it is started again every 2 s; if that does not help: quorate restart-mysqld %s, then quorate node rebuild %s", why, node, node)
}

// applyProgress returns a text that changes as long as mysqld gets on with what it lacks:
// from one transaction to the next, inside of one, or with receiving it.
func (a *Agent) applyProgress(ctx context.Context, admin *mysqld.Admin, executed string) (string, error) {
	work, err := admin.ApplyWork(ctx)
	f := a.feed.Stats()
	return fmt.Sprintf("%s, work %d, events %d", executed, work, f.Events-f.Heartbeats), err
}
