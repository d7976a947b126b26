package devcluster

// SetBinary has node i run another program, from its agent's next start on.
func (c *Cluster) SetBinary(i int, binary string) { c.nodes[i].binary = binary }
