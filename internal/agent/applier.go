package agent

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/mysqld"
)

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
