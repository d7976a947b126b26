package sim

import (
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// Intervals that are shorter than package agent's, so that marks and purges fall
// into the middle of faults, and often.
const (
	durableEvery = 1500 * time.Millisecond
	purgeEvery   = 2 * time.Second
)

// newMarker is of the agent's mysqld.
func (a *agent) newMarker() *retention.Marker {
	return retention.NewMarker(retention.MarkerConfig{
		Mysqld: func() retention.Mysqld {
			own := a.board.Own()
			judged := own.Role == status.RolePrimary || own.Role == status.RoleReplica
			if !judged || a.process == nil || !a.process.ready {
				return nil
			}
			return localServer{a, a.process}
		},
		Applied: func() uint64 { return a.board.Own().Applied }, Marks: marks{a}, Committed: a.raft.Committed(), Lag: &a.lag,
		Read:  func(f func(replay.CommittedLog) error) error { return f(a.committedLog()) },
		Every: durableEvery, Clock: a.life, Now: a.n.clock, Logger: a.n.logger("durable"),
	})
}

// marks are durable marks. It implements retention.Marks.
type marks struct{ *agent }

// Of implements retention.Marks.
func (m marks) Of(uuid string) replay.Mark { return m.mark.Of(uuid) }

// Advance implements retention.Marks.
func (m marks) Advance(uuid string, mark replay.Mark) error {
	m.n.log("durable", "mark %d, witness %s", mark.Index, mark.Witness)
	m.n.marked = max(m.n.marked, mark.Index) // it may be on disk, if this fails
	return m.n.write(m.life, func() error { return m.mark.Advance(uuid, mark) })
}

// durable is the durable mark of the node's mysqld.
func (a *agent) durable() replay.Mark { return a.mark.Of(a.n.uuid.String()) }

// newPurger is of the agent's log.
func (a *agent) newPurger() *retention.Purger {
	return retention.New(retention.Config{
		Self: a.n.id, Name: a.n.member.Name, Log: purgedLog{a}, Committed: a.raft.Committed(), Nodes: a.statuses, KeepState: a.keepState,
		StateNeed: a.stateNeed, Heard: &a.heard, Retention: replay.Retention{BytesMax: a.w.options.RetentionBytes}, Every: purgeEvery,
		Clock: a.life, Now: a.n.clock, Logger: a.n.logger("purge"),
	})
}

// purgedLog is the log as it is purged.
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

// statuses are of all members, as this node knows them.
func (a *agent) statuses() []status.Node { return a.board.NodesWith(a.ownStatus()) }

// stateNeed is what cluster.json needs of the log.
func (a *agent) stateNeed() replay.Need {
	return replay.Need{Who: a.n.member.Name, From: a.kept.Point().Through + 1, Why: "cluster.json", Known: true}
}
