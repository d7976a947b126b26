// Package member is what a node consists of while it takes part in its cluster: Raft over its log, the
// role machine and what carries out its effects, the Follower of the members, the durable mark, the purge,
// copies beside Raft, learners' sources. It ties them together, and says which loops run.
//
// A node is such a member in one of its lives. Before that, it joins or its log is healed (packages join
// and logcopy); afterwards it may be out of the cluster. Those lives have parts of their own. The caller
// owns the world around all of them: the mysqld, the peers' connections, the clients, the small files. The
// agent gives a Member one such world, the simulator another.
//
// Init builds what needs no log, Open the rest; neither starts anything. Then these run: Loops, Raft's Run,
// Bulk's Run, and Gossip. Gossip sends the node's status to the peers, tells the role machine about the
// peers, and checks the nodes' timings. CompleteHealing completes the status of a node whose log is being
// healed. The parts own their state; Member has no other. Everything that waits goes by the clocks of Config.
package member
