package membership

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// A learner gets its vote once it lacks no more than this: from then on a commit may have to
// wait for it. Its status may be half a second old.
const (
	promoteEntriesMax = 1024
	promoteLagMax     = 2 * time.Second
)

// CaughtUp tells whether a learner with this status may get a vote as a node of a kind.
func CaughtUp(n status.Node, kind cluster.Kind, committed uint64) bool {
	if !n.Reachable || n.LogState != status.LogOK || n.LogLast+promoteEntriesMax < committed {
		return false
	}
	if kind == cluster.KindLogger {
		return n.Role == status.RoleLogger
	}
	// Until mysqld was first asked, its lag is not known.
	return n.Role == status.RoleReplica && n.Applied+promoteEntriesMax >= committed && n.BacklogSeconds() <= promoteLagMax.Seconds()
}

// RefuseVote says why a learner with this status gets no vote as a node of a kind; "" = it may
// get one. invalid: it can never get one as this kind.
func RefuseVote(m cluster.Member, n status.Node, kind cluster.Kind, committed uint64) (why string, invalid bool) {
	switch {
	case GivesUp(m, n):
		return fmt.Sprintf("node %s is being rebuilt: it gets its vote back by itself", n.Name), false
	case n.Role == "" || !n.Reachable:
		return fmt.Sprintf("node %s is not heard of: it cannot get a vote", n.Name), false
	case n.Mysqld == status.MysqldNone && kind != cluster.KindLogger:
		return fmt.Sprintf("node %s has no mysqld: its kind must be logger", n.Name), true
	case n.Mysqld != status.MysqldNone && kind == cluster.KindLogger:
		return fmt.Sprintf("node %s has a mysqld, so it cannot be a logger: the log would be purged without regard to that mysqld", n.Name), true
	case !CaughtUp(n, kind, committed):
		return fmt.Sprintf("node %s has not caught up: its role is %s, its log ends at entry %d, its mysqld lacks %.1f s",
			n.Name, n.Role, n.LogLast, n.BacklogSeconds()), false
	}
	return "", false
}

// GivesUp tells whether a node that is rebuilt still runs with its former data directory,
// which it is about to give up: it may have caught up now, but will have nothing.
func GivesUp(m cluster.Member, n status.Node) bool {
	return m.Instance != "" && n.Instance != m.Instance
}

// ReadyForVote tells whether the leader gives a learner the vote that it joined for.
func ReadyForVote(m cluster.Member, n status.Node, committed uint64) bool {
	return m.Kind == cluster.KindLearner && m.Becomes != "" && !GivesUp(m, n) && CaughtUp(n, m.Becomes, committed)
}

// Short tells whether a node lacks entries from before the first that the leader has: no node
// that was there knew that it had joined, so nobody kept them for it.
func Short(m cluster.Member, n status.Node, first uint64) bool {
	return n.Reachable && n.Instance == m.Instance && n.LogState == status.LogOK && n.Role != status.RoleJoining &&
		n.LogLast > 0 && n.LogLast+1 < first
}

// OtherKind says why a node that joins never gets its vote: it was added as another kind
// than it is. "" = the kind is right.
func OtherKind(m cluster.Member, runsMysqld bool) string {
	switch {
	case m.Votes():
	case m.Becomes == cluster.KindFull && !runsMysqld:
		return fmt.Sprintf("it was added as a full node, and has no mysqld: it gets no vote; \"quorate node promote %s --kind logger\" gives it one as a logger", m.Name)
	case m.Becomes == cluster.KindLogger && runsMysqld:
		return fmt.Sprintf("it was added as a logger, and has a mysqld: it gets no vote; \"quorate node promote %s\" gives it one as a full node", m.Name)
	}
	return ""
}
