package primary

import (
	"fmt"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// GuardEvery is how many polls of mysqld pass between two looks at what costs more than the rest, and
// between two starts of replication that has stopped.
const GuardEvery = 4

// WatchExecuted returns the doubts about a mysqld that has more than was ever committed (I3).
// gtid_executed was read first: the committed set only grows, so a transaction that is missing there was
// not committed.
func WatchExecuted(role status.Role, executed *gtid.Set, committed func(*gtid.Set) bool) (doubts []string) {
	if (role == status.RolePrimary || role == status.RoleReplica) && !committed(executed) {
		doubts = append(doubts, "mysqld holds transactions that are not committed")
	}
	return doubts
}

// WatchPrimary returns the doubts about a primary that anyone but the tap could acknowledge. readers are
// the accounts that read its binlog, but for the tap's.
func WatchPrimary(s SemiSync, readers []string) (doubts []string) {
	if !s.On {
		doubts = append(doubts, "semi-sync was switched off")
	}
	if s.Clients > 1 {
		doubts = append(doubts, fmt.Sprintf("a foreign semi-sync replica is attached (%d in all)", s.Clients))
	}
	for _, account := range readers {
		doubts = append(doubts, fmt.Sprintf("account %s reads the binlog directly", account))
	}
	return doubts
}

// Stopped tells whether a part of replication does not run, and is to be started again.
func (s ReplicaStatus) Stopped() bool { return !s.Receives || !s.Applies }
