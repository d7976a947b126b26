package sim

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/cluster"
)

const (
	// cloneSteps is how often a copy of a mysqld's data checks whether it goes on; cloneStep is the mean time
	// between two checks.
	cloneSteps = 20
	cloneStep  = 40 * time.Millisecond
)

// CopyData implements join.Node: it copies what a mysqld has at the end of the copy. The copy breaks off with
// the connection, and with either process.
func (j *joiner) CopyData(_ context.Context, plan join.Offer, of cluster.NodeID) error {
	from := j.w.node(of)
	if from.agent == nil {
		return errNoAnswer
	}
	source := from.agent.process
	for range cloneSteps {
		j.life.sleep(around(j.n.rng, cloneStep))
		there := from.agent != nil && from.agent.process == source && j.w.net.connected(from.id, j.n.id)
		if !there || source == nil || source.dead {
			return errNoAnswer
		}
		for from.stalledUntil > j.w.sched.now {
			j.life.sleep(from.stalledUntil - j.w.sched.now)
		}
	}
	j.n.mysqlDisk = from.mysqlDisk.Copy(j.n.uuid)
	delete(j.n.check.engines, j.n)
	j.n.check.engine(j.n)
	j.cloned = true
	mark, err := plan.Data.Mark()
	if err != nil {
		return err
	}
	j.n.marked = mark.Index
	return j.n.home.Copied(j.n.uuid.String(), mark)
}
