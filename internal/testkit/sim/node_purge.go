package sim

import (
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// These intervals are shorter than package agent's, so that marks and purges often fall into the middle of
// faults.
const (
	durableEvery = 1500 * time.Millisecond
	purgeEvery   = 2 * time.Second
)

// markedMysqld returns the mysqld whose durable marks are taken.
func (a *agent) markedMysqld() retention.Mysqld {
	own := a.board.Own()
	judged := own.Role == status.RolePrimary || own.Role == status.RoleReplica
	if !judged || a.process == nil || !a.process.ready {
		return nil
	}
	return localServer{a, a.process}
}

// marks are durable marks. It implements retention.Marks.
type marks struct{ *agent }

// Of implements retention.Marks.
func (m marks) Of(uuid string) replay.Mark { return m.mark.Of(uuid) }

// Advance implements retention.Marks.
func (m marks) Advance(uuid string, mark replay.Mark) error {
	m.n.log("durable", "mark %d, witness %s", mark.Index, mark.Witness)
	m.n.marked = max(m.n.marked, mark.Index) // even if this fails, the mark may be on disk
	return m.n.write(m.life, func() error { return m.mark.Advance(uuid, mark) })
}

// durable is the durable mark of the node's mysqld.
func (a *agent) durable() replay.Mark { return a.mark.Of(a.n.uuid.String()) }

// purgedLog is the log that is purged. It implements retention.Log.
type purgedLog struct{ *agent }

// Segments implements retention.Log.
func (l purgedLog) Segments() []seglog.SegmentInfo { return l.log.Segments() }

// Purge implements retention.Log.
func (l purgedLog) Purge(upTo uint64) ([]seglog.SegmentInfo, error) {
	l.life.sleep(l.n.hiccup())
	removed, err := l.log.Purge(upTo)
	l.w.purged += len(removed)
	if err != nil {
		l.w.fail("log", "n%d: purge: %v", l.n.id, err)
	}
	return removed, err
}
