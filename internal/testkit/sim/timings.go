package sim

import "time"

const (
	promiseRetry = 10 * time.Second
	// electionTimeoutMax is the longest that a configuration may have.
	electionTimeoutMax = time.Minute
)

// timing is a node's raft.heartbeat, in ticks of which raft counts, and its
// raft.election_timeout.
type timing struct{ tick, election time.Duration }

// timings are those that nodes have where they differ: the first are the default ones.
var timings = [...]timing{
	{raftTick, electionTimeout},
	{raftTick, 600 * time.Millisecond},
	{raftTick, 3 * time.Second},
	{2 * raftTick, electionTimeout},
	{2 * raftTick, 3 * time.Second},
}

// assignTimings has operators roll other timings through the cluster, in one of three
// worlds: an agent may start with others than it had. Not where all turns on how fast
// the nodes are.
func (w *World) assignTimings() {
	differ := chance(w.random(streamTimings), 33)
	w.timingsDiffer = differ && !w.options.Blips && w.options.Members != MembersPair
}

// retime gives the agent that starts its timing.
func (n *node) retime() {
	if n.w.timingsDiffer && (n.timing == timing{} || chance(n.timingRNG, 30)) {
		n.timing = timings[n.timingRNG.IntN(len(timings))]
		n.log("agent", "has a heartbeat of %v and an election timeout of %v", ticksPerHeartbeat*n.timing.tick, n.timing.election)
	} else if n.timing == (timing{}) {
		n.timing = timings[0]
	}
}

// runPromise has only the own promises kept once those of before are over.
func (a *agent) runPromise() {
	for wait := a.promised; ; wait = promiseRetry {
		a.life.sleep(wait)
		err := a.n.write(a.life, func() error { return a.n.home.WritePromise(a.n.timing.election) })
		if err == nil {
			return
		}
		a.n.log("promise", "not noted: %v", err)
	}
}
