package sim

import (
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// Options say what to run.
type Options struct {
	Seed uint64
	// Nodes is 3 or 5; 0 = the seed decides.
	Nodes int
	// Loggers is how many nodes, the last ones, have no mysqld; 0 = the seed
	// decides, negative = none.
	Loggers int
	// Members: the members change; 0 = the seed decides, negative = they do not, MembersPair = there are two
	// nodes, and one of them loses its vote and gets it back again and again, MembersSourced = they change, and
	// learners have sources.
	Members int
	// Losses: a majority is lost for good, and one node is recovered without it; 1 = yes.
	// Nothing else changes the members then.
	Losses int
	// LateClocks: machines are paused together with their clocks, and their wall clocks may be corrected late.
	// Until then a node's answers may be stale.
	LateClocks bool
	// Lasts is how long faults are injected; 0 = 30 s.
	Lasts time.Duration
	// Blips: the primary is deposed again and again, mostly without a loss.
	Blips bool
	// XA: clients use XA transactions; 0 = the seed decides, negative = they do not.
	XA int
	// Appliers: appliers stop with errors, and the bound on the apply lag is short; 0 = the
	// seed decides, negative = they do not.
	Appliers int
	// Only holds the faults to inject; nil = all faults of the seed.
	Only []int
	// Events gets one line per event.
	Events io.Writer
	// SegmentBytesMax and CacheBytesMax are the log's; 0 = the seed decides.
	SegmentBytesMax, CacheBytesMax int64
	// RetentionBytes is how much of the log is kept although no node needs it.
	RetentionBytes int64
}

// Values of Options.Members.
const (
	MembersPair    = 2
	MembersSourced = 3
)

// Result is the outcome of a run.
type Result struct {
	Seed  uint64
	Nodes int
	// Loggers is the number of nodes without a mysqld.
	Loggers int
	// Failure is nil if every promise was kept.
	Failure *Failure
	// Hash is of all events: two runs with the same hash were the same.
	Hash uint64
	// Events counts the events. Virtual is the length of the run, on its own clock.
	Events  uint64
	Virtual time.Duration
	// Faults are the injected faults.
	Faults []string
	// FaultIDs are their numbers.
	FaultIDs []int
	// OK counts the transactions for which clients have OK, Epochs the promotions, Requests what clients asked
	// for, Purged the segments removed, Staged the large transactions.
	OK, Epochs, Requests, Purged, Staged int
	Struck                               Struck
	// LedInNeed counts how often a logger or a node of weight 0 came to lead.
	LedInNeed int
	// Plans counts the switchovers and restarts that operators asked for, and that succeeded. Maintained counts
	// how often maintenance was switched on, Fenced how often a node was fenced and let in again.
	Plans, Maintained, Fenced int
	Settles                   SettleCounts
	Blips                     bool
	// Policy is the durability policy, with the nodes that it names; AckDrops counts how
	// often a require-ack was dropped.
	Policy   string
	AckDrops int
	// MemberChanges counts the changes of the members. Joints counts the changes that went
	// through joint consensus, as their leaders saw it. Joins counts the nodes that joined,
	// Clones the nodes that copied a mysqld's data. Members: the members do change.
	MemberChanges, Joints, Joins, Clones int
	Members                              bool
	// TakenUp counts the voters that started again from a state that another node had kept.
	// Pair: the members were MembersPair.
	TakenUp int
	// TimingsDiffer: the nodes' heartbeats and election timeouts differed.
	TimingsDiffer bool
	// ClocksJump: wall clocks jumped, and boot clocks stood still. LateClocks is Options.LateClocks.
	ClocksJump, LateClocks bool
	// XA counts the XA transactions. UsesXA: clients use XA.
	XA     XACounts
	UsesXA bool
	// Slowings counts how often a primary slowed its writers down, or stopped doing so.
	// ApplierStops counts the errors with which appliers stopped. AppliersStop: appliers do stop.
	Slowings, ApplierStops int
	// Reseeds counts the nodes that a leader rebuilt by itself.
	Reseeds      int
	AppliersStop bool
	// LagsKnown counts the looks at replicas that knew their lag.
	LagsKnown int
	// LeftToSources counts the learners that a leader left to their sources for long, Fallbacks the learners
	// that caught up without. Sources: learners have sources; Sourced: because of the options.
	LeftToSources, Fallbacks int
	Sources, Sourced         bool
	// LongApplies counts how often an applier took long for one transaction.
	LongApplies int
	Pair        bool
	// Ahead counts the reads ahead for peers that lag.
	Ahead int
	// Recoveries counts the forced recoveries. Accepted and Rejections count the answers of
	// former members, GivenUp the committed transactions that a recovery went on without.
	// TwoSides: a majority went on beside a recovered node.
	Recoveries, Accepted, Rejections, GivenUp int
	Losses, TwoSides                          bool
}

// Failure is a broken promise.
type Failure struct {
	// Name is the name of the invariant, or of the checker.
	Name   string
	Detail string
	At     time.Duration
	// Stack is set for a panic.
	Stack string
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s (at %v)", f.Name, f.Detail, f.At) }

// The streams of randomness. Each part has its own, so a draw of one part changes nothing for the others.
const (
	streamWorld = iota
	streamNetwork
	streamLoad
	streamFaults
	streamPlan
	streamRaft
	streamKinds
	streamPolicy
	streamChanges
	streamMembers
	streamAhead
	streamDBA
	streamTimings
	streamLosses
	streamXA
	streamLongApplies
	streamClocks
	streamAppliers
	streamReseeds
	streamSources
	streamReads
	streamAbsences
	// With these numbers, the worlds in which the mutations are found stay as they were.
	streamTears   = 54
	streamRots    = 109
	streamResets  = 110
	streamLags    = 111
	streamOrders  = 1 << 13
	streamNode    = 1 << 8
	streamDisk    = 1 << 9
	streamTiming  = 1 << 10
	streamPlanned = 1 << 11
)

// Times of a run.
const (
	quietAtStart = 3 * time.Second
	// healWithin is how long a healed cluster may take until it serves and all nodes agree.
	healWithin = 60 * time.Second
	lastsUsual = 30 * time.Second
)

// World is one cluster, its clients and its faults.
type World struct {
	options Options
	sched   scheduler
	running *task // nil: no task runs
	idle    []*coroutine
	trace   *trace
	net     *network
	nodes   []*node
	load    *workload
	faults  injector
	check   *checker
	// initial is the cluster state at the start. policyChanges: an operator changes the policy; changes counts
	// the requests for changes.
	initial       cluster.State
	policyChanges bool
	changes       int
	// epochs, purged, staged and ledInNeed are counters of the Result.
	epochs, purged, staged, ledInNeed int
	struck                            Struck
	// plans counts the operators' plans that were carried out.
	plans   int
	settles SettleCounts
	// maintenance is what an operator wants; nil = nobody has asked for any yet. maintained counts how often it
	// was switched on.
	maintenance *cluster.MaintenanceChange
	// replicasRead: clients read replicas. lagsKnown counts the looks at replicas that knew their lag.
	replicasRead bool
	lagsKnown    int
	maintained   int
	fenced       int // how often an operator let a node in again after fencing it
	// ackDrops counts how often a require-ack was dropped.
	ackDrops int
	// membersChange: an operator adds nodes, which wait in spares, and removes others.
	membersChange         bool
	initialNodes, spares  int
	operator              *operator
	memberChanges, joints int
	// timingsDiffer: the nodes' heartbeats and election timeouts differ. clocksJump: wall
	// clocks jump, and boot clocks stand still.
	timingsDiffer, clocksJump bool
	// usesXA: clients use XA transactions.
	usesXA   bool
	xaCounts XACounts
	// healed holds the transactions that were committed when all faults had ended; nil = the
	// faults go on.
	healed *gtid.Set
	// longApplies: some transactions take long to apply; longApplied counts them.
	longApplies bool
	longApplied int
	// maxApplyLag is mysql.max_apply_lag. slowings counts how often a primary began or ceased to slow its
	// writers down for it. appliersStop: appliers stop with errors; applierStops counts these errors.
	maxApplyLag            time.Duration
	slowings, applierStops int
	readsRNG               *mathrand.Rand // for clients.EndReads
	resetsConns            bool           // connections are reset
	// reseeds counts the nodes that a leader rebuilt by itself.
	reseeds      int
	appliersStop bool
	// readsAhead: entries that a leader lacks in memory are read ahead; aheads counts the reads.
	readsAhead    bool
	aheads        int
	joins, clones int
	// joinedAs holds the instances (data directories) with which nodes have joined.
	joinedAs map[string]bool
	// takenUp counts the voters that started again from a state that another node had kept.
	takenUp int
	// sources is not nil if learners have sources.
	sources *sources
	// losses is not nil if a majority is lost for good.
	losses *losses
}

func (w *World) random(stream uint64) *mathrand.Rand {
	return mathrand.New(mathrand.NewPCG(w.options.Seed, stream))
}

// fail ends the run.
func (w *World) fail(name, format string, args ...any) {
	panic(&Failure{Name: name, Detail: fmt.Sprintf(format, args...), At: w.sched.now})
}

// Run makes one run. Only one may be under way at a time: raft draws its election timeouts from
// crypto/rand.Reader, which is replaced during the run.
func Run(o Options) (result Result) {
	w := newWorld(o)
	before := rand.Reader
	rand.Reader = seededReader{w.random(streamRaft)}
	faults := w.plan()
	result = Result{Seed: o.Seed, Blips: o.Blips, Nodes: w.options.Nodes, Loggers: w.options.Loggers, Members: w.membersChange}
	for _, f := range faults {
		result.Faults, result.FaultIDs = append(result.Faults, f.String()), append(result.FaultIDs, f.id)
	}
	defer func() {
		rand.Reader = before
		switch r := recover().(type) {
		case nil:
		case *Failure:
			result.Failure = r
		case invariant.Violation:
			result.Failure = &Failure{Name: r.Name, Detail: r.Detail, At: w.sched.now, Stack: string(debug.Stack())}
		default:
			result.Failure = &Failure{Name: "panic", Detail: fmt.Sprint(r), At: w.sched.now, Stack: string(debug.Stack())}
		}
		result.Hash, result.Events, result.Virtual = w.trace.sum.Sum64(), w.sched.ran, w.sched.now
		result.OK, result.Epochs, result.Requests = w.check.ok, w.epochs, len(w.load.history)
		result.Purged, result.Staged, result.LedInNeed = w.purged, w.staged, w.ledInNeed
		result.Plans, result.Struck = w.plans, w.struck
		result.Maintained, result.Fenced = w.maintained, w.fenced
		result.Settles = w.settles
		result.Policy, result.AckDrops = w.describePolicy(), w.ackDrops
		result.Ahead = w.aheads
		result.MemberChanges, result.Joints, result.Joins, result.Clones = w.memberChanges, w.joints, w.joins, w.clones
		result.TimingsDiffer = w.timingsDiffer
		result.ClocksJump, result.LateClocks = w.clocksJump, w.options.LateClocks
		if l := w.losses; l != nil {
			result.Losses = true
			result.Recoveries, result.Rejections, result.Accepted, result.GivenUp, result.TwoSides = len(l.forks), l.rejections, l.accepted, l.givenUp, l.twoSides
		}
		result.LongApplies, result.Slowings = w.longApplied, w.slowings
		result.Reseeds = w.reseeds
		if s := w.sources; s != nil {
			result.Sources, result.Sourced, result.LeftToSources, result.Fallbacks = true, o.Members == MembersSourced, s.left, s.fallbacks
		}
		result.AppliersStop, result.ApplierStops = w.appliersStop, w.applierStops
		result.LagsKnown = w.lagsKnown
		result.UsesXA, result.XA = w.usesXA, w.xaCounts
		result.TakenUp, result.Pair = w.takenUp, w.options.Members == MembersPair
		w.close()
	}()
	w.run(faults)
	return result
}

// close ends the processes: else their coroutines would stay.
func (w *World) close() {
	for _, n := range w.nodes {
		if n.agent != nil {
			n.agent.life.end()
		}
		n.endJoiner()
		n.endOutsider()
	}
	for _, c := range w.idle {
		c.stop()
	}
}

type seededReader struct{ rng *mathrand.Rand }

// Read implements io.Reader.
func (r seededReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.rng.Uint32())
	}
	return len(p), nil
}

func newWorld(o Options) *World {
	w := &World{options: o, trace: newTrace(o.Events), joinedAs: map[string]bool{}}
	rng := w.random(streamWorld)
	// Everything is drawn whatever the options say, so that an option changes nothing else.
	nodes, segment, cache := 3+2*(rng.IntN(4)/3), int64(4<<10)<<rng.IntN(7), int64(1<<10)<<rng.IntN(10)
	retention := int64(1<<10) << rng.IntN(14)
	if w.options.Nodes == 0 {
		w.options.Nodes = nodes
	}
	if w.options.SegmentBytesMax == 0 {
		w.options.SegmentBytesMax = segment
	}
	if w.options.CacheBytesMax == 0 {
		w.options.CacheBytesMax = cache
	}
	if w.options.RetentionBytes == 0 {
		w.options.RetentionBytes = retention
	}
	if w.options.Lasts == 0 {
		w.options.Lasts = lastsUsual
	}
	w.assignMembers()
	w.readsAhead = chance(w.random(streamAhead), 33)
	w.assignTimings()
	w.assignXA()
	w.assignLongApplies()
	w.assignClocks()
	w.assignAppliers()
	w.assignSources()
	w.assignReads()
	w.net = newNetwork(w, w.initialNodes+w.spares)
	for i := range w.initialNodes + w.spares {
		w.nodes = append(w.nodes, newNode(w, cluster.NodeID(i+1)))
	}
	w.assignKinds()
	w.assignSpares()
	w.assignPolicy()
	w.load = newWorkload(w)
	w.faults = injector{w: w, rng: w.random(streamFaults)}
	w.readsRNG = w.random(streamReads)
	w.check = newChecker(w)
	for _, n := range w.nodes {
		n.check = w.check
	}
	return w
}

// assignKinds makes a minority of the nodes loggers, in one of four worlds, and gives the nodes weights, in one
// of three. The first node may always lead.
func (w *World) assignKinds() {
	rng := w.random(streamKinds)
	loggers, weighted := chance(rng, 25), chance(rng, 33)
	if w.options.Loggers == 0 && loggers {
		w.options.Loggers = (w.initialNodes - 1) / 2
	}
	w.options.Loggers = max(0, w.options.Loggers)
	for i, n := range w.nodes {
		n.member.Kind, n.member.Weight = cluster.KindFull, cluster.WeightDefault
		if weight := []int{0, 1, 5, 9}[rng.IntN(4)]; weighted {
			n.member.Weight = weight
			if i == 0 {
				n.member.Weight = max(1, weight)
			}
		}
		if i >= w.initialNodes-w.options.Loggers && i < w.initialNodes {
			n.member.Kind = cluster.KindLogger
		}
	}
}

func (w *World) plan() []fault {
	kinds := plan
	if w.options.Blips {
		kinds = blips
	}
	all := kinds(w.random(streamPlan), len(w.nodes), quietAtStart, quietAtStart+w.options.Lasts)
	end, more := quietAtStart+w.options.Lasts, w.random(streamPlanned)
	for _, f := range slices.Concat(w.clockFaults(more, quietAtStart, end), w.splits(more, quietAtStart, end), w.tears(quietAtStart, end),
		w.absences(quietAtStart, end), w.resets(quietAtStart, end)) {
		f.id = len(all)
		all = append(all, f)
	}
	all = w.besideSources(all)
	if w.options.Losses > 0 {
		all = slices.DeleteFunc(all, besideLosses)
	}
	// A healed log may begin behind what cluster.json has. Only a person can mend that.
	if w.policyChanges {
		all = slices.DeleteFunc(all, func(f fault) bool { return f.kind == rotLog || f.kind == rotTail })
	}
	if w.options.Only == nil {
		return all
	}
	return slices.DeleteFunc(all, func(f fault) bool { return !slices.Contains(w.options.Only, f.id) })
}

// run is the whole course of a run: start, faults, healing, and the judgement.
func (w *World) run(faults []fault) {
	for _, n := range w.nodes {
		w.sched.after(around(n.rng, 100*time.Millisecond), n.startAgent)
	}
	w.sched.after(time.Second, w.load.start)
	if w.options.Blips && w.options.Seed%2 == 0 { // with the DBA few primaries are settled
		w.dba()
	}
	w.faults.start(faults)
	switch {
	case w.options.Losses > 0:
		w.startLosses()
	case w.membersChange:
		w.sched.after(quietAtStart, w.startOperator)
		w.looksAtTold(map[*node]toldNode{})
		if w.sources != nil {
			w.sched.after(quietAtStart, w.sources.start)
		}
	}
	if w.replicasRead {
		w.lookAtLags()
	}
	if w.appliersStop {
		w.sched.after(quietAtStart, func() { w.trouble(w.random(streamAppliers + 1<<12)) })
	}
	if w.policyChanges {
		w.changePolicy(w.random(streamChanges), quietAtStart+w.options.Lasts)
	}
	w.sched.runUntil(quietAtStart + w.options.Lasts)
	w.log(0, "heal", "all faults end")
	w.faults.end()
	w.healed = w.check.all()
	if w.losses != nil {
		w.losses.converge()
	}
	w.awaitHealth()
}

// awaitHealth waits until clients can write again and, once they have stopped, until all servers have the same
// data.
func (w *World) awaitHealth() {
	healed := w.sched.now
	deadline := healed + healWithin
	w.runWhile(deadline, "no client could write", func() bool { return w.load.lastOK <= healed+time.Second })
	if w.membersChange {
		unsettled := ""
		w.runWhile(deadline, "the members are not as they were asked for", func() bool {
			ok, why := w.membersSettled()
			unsettled = why
			return !ok
		})
		w.log(0, "members", "settled %s", unsettled)
	}
	w.load.stopped = true
	w.runWhile(deadline, "the servers do not agree", func() bool { return !w.agreed() })
	if w.membersChange {
		w.still()
	}
	w.log(0, "judge", "%d entries, %d transactions", len(w.check.entries), len(w.check.transactions))
	w.check.kept()
	w.check.ledger()
	w.check.xaEnds()
}

func (w *World) runWhile(deadline time.Duration, what string, cond func() bool) {
	for cond() {
		if w.sched.now >= deadline {
			w.fail("liveness", "%s within %v after the last fault: %s", what, healWithin, w.describe())
		}
		w.sched.runUntil(w.sched.now + 100*time.Millisecond)
	}
}

// agreed tells whether every mysqld has all committed transactions, and no transaction is under way.
func (w *World) agreed() bool {
	if len(w.load.sessions) > 0 || !w.load.xaEnded() {
		return false
	}
	all := w.check.all()
	for _, n := range w.inState() {
		if n.member.Kind == cluster.KindLogger && n.agent != nil {
			continue
		}
		if a := n.agent; a == nil || a.process == nil || a.process.dead || !a.process.GTIDExecuted().ContainsSet(all) {
			return false
		}
		w.check.complete(n)
	}
	return true
}

func (w *World) describe() (s string) {
	for _, n := range w.nodes {
		if n.agent == nil {
			s += fmt.Sprintf("n%d is down (%s, empty %t); ", n.id, n.home.Life(), n.empty())
			continue
		}
		a := n.agent
		s += fmt.Sprintf("n%d: %s (%s), term %d, leads %t, log %d, committed %d, engine %d of %d; ", n.id, a.Role.Phase(), a.Role.Reason(),
			a.Raft.Role().Term, a.Raft.Role().Leading, a.log.LastIndex(), a.Raft.Committed().Mark().Index, w.check.engines[n].place, len(w.check.transactions))
	}
	return s
}

func (w *World) node(id cluster.NodeID) *node { return w.nodes[id-1] }

func (w *World) members() (members []cluster.Member) {
	for _, n := range w.nodes {
		members = append(members, n.member)
	}
	return members
}

// primary returns the leader of the highest term, or the first node if there is no leader.
func (w *World) primary() *node {
	best := w.nodes[0]
	var term uint64
	for _, n := range w.nodes {
		if a := n.agent; a != nil && a.Raft.Role().Leading && a.Raft.Role().Term > term {
			best, term = n, a.Raft.Role().Term
		}
	}
	return best
}

// restartAgent acts as the supervisor of an agent that ended by itself.
func (w *World) restartAgent(n *node) {
	w.sched.after(50*time.Millisecond+around(n.rng, time.Second), n.startAgent)
}
