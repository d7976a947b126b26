package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/api"
)

const (
	// pollInterval is the shortest pause between looks at a condition.
	pollInterval = 20 * time.Millisecond
	// lastingIntervalMax is the longest pause, for conditions that stay true once they hold: a look costs
	// the agent and this process a millisecond each, and a start takes seconds. It is also the largest
	// error of the times that the demo prints.
	lastingIntervalMax = 150 * time.Millisecond
	// intervalMax is the longest pause else: what is waited for may be over after a while, or somebody measures how long
	// there was no primary.
	intervalMax = 50 * time.Millisecond
	// statusTimeout bounds one status request: a stopped agent does not answer.
	statusTimeout = 500 * time.Millisecond
	// logTailBytes is how much of an agent's log goes into an error.
	logTailBytes = 600
)

// Poll calls cond every few milliseconds until it holds; what names the condition in errors. Poll
// gives up when ctx is done, with the last reason that cond gave, or at once
// when cond returns an error.
func Poll(ctx context.Context, what string, cond condition) error {
	return poll(ctx, what, intervalMax, cond)
}

// PollCommand is Poll with fewer looks: each starts a process.
func PollCommand(ctx context.Context, what string, cond condition) error {
	return poll(ctx, what, lastingIntervalMax, cond)
}

// condition says whether it holds, and if not, why.
type condition = func(context.Context) (ok bool, why string, err error)

// poll is Poll with ever longer pauses between looks, up to the longest.
func poll(ctx context.Context, what string, longest time.Duration, cond condition) error {
	interval := pollInterval
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		ok, why, err := cond(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("wait until %s: %w", what, err)
		case ok:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s (%s): %w", what, why, ctx.Err())
		case <-tick.C:
			interval = min(interval+interval/8, longest)
			tick.Reset(interval)
		}
	}
}

// Status returns the cluster as node i's agent sees it.
func (c *Cluster) Status(ctx context.Context, i int) (status.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return api.FetchStatus(ctx, c.addr(c.nodes[i].ports.api), "")
}

// NodeStatus returns node i's own status.
func (c *Cluster) NodeStatus(ctx context.Context, i int) (status.Node, error) {
	st, err := c.Status(ctx, i)
	if err != nil {
		return status.Node{}, err
	}
	for _, n := range st.Nodes {
		if n.Name == c.nodes[i].name {
			return n, nil
		}
	}
	return status.Node{}, fmt.Errorf("devcluster: the status of node %s does not name it", c.nodes[i].name)
}

// WaitPrimary waits until a running node says of itself that it is the primary,
// and returns its index. It does not ask the nodes in except: use that for nodes that are being
// killed.
func (c *Cluster) WaitPrimary(ctx context.Context, except ...int) (int, error) {
	primary := -1
	err := poll(ctx, "there is a primary", intervalMax, func(ctx context.Context) (bool, string, error) {
		why := ""
		for i, n := range c.nodes {
			if n.running() == nil || slices.Contains(except, i) {
				continue
			}
			st, err := c.NodeStatus(ctx, i)
			switch {
			case err != nil:
				why += n.name + " does not answer; "
			case st.Role == status.RolePrimary:
				primary = i
				return true, "", nil
			default:
				why += fmt.Sprintf("%s is %s: %s; ", n.name, st.Role, st.Reason)
			}
		}
		return false, why, c.exited()
	})
	return primary, err
}

// WaitReady waits until node i is a replica or the primary, or a logger that
// knows a leader.
func (c *Cluster) WaitReady(ctx context.Context, i int) error {
	return c.waitNode(ctx, i, "ready", lastingIntervalMax, isReady, i)
}

func isReady(st status.Node) bool {
	return st.Role == status.RoleReplica || st.Role == status.RolePrimary || st.Role == status.RoleLogger && st.Leader != 0
}

// WaitAllReady waits until every started node is ready and there is a primary,
// whose index it returns. It ends at once when an agent exits.
func (c *Cluster) WaitAllReady(ctx context.Context) (int, error) {
	var started []int
	for i, n := range c.nodes {
		if n.running() != nil {
			started = append(started, i)
		}
	}
	for _, i := range started {
		if err := c.waitNode(ctx, i, "ready", lastingIntervalMax, isReady, started...); err != nil {
			return -1, err
		}
	}
	return c.WaitPrimary(ctx)
}

// WaitCaughtUp waits until node i is ready and its mysqld has applied the log
// up to index.
func (c *Cluster) WaitCaughtUp(ctx context.Context, i int, index uint64) error {
	what := fmt.Sprintf("ready with index %d applied", index)
	return c.waitNode(ctx, i, what, lastingIntervalMax, func(st status.Node) bool {
		return (st.Role == status.RoleReplica || st.Role == status.RolePrimary) && st.Applied >= index
	}, i)
}

// WaitNode waits until cond holds for node i's own status. It ends at
// once when the agent has exited.
func (c *Cluster) WaitNode(ctx context.Context, i int, what string, cond func(status.Node) bool) error {
	return c.waitNode(ctx, i, what, intervalMax, cond, i)
}

// waitNode is WaitNode that ends when an agent of needed exits.
func (c *Cluster) waitNode(ctx context.Context, i int, what string, longest time.Duration, cond func(status.Node) bool, needed ...int) error {
	n := c.nodes[i]
	return poll(ctx, fmt.Sprintf("node %s is %s", n.name, what), longest, func(ctx context.Context) (bool, string, error) {
		for _, k := range needed {
			if c.nodes[k].running() == nil {
				return false, "", c.exitOf(c.nodes[k])
			}
		}
		st, err := c.NodeStatus(ctx, i)
		if err != nil {
			return false, err.Error(), nil
		}
		why := fmt.Sprintf("it is %s with index %d applied, mysqld %s: %s", st.Role, st.Applied, st.Mysqld, st.Reason)
		return cond(st), why, nil
	})
}

// exited returns an error if agents were started and none runs any more.
func (c *Cluster) exited() error {
	var errs []error
	for _, n := range c.nodes {
		if n.running() != nil {
			return nil
		}
		errs = append(errs, c.exitOf(n))
	}
	return errors.Join(errs...)
}

// exitOf describes how n's agent ended, with the end of its log.
func (c *Cluster) exitOf(n *node) error {
	text, err := os.ReadFile(n.log())
	if err != nil {
		return fmt.Errorf("node %s: %w (no log: %w)", n.name, ErrAgentExited, err)
	}
	text = bytes.TrimSpace(text[max(0, len(text)-logTailBytes):])
	return fmt.Errorf("node %s: %w; its log ends: %s", n.name, ErrAgentExited, text)
}
