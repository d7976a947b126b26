package devcluster

import "time"

// SetBinary lets node i run another program, from its agent's next start on.
func (c *Cluster) SetBinary(i int, binary string) { c.nodes[i].binary = binary }

// SetTimings gives node i Raft timings of its own, from its agent's next start on.
func (c *Cluster) SetTimings(i int, heartbeat, electionTimeout time.Duration) error {
	c.nodes[i].heartbeat, c.nodes[i].electionTimeout = heartbeat, electionTimeout
	return c.writeNode(c.nodes[i])
}
