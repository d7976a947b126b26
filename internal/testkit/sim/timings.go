package sim

import "time"

// electionTimeoutMax is the longest election timeout that a configuration may have.
const electionTimeoutMax = time.Minute

// timing is a node's raft.heartbeat, as the ticks in which raft counts, and its raft.election_timeout.
type timing struct{ tick, election time.Duration }

// timings are the timings that nodes may have when they differ. The first is the default.
var timings = [...]timing{
	{raftTick, electionTimeout},
	{raftTick, 600 * time.Millisecond},
	{raftTick, 3 * time.Second},
	{2 * raftTick, electionTimeout},
	{2 * raftTick, 3 * time.Second},
}

// assignTimings makes operators roll other timings through the cluster, in one of three worlds: an agent may
// start with other timings than before. It does not do so where everything depends on the speed of the nodes.
func (w *World) assignTimings() {
	differ := chance(w.random(streamTimings), 33)
	w.timingsDiffer = differ && !w.options.Blips && w.options.Members != MembersPair
}

// retime gives a starting agent its timing.
func (n *node) retime() {
	if n.w.timingsDiffer && (n.timing == timing{} || chance(n.timingRNG, 30)) {
		n.timing = timings[n.timingRNG.IntN(len(timings))]
		n.older = chance(n.timingRNG, 20)
		n.log("agent", "has a heartbeat of %v and an election timeout of %v", ticksPerHeartbeat*n.timing.tick, n.timing.election)
	} else if n.timing == (timing{}) {
		n.timing = timings[0]
	}
}
