package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// faultKind is a kind of fault.
type faultKind string

const (
	killAgent  faultKind = "kill-agent"
	killMysqld faultKind = "kill-mysqld"
	losePower  faultKind = "lose-power"
	loseMost   faultKind = "lose-power-of-a-majority"
	loseAll    faultKind = "lose-power-of-all"
	killAll    faultKind = "kill-all-agents"
	stopAgent  faultKind = "stop-agent"
	terminate  faultKind = "terminate-mysqld"
	stall      faultKind = "stall"
	isolate    faultKind = "isolate"
	deafen     faultKind = "deafen"
	mute       faultKind = "mute"
	cutPair    faultKind = "cut-pair"
	// split leaves a minority on one side, with or without the primary.
	split        faultKind = "split"
	slowNetwork  faultKind = "slow-network"
	badNetwork   faultKind = "lossy-network"
	slowDisk     faultKind = "slow-disk"
	stallDisk    faultKind = "stall-disk"
	fillDisk     faultKind = "fill-disk"
	blockApplier faultKind = "block-applier"
	lagApplier   faultKind = "lag-applier"
	slowStart    faultKind = "slow-start"
	rotate       faultKind = "rotate"
	storm        faultKind = "storm"
	// squeeze cuts the primary off from half of the other nodes. When these stand for election, it cuts the
	// primary off from the other half, too. The agents of that half restart at that moment and have forgotten
	// their promises. No client writes meanwhile: otherwise the logs of the first half would be too old to get
	// votes.
	squeeze faultKind = "squeeze"
	// transfer asks raft to hand over leadership. The role machine, which would close writes first, does not
	// take part.
	transfer faultKind = "transfer"
	// behind kills the primary's mysqld after all appliers were stopped for a while.
	behind faultKind = "die-ahead-of-appliers"
	// rotLog flips a byte in the durable part of a stopped node's log.
	rotLog faultKind = "rot-log"
	// rotTail damages the log of a follower while the leader counts entries of that follower and has not stored
	// them itself: the disks of the leader and of the other nodes stand still.
	rotTail faultKind = "rot-tail"
	// startByHand starts a mysqld without its agent. mysqld opens the binlog that it had last.
	startByHand faultKind = "start-mysqld-by-hand"
	// These are requests of operators: a switchover, a restart of mysqld, maintenance, a fence.
	move          faultKind = "move-primary"
	restartMysqld faultKind = "restart-mysqld"
	maintain      faultKind = "maintenance"
	fenceNode     faultKind = "fence-node"
	// restore replaces mysqld's data by an older copy.
	restore faultKind = "restore-old-copy"
)

// weight says how often a kind of fault comes.
type weight struct {
	kind   faultKind
	weight int
}

func weights() []weight {
	return []weight{
		{killAgent, 12}, {killMysqld, 10}, {losePower, 8}, {loseMost, 5}, {loseAll, 6}, {killAll, 3},
		{stopAgent, 6}, {terminate, 4}, {stall, 8}, {isolate, 8}, {deafen, 3}, {mute, 3}, {cutPair, 5},
		{slowNetwork, 3}, {badNetwork, 4}, {slowDisk, 3}, {stallDisk, 5}, {fillDisk, 3},
		{blockApplier, 4}, {lagApplier, 3}, {slowStart, 3}, {rotate, 10}, {storm, 4}, {squeeze, 6},
		{transfer, 5}, {behind, 5}, {rotLog, 4}, {rotTail, 4}, {startByHand, 4}, {restore, 4},
		{move, 10}, {restartMysqld, 3}, {maintain, 3}, {fenceNode, 2},
	}
}

// point is a moment in the life of a node. A fault may wait for it.
type point string

const (
	pointNone      point = ""
	pointAppending point = "appending"
	pointAppended  point = "appended"
	pointAcked     point = "acked"
	pointEpoch     point = "epoch"
	pointOpened    point = "opened"
	pointRotated   point = "rotated"
	// These are the steps of a change of the members: the leader has it in its log; it is in force together
	// with the former members; it is complete.
	pointMembers   point = "members-proposed"
	pointJoint     point = "members-joint"
	pointJointEnds point = "members-complete"
)

// fault is one fault. It strikes at a time, or when its point first comes after that time. The list of faults
// is made before the run, so a run can be repeated without some of them.
type fault struct {
	id   int
	at   time.Duration
	on   point
	kind faultKind
	// target is a node; 0 = the node that is the primary, or else the leader, at that moment.
	target cluster.NodeID
	lasts  time.Duration
	// size is the kind's parameter: a factor, a percentage, a choice.
	size int
}

func (f fault) String() string {
	s := fmt.Sprintf("%d: %s", f.id, f.kind)
	if f.target == 0 {
		s += " of the primary"
	} else {
		s += fmt.Sprintf(" of n%d", f.target)
	}
	s += fmt.Sprintf(" at %v for %v (%d)", f.at, f.lasts, f.size)
	if f.on != pointNone {
		s += " once " + string(f.on)
	}
	return s
}

// plan makes the list of faults: groups of a few faults, close together, with quieter times between the groups.
func plan(rng *rand.Rand, nodes int, from, until time.Duration) (faults []fault) {
	table := weights()
	total := 0
	for _, w := range table {
		total += w.weight
	}
	draw := func() faultKind {
		n := rng.IntN(total)
		for _, w := range table {
			if n -= w.weight; n < 0 {
				return w.kind
			}
		}
		return table[0].kind
	}
	points := []point{pointAppending, pointAppending, pointAppended, pointAcked, pointAcked, pointEpoch, pointOpened, pointRotated}
	for at := from; at < until; at += 500*time.Millisecond + around(rng, 2*time.Second) {
		if chance(rng, 50) { // makes many transactions be in flight when the faults strike
			faults = append(faults, fault{at: at - 20*time.Millisecond, kind: storm, lasts: 600 * time.Millisecond, size: rng.IntN(100)})
		}
		for range 1 + rng.IntN(3) {
			f := fault{at: at + around(rng, 300*time.Millisecond), kind: draw(), size: rng.IntN(100)}
			f.lasts = []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second}[rng.IntN(4)]
			f.lasts = f.lasts/2 + time.Duration(rng.Int64N(int64(f.lasts)))
			if chance(rng, 60) {
				f.target = cluster.NodeID(1 + rng.IntN(nodes))
			}
			if chance(rng, 35) {
				f.on = points[rng.IntN(len(points))]
			}
			switch f.kind {
			case losePower, loseMost, loseAll: // the worst power loss tears a write
				if chance(rng, 60) {
					f.on = pointAppending
				}
			}
			faults = append(faults, f)
		}
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	for i := range faults {
		faults[i].id = i
	}
	return faults
}

// injector makes the faults happen and ends them.
type injector struct {
	w     *World
	rng   *rand.Rand
	armed []fault
	// undo has a function for each fault that goes on. It is nil for a fault that has ended.
	undo  []func()
	ended bool
}

func (i *injector) start(faults []fault) {
	for _, f := range faults {
		i.w.sched.at(f.at, func() {
			switch {
			case i.ended:
			case f.on == pointNone:
				i.strike(f)
			default:
				i.armed = append(i.armed, f)
			}
		})
	}
}

// happened tells the injector that a node has come to a point. A fault that waits for that point strikes a
// moment later, so that it does not strike in the middle of a call.
func (w *World) happened(p point, n *node) {
	i := &w.faults
	for k, f := range i.armed {
		if f.on == p && (f.target == 0 || f.target == n.id) {
			i.armed = slices.Delete(i.armed, k, k+1)
			if f.target == 0 {
				f.target = n.id
			}
			w.sched.after(around(i.rng, 150*time.Microsecond), func() {
				if !i.ended {
					i.strike(f)
				}
			})
			return
		}
	}
}

// until calls f, which undoes a fault, when the time of the fault is over or all faults end.
func (i *injector) until(d time.Duration, f func()) {
	at := len(i.undo)
	end := func() {
		if i.undo[at] != nil {
			i.undo[at] = nil
			f()
		}
	}
	i.undo = append(i.undo, end)
	i.w.sched.after(d, end)
}

// end ends all faults, and repairs what they left behind.
func (i *injector) end() {
	i.ended, i.armed = true, nil
	for _, f := range i.undo {
		if f != nil {
			f()
		}
	}
	if i.w.operator != nil {
		i.w.operator.tidying = true
	}
	for _, n := range i.w.nodes {
		n.disk.tear = nil
		n.powerOn()
		n.startAgent()
	}
}

func (i *injector) strike(f fault) {
	w := i.w
	n := w.primary()
	if f.target != 0 {
		n = w.node(f.target)
	}
	w.log(n.id, "fault", "%s", f)
	switch f.kind {
	case killAgent:
		n.killAgent("killed")
		w.sched.after(f.lasts, n.startAgent)
	case killMysqld, terminate, stopAgent, rotate, transfer:
		i.strikeProcess(f, n)
	case losePower:
		i.powerLoss(f, []*node{n})
	case loseMost:
		var most []*node
		for _, k := range i.rng.Perm(len(w.nodes))[:len(w.nodes)/2+1] {
			most = append(most, w.nodes[k])
		}
		i.powerLoss(f, most)
	case loseAll:
		i.powerLoss(f, w.nodes)
	case killAll:
		for _, n := range w.nodes {
			n.killAgent("killed")
			w.sched.after(around(i.rng, f.lasts), n.startAgent)
		}
	case stall:
		n.stall(min(f.lasts, 4*time.Second))
	case isolate, deafen, mute, cutPair, slowNetwork, badNetwork:
		i.strikeNetwork(f, n)
	case split:
		i.strikeSides(f, n)
	case squeeze:
		i.strikeBetween(n)
	case behind:
		i.strikeBehind(n)
	case rotTail:
		i.strikeTail(n)
	case rotLog, startByHand, restore:
		i.strikeStopped(f, n)
	case move, restartMysqld, maintain, fenceNode:
		i.strikeOperator(f, n)
	case tearFile:
		i.strikeTear(f, n)
	case reset:
		i.strikeReset(f, n)
	case stepClock, pause:
		i.strikeClock(f, n)
	case storm:
		w.load.storm++
		i.until(f.lasts/4, func() { w.load.storm-- })
	default:
		i.strikeMachine(f, n)
	}
}

func (i *injector) powerLoss(f fault, nodes []*node) {
	for _, n := range nodes {
		n.losePower()
		i.w.sched.after(f.lasts/2+around(i.rng, f.lasts/2), n.powerOn)
	}
}

func (i *injector) strikeProcess(f fault, n *node) {
	a := n.agent
	if a == nil || a.process == nil && f.kind != stopAgent {
		return
	}
	switch f.kind {
	case transfer:
		i.transfer(f, n, a)
	case killMysqld:
		a.process.kill("crashed")
	case terminate:
		seen := around(i.rng, 50*time.Millisecond)
		if f.size < 25 {
			seen = time.Duration(f.size) * 100 * time.Millisecond
		}
		a.process.terminate(seen)
	case stopAgent:
		w := i.w // so that many sessions wait for an ACK when the agent stops
		w.load.storm++
		i.until(200*time.Millisecond, func() { w.load.storm-- })
		w.sched.after(50*time.Millisecond, func() {
			if n.agent == a {
				a.stop()
			}
		})
	case rotate:
		if !a.process.dead {
			a.process.Rotate()
			a.process.afterCommits()
			a.process.dumpSoon()
		}
	}
}

func (i *injector) strikeNetwork(f fault, n *node) {
	held := f.size%2 == 0
	for _, o := range i.w.nodes {
		if o == n {
			continue
		}
		in, out := i.w.net.link(o.id, n.id), i.w.net.link(n.id, o.id)
		switch f.kind {
		case slowNetwork:
			factor := time.Duration(2 + f.size)
			in.slow, out.slow = in.slow*factor, out.slow*factor
			i.until(f.lasts, func() { in.slow, out.slow = in.slow/factor, out.slow/factor })
		case badNetwork:
			loss, twice, late := f.size/4, f.size/5, f.size/3
			for _, l := range []*link{in, out} {
				l.loss, l.twice, l.late = l.loss+loss, l.twice+twice, l.late+late
				i.until(f.lasts, func() { l.loss, l.twice, l.late = l.loss-loss, l.twice-twice, l.late-late })
			}
		default:
			if f.kind != mute {
				i.until(f.lasts, i.w.net.cutLink(o.id, n.id, held))
			}
			if f.kind != deafen {
				i.until(f.lasts, i.w.net.cutLink(n.id, o.id, held))
			}
			i.w.watchConnection(n, o)
			if f.kind == cutPair {
				return
			}
		}
	}
}

// splits returns splits of the cluster in which each side may have more than one node. They are added to the
// other faults.
func (w *World) splits(rng *rand.Rand, from, until time.Duration) (faults []fault) {
	for at := from; w.options.Nodes > 3 && at < until; at += around(rng, 8*time.Second) {
		faults = append(faults, fault{at: at, kind: split, lasts: time.Second + around(rng, 2*time.Second), size: rng.IntN(100)})
	}
	return faults
}

// strikeSides cuts n and some other nodes off from the rest.
func (i *injector) strikeSides(f fault, n *node) {
	side := map[*node]bool{n: true}
	for _, k := range i.rng.Perm(len(i.w.nodes))[:1+f.size%(len(i.w.nodes)/2)] {
		side[i.w.nodes[k]] = true
	}
	for k, a := range i.w.nodes {
		for _, b := range i.w.nodes[:k] {
			if side[a] != side[b] {
				i.until(f.lasts, i.w.net.cutLink(a.id, b.id, f.size%2 == 0))
				i.until(f.lasts, i.w.net.cutLink(b.id, a.id, f.size%2 == 0))
				i.w.watchConnection(a, b)
			}
		}
	}
}

func (i *injector) strikeBetween(n *node) {
	order := i.rng.Perm(len(i.w.nodes))
	var rest []*node
	for _, k := range order {
		if o := i.w.nodes[k]; o != n {
			rest = append(rest, o)
		}
	}
	half := len(rest) / 2 // with one node of the other half, these are a majority
	cut := func(o *node, lasts time.Duration) {
		i.until(lasts, i.w.net.cutLink(o.id, n.id, false))
		i.until(lasts, i.w.net.cutLink(n.id, o.id, false))
	}
	for _, o := range rest[:half] {
		cut(o, 4*time.Second)
	}
	i.w.load.idle++
	i.until(4*time.Second, func() { i.w.load.idle-- })
	i.w.sched.after(1200*time.Millisecond+around(i.rng, 500*time.Millisecond), func() {
		if i.ended {
			return
		}
		for _, o := range rest[half:] {
			cut(o, 2*time.Second)
			o.killAgent("killed")
			i.w.sched.after(time.Millisecond+around(i.rng, 5*time.Millisecond), o.startAgent)
		}
	})
}

func (i *injector) strikeMachine(f fault, n *node) {
	d := n.disk
	switch f.kind {
	case slowDisk:
		factor := time.Duration(2 + f.size)
		d.slow *= factor
		i.until(f.lasts, func() { d.slow /= factor })
	case stallDisk:
		d.stalledUntil = max(d.stalledUntil, i.w.sched.now+f.lasts)
	case fillDisk:
		d.full++
		i.until(f.lasts, func() { d.full-- })
	case blockApplier:
		n.applierBlocked++
		i.until(f.lasts, n.unblock)
	case lagApplier:
		lag := time.Duration(f.size) * 100 * time.Microsecond
		n.applierLag += lag
		i.until(f.lasts, func() { n.applierLag -= lag })
	case slowStart:
		n.startDelay = f.lasts
		i.until(4*f.lasts, func() { n.startDelay = 0 })
	}
}
