package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/quorate/quorate/lab/netlab"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/result"
	"github.com/quorate/quorate/lab/workload"
)

// usage is the CPU time and the counters up to a moment.
type usage struct {
	cpu     map[peers.Part]time.Duration
	waits   map[peers.Thread]int64
	counts  peers.Counts
	network netlab.Stats
}

func (c *cell) usage(ctx context.Context) (u usage, err error) {
	if u.cpu, err = c.system.CPU(); err != nil {
		return u, err
	}
	if u.waits, err = c.system.Waits(); err != nil {
		return u, err
	}
	u.counts, err = c.system.Counts(ctx)
	if errors.Is(err, peers.ErrNotCounted) {
		err = nil
	}
	u.network = c.network.Stats()
	return u, err
}

// lastWaits is how long before the end of a load its threads are counted: a server's threads end with their clients.
const lastWaits = 200 * time.Millisecond

// lateWaits waits until shortly before the end of a load of that length, or until ctx is done, and returns the wake-ups.
func (c *cell) lateWaits(ctx context.Context, load time.Duration) (map[peers.Thread]int64, error) {
	select {
	case <-ctx.Done():
	case <-time.After(load - lastWaits):
	}
	return c.system.Waits()
}

// recordUsage records what one transaction used, from before to after. late has the wake-ups shortly before the load's
// end, for threads that have ended since.
func (c *cell) recordUsage(ctx context.Context, before, after usage, late map[peers.Thread]int64, s workload.Sample) error {
	c.recordCPU(before, after, s.Transactions)
	each := func(name string, v float64) { c.set(name, v/float64(s.Transactions)) }
	each(result.CPU+"client", float64(s.ClientCPU.Microseconds()))
	if used := after.network.CPU - before.network.CPU; used > 0 {
		each(result.CPU+"switch", float64(used.Microseconds()))
	}
	if full := after.network.Full - before.network.Full; full > 0 {
		c.set("switch_full_packets", float64(full))
	}
	each(result.WakeUps, float64(grown(before.waits, after.waits, late)))
	if sent := after.counts.Messages - before.counts.Messages; sent > 0 {
		each(result.Messages, float64(sent))
	}
	for stage, h := range after.counts.Stages {
		if h = h.Since(before.counts.Stages[stage]); h.Count > 0 {
			c.set(result.StageP50+stage, 1000*h.Quantile(0.50))
			c.set(result.StageP99+stage, 1000*h.Quantile(0.99))
		}
	}
	primary, err := c.system.Primary(ctx)
	if err != nil {
		return fmt.Errorf("find the primary: %w", err)
	}
	if primary == "" {
		return nil // there are several primaries
	}
	onPrimary := time.Duration(0)
	for part, used := range after.cpu {
		if part.Node == primary {
			onPrimary += used - before.cpu[part]
		}
	}
	each(result.PrimaryCPU, float64(onPrimary.Microseconds()))
	return nil
}

// recordCPU records the CPU time of a transaction, by component and by node.
func (c *cell) recordCPU(before, after usage, transactions int64) {
	components := map[string]time.Duration{}
	for part, used := range after.cpu {
		used -= before.cpu[part]
		components[part.Component] += used
		c.set(result.NodeCPU+part.Node+"."+part.Component, float64(used.Microseconds())/float64(transactions))
	}
	for component, used := range components {
		c.set(result.CPU+component, float64(used.Microseconds())/float64(transactions))
	}
}

// grown returns by how much the counters of all threads have grown since before. It uses the last count of each thread.
func grown(before, after, late map[peers.Thread]int64) (sum int64) {
	last := maps.Clone(late)
	if last == nil {
		last = map[peers.Thread]int64{}
	}
	maps.Copy(last, after)
	for thread, n := range last {
		sum += n - before[thread]
	}
	return sum
}
