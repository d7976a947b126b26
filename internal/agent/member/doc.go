// Package member is what a node consists of while it takes part in its cluster: Raft over its log, the
// role machine and what carries out its effects, who follows the members, the durable mark, the purge,
// copies beside Raft, learners' sources. It ties them together, and says which loops run.
//
// A node is such a member in one of its lives. Before, it joins or its log is healed (packages join and
// logcopy); afterwards it may be out of the cluster. Those lives have their own parts, and the world around
// all of them is the caller's: the mysqld, the peers' connections, the clients, the small files. The agent
// and the simulator give a Member two such worlds.
//
// Init builds what is there before the log is open, Open the rest; neither starts anything. Loops are what
// runs then, beside Raft's Run and Bulk's, and Gossip, which tells the peers of the node and the role machine of the
// peers, and judges the nodes' timings. CompleteHealing is what a node says in the life before. The parts own their state; Member has none but them. All that
// waits goes by the clocks of Config.
package member
