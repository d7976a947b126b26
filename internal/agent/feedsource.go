package agent

import "github.com/quorate/quorate/internal/mysql/feed"

// logReader reads the committed log.
func (a *Agent) logReader() feed.Reader {
	return feed.Reader{Log: a.log, Committed: a.Raft.Committed(), Entries: a.log.NewReader(), Damaged: a.damaged}
}
