package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/lab/fault"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/result"
	"github.com/quorate/quorate/lab/workload"
)

const (
	// writeFor is how long clients write before the fault. holdFor is how long they write while the secondaries'
	// writes are held.
	writeFor = 3 * time.Second
	holdFor  = 8 * time.Second
	// startWait bounds the start of a node. A node that waits for others that never come is left
	// to people.
	startWait = 40 * time.Second
	// recoverWait bounds the work of people, until all remaining nodes are in.
	recoverWait = 5 * time.Minute
)

// rpo is a cell that loses nodes.
type rpo struct {
	*cell
	began time.Time // of the recovery
	steps []string
}

func (c *cell) rpo(ctx context.Context) error {
	r := &rpo{cell: c}
	primary, others, err := c.roles(ctx)
	if err != nil {
		return err
	}
	if len(others) == 0 && c.step.Workload == "majority-crash" {
		return fmt.Errorf("%w: %s has no secondaries", errNotForIt, c.step.System)
	}
	for _, node := range append([]string{primary}, others...) {
		if err := c.disks.SyncAll(node); err != nil {
			return err
		}
	}
	writers, err := c.writers(ctx)
	if err != nil {
		return err
	}
	// The clients know only the primary, and write only there.
	if r.prober, err = workload.NewProber(c.dial, writers[:1], writers[0]); err != nil {
		return err
	}
	probeCtx, stop := context.WithCancel(ctx)
	defer stop()
	probed := make(chan error, 1)
	go func() { probed <- r.prober.Run(probeCtx) }()
	err = sleep(ctx, writeFor)
	if err == nil {
		if c.step.Workload == "majority-crash" {
			err = r.majorityCrash(ctx, primary, others)
		} else {
			err = r.powerLoss(ctx, append([]string{primary}, others...))
		}
	}
	stop()
	err = errors.Join(err, <-probed)
	line := r.prober.Timeline()
	c.recordTimeline(line, time.Since(r.prober.Began()))
	if err != nil {
		return err
	}
	survivors := others
	if c.step.Workload != "majority-crash" {
		survivors = append([]string{primary}, others...)
	}
	if err := r.revive(ctx, primary, survivors); err != nil {
		return err
	}
	if _, err := c.judge(ctx, line); err != nil {
		return err
	}
	lost, known := c.row.Metric(result.Lost)
	if !known {
		return fmt.Errorf("judge what is lost: %s", c.row.Text[result.TextNoWitness])
	}
	c.text(result.TextVerdict, fmt.Sprintf("%.0f of %d acknowledged transactions were lost%s", lost, line.Count(workload.Acknowledged), c.proviso()))
	return nil
}

// proviso names the settings that decide whether something is lost, with the values that the servers have.
func (c *cell) proviso() string {
	var names []string
	switch c.step.System {
	case peers.Async, peers.SemiSync:
		names = []string{"relay_log_recovery", "sync_relay_log"}
	case peers.Galera:
		names = []string{"gcs.fc_limit"}
	}
	for i, name := range names {
		names[i] = name + "=" + c.system.Setting(name)
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

func (r *rpo) disk(node string, do func(fault.Disk) error) error {
	disk, err := r.disks.Disk(node)
	if err != nil {
		return err
	}
	return do(disk)
}

// majorityCrash: see doc.go. When it returns, all nodes but the primary are left, and none runs.
func (r *rpo) majorityCrash(ctx context.Context, primary string, others []string) error {
	r.event("the writes of " + strings.Join(others, " and ") + " are held")
	for _, node := range others {
		if err := r.disk(node, fault.Disk.Hold); err != nil {
			return err
		}
	}
	if err := sleep(ctx, holdFor); err != nil {
		return err
	}
	r.event("kill -9 " + primary + ", for good")
	if err := r.system.Kill(ctx, primary); err != nil {
		return err
	}
	if err := r.system.Abandon(primary); err != nil {
		return err
	}
	r.event("kill -9 " + strings.Join(others, " and "))
	// A process that waits for its disk dies when the wait ends, before it sees the result.
	if err := r.signal(others); err != nil {
		return err
	}
	for _, node := range others {
		if err := r.disk(node, fault.Disk.Refuse); err != nil {
			return err
		}
	}
	return r.remount(ctx, others)
}

// remount gives dead nodes disks that are well. Healing would not do: the disk would still return its old errors for
// mapped files.
func (r *rpo) remount(ctx context.Context, nodes []string) error {
	for _, node := range nodes {
		if err := errors.Join(r.system.Kill(ctx, node), r.disks.Mount(ctx, node)); err != nil {
			return err
		}
	}
	return nil
}

// signal sends SIGKILL to all processes of nodes and waits for none.
func (r *rpo) signal(nodes []string) error {
	for _, n := range r.system.Nodes() {
		for component, pid := range n.Processes {
			if !slices.Contains(nodes, n.Name) {
				continue
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill %s of node %s: %w", component, n.Name, err)
			}
		}
	}
	return nil
}

// powerLoss takes the power from all nodes at once, and gives it back.
func (r *rpo) powerLoss(ctx context.Context, nodes []string) error {
	r.event("all nodes lose power")
	var cutting errgroup.Group
	for _, node := range nodes {
		cutting.Go(func() error { return r.disk(node, fault.Disk.CutPower) })
	}
	err := cutting.Wait()
	if err := errors.Join(err, r.signal(nodes)); err != nil {
		return err
	}
	return r.remount(ctx, nodes)
}

// revive starts the remaining nodes and does what people must do, until the system is whole.
func (r *rpo) revive(ctx context.Context, primary string, survivors []string) error {
	r.began = time.Now()
	ctx, cancel := context.WithTimeout(ctx, recoverWait)
	defer cancel()
	r.event("start " + strings.Join(survivors, " and "))
	var starting sync.WaitGroup
	for _, node := range survivors {
		starting.Go(func() {
			start, cancel := context.WithTimeout(ctx, startWait)
			defer cancel()
			if err := r.system.Restart(start, node); err != nil {
				r.text("start "+node, oneLine(err))
			}
		})
	}
	starting.Wait()
	steps, err := r.system.Failover(ctx, primaryIfGone(primary, survivors))
	if err == nil {
		r.steps = append(r.steps, steps...)
		steps, err = r.system.Recover(ctx)
	}
	r.steps = append(r.steps, steps...)
	r.set(result.HumanSteps, float64(len(r.steps)))
	if len(r.steps) > 0 {
		r.text("steps", strings.Join(r.steps, "; "))
	}
	if err != nil {
		return fmt.Errorf("recover after %d steps: %w", len(r.steps), err)
	}
	if err := r.system.WaitReady(ctx); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	r.set(result.RecoverS, time.Since(r.began).Seconds())
	r.event("it takes writes again")
	return nil
}

// primaryIfGone is the dead node from which a script would fail over; "" if the primary is back.
func primaryIfGone(primary string, survivors []string) string {
	if slices.Contains(survivors, primary) {
		return ""
	}
	return primary
}
