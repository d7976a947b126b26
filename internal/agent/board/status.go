package board

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
)

// Shown returns a status as others are to see it. A replica in its vote delay is shown as
// starting: nobody should hand over to it for that time. A primary that does not serve,
// because its lease has run out, is shown as demoting.
func Shown(s status.Node, votesIn time.Duration, serving bool) status.Node {
	switch {
	case s.Role == status.RoleReplica && votesIn > 0:
		s.Role, s.Reason = status.RoleStarting, joined(fmt.Sprintf(
			"its agent was started a moment ago: it votes for other nodes in %v; until then it stands for election only if the leader's agent is gone", votesIn.Round(100*time.Millisecond)), s.Reason)
	case s.Role == status.RolePrimary && !serving:
		s.Role, s.Reason = status.RoleDemoting, joined("the lease has run out: no majority answers with a promise", s.Reason)
	}
	return s
}
