package doctor

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/install"
)

// Report is what was found of a host.
type Report struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// AgentRuns: this node's agent runs. If it has answered, what it says was looked at, too.
	AgentRuns bool `json:"agent_runs"`
	// Result is the worst state of Checks, of which CheckUnknown counts as CheckOK.
	Result cluster.CheckState `json:"result"`
	Checks []cluster.Check    `json:"checks"`
}

// Agent is the subject of Host.Silent.
const Agent = "agent"

// Host is what Examine needs.
type Host struct {
	Config config.Config
	// Discover finds the MySQL that Config names.
	Discover func() (*install.Installation, error)
	// Agent is what this node's agent says of the cluster; nil = it has not answered.
	Agent *status.Cluster
	// Silent is the Check about an agent that runs, or may, and does not answer as Config says; nil = none.
	Silent *cluster.Check
	// Root is put before the paths of /proc, /sys and /etc; "" outside of tests.
	Root string
}

// measureTime bounds how long the disks are measured, all together.
const measureTime = 2 * time.Second

// Examine looks at everything. Ending ctx ends the measures early.
func Examine(ctx context.Context, h Host) Report {
	r := Report{Cluster: h.Config.Cluster, Node: h.Config.Node, AgentRuns: h.agentRuns()}
	var disks, peers, clock []cluster.Check
	var median time.Duration
	var rounds []time.Duration
	var all sync.WaitGroup
	all.Go(func() { disks, median = h.disks(ctx) })
	all.Go(func() { peers, rounds = h.peers(ctx) })
	all.Go(func() { clock = h.clock(ctx) })
	all.Wait()
	if h.Silent != nil {
		r.Checks = append(r.Checks, *h.Silent)
	}
	for _, checks := range [][]cluster.Check{h.mysql(), disks, h.space(), peers, {h.latency(median, rounds)}, clock, h.ports(), h.loopback(ctx), {h.fence()},
		h.confinement(), h.limits(), h.memory()} {
		r.Checks = append(r.Checks, checks...)
	}
	r.Result = cluster.Worst(r.Checks)
	return r
}

// agentRuns tells whether it is known that this node's agent runs.
func (h Host) agentRuns() bool {
	return h.Agent != nil || h.Silent != nil && h.Silent.State != cluster.CheckUnknown
}

// self is what the agent says of this node; nil = it has not answered.
func (h Host) self() *status.Node {
	if h.Agent == nil {
		return nil
	}
	for i, n := range h.Agent.Nodes {
		if n.Name == h.Agent.Self {
			return &h.Agent.Nodes[i]
		}
	}
	return nil
}
