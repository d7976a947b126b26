package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

// node is one machine: its clock, its disks, and the processes that run on it.
type node struct {
	w      *World
	id     cluster.NodeID
	member cluster.Member
	rng    *rand.Rand

	// rate is how fast the machine's clock runs. bootedAt is when that clock was 0.
	rate     float64
	bootedAt time.Duration
	powered  bool
	// stalledAt is when the machine last began to stand still, stalledUntil when it goes on.
	stalledAt, stalledUntil time.Duration
	// wallAhead is the wall clock minus the boot clock. paused is how long both stood still in all. Until
	// staleUntil the machine may believe in a lease that is over.
	wallAhead, paused, staleUntil time.Duration
	// pausedUntil is when the last pause ended, setBack when the wall clock was last set back.
	pausedUntil, setBack time.Duration
	pauses               []pauseOf

	disk      *disk
	mysqlDisk *fakemysqld.Disk
	uuid      gtid.UUID
	// rotten: the log was damaged and is not healed yet.
	rotten bool
	// changesBefore is how often the members had changed before that damage.
	changesBefore int
	// tampered: mysqld ran without the agent. restored: the data directory of mysqld is an older copy.
	tampered, restored bool
	// home is the agent's data directory as the newest process has found it. instances counts the instance
	// names that the node has used.
	home      *datadir.Home
	instances int
	// spare: the node is not a member yet, an operator will add it. lost: the node has lost its disk. lostSince
	// is the instance that the cluster state named for it then. copied: the log is a new copy, and no agent has
	// run with it yet.
	spare, lost, copied bool
	// oldFile: the node's configuration does not name the members that were added later. naming: an operator is about to
	// name them.
	oldFile, naming bool
	lostSince       string
	// timing is what the newest agent uses.
	timing    timing
	timingRNG *rand.Rand
	// older: until the faults end, the agent reports no timings, as a release without lease promises did.
	older bool
	// incarnation is the counter in mysqld's directory.
	incarnation uint64

	agent *agent // nil while none runs
	// healer runs instead of the agent while the log is damaged.
	healer *healer
	// joiner runs until the node has joined.
	joiner *joiner
	// lastBinlog is where the newest incarnation has its binlog.
	lastBinlog struct{ dir, base string }
	// lastACK is the last ACK that a tap wrote to mysqld, with the incarnation to which it was sent.
	lastACK struct {
		incarnation uint64
		at          tap.Position
	}
	// applierBlocked counts the faults that stop the applier. applierLag delays each of its turns.
	applierBlocked int
	applierLag     time.Duration
	startDelay     time.Duration
	// fencing counts the operator's unfinished requests to fence the node or to let it in again.
	fencing int
	// poisoned: the applier stops with an error at its next transaction.
	poisoned bool

	durable durableLog
	// waiting are the tasks of the node's processes that wait for something other than a time.
	waiting []*task
	// check is the checker of the cluster to which the node belongs.
	check *checker
	losing
	// marked is the highest durable mark that the node ever had: the peers may have purged up to it.
	marked uint64
	// writes are the writes of small files that wait for the disk.
	writes []*smallWrite
}

func newNode(w *World, id cluster.NodeID) *node {
	n := &node{
		w: w, id: id, member: cluster.Member{ID: id, Name: fmt.Sprintf("n%d", id)},
		rng: w.random(streamNode + uint64(id)), timingRNG: w.random(streamTiming + uint64(id)), powered: true,
	}
	n.rate = 1 + (n.rng.Float64()-0.5)/100
	n.disk = newDisk(w.random(streamDisk + uint64(id)))
	for i := range n.uuid {
		n.uuid[i] = byte(id)
	}
	n.mysqlDisk = fakemysqld.NewDisk(n.uuid)
	return n
}

// runsMysqld tells whether the node runs a mysqld. A logger does not.
func (n *node) runsMysqld() bool { return n.member.Kind != cluster.KindLogger }

// now is the machine's boot-time clock.
func (n *node) now() time.Duration {
	return time.Duration(float64(n.w.sched.now-n.bootedAt) * n.rate)
}

// globally converts a time on the machine's clock to simulated time.
func (n *node) globally(d time.Duration) time.Duration {
	return time.Duration(float64(d)/n.rate) + 1
}

// hiccup returns how long a task that is ready waits for a processor.
func (n *node) hiccup() time.Duration {
	d := 2*time.Microsecond + around(n.rng, 10*time.Microsecond)
	if chance(n.rng, 1) {
		d += around(n.rng, 2*time.Millisecond)
	}
	return d
}

func (n *node) log(what, format string, args ...any) { n.w.log(n.id, what, format, args...) }

// startAgent starts a process on the node, if the machine runs and has no process.
func (n *node) startAgent() {
	if !n.powered || n.off || n.held || n.agent != nil || n.healer != nil || n.joiner != nil || n.out != nil {
		return
	}
	n.visit()
	n.live()
}

// live starts what fits the state of the data directory: an agent, a joiner, a healer, or nothing.
func (n *node) live() {
	life := n.home.Life()
	switch {
	case life == datadir.Removed:
		return
	case life == datadir.Superseded:
		n.startOutsider()
		return
	case !n.home.Has(datadir.IdentityFile):
		n.startNewcomer()
		return
	case life == datadir.Joining:
		n.startJoiner()
		return
	}
	n.log("agent", "starts")
	a, err := newAgent(n)
	if errors.Is(err, seglog.ErrCorrupt) && n.rotten || errors.Is(err, seglog.ErrHealing) {
		if err = n.startHealer(err); err == nil {
			return
		}
	}
	if errors.Is(err, seglog.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, errCrashed) {
		n.log("agent", "cannot start: %v", err)
		n.w.restartAgent(n)
		return
	}
	if err != nil {
		n.w.fail("start", "n%d: the agent cannot start: %v", n.id, err)
	}
	n.agent, n.upAt = a, n.w.sched.now
	if n.copied {
		n.copied = false
		n.check.joinedAs(n)
		n.check.joined(n, a.log)
	}
	n.check.reopened(n)
	a.run()
	for _, peer := range n.w.nodes {
		n.w.connect(n, peer)
	}
}

// killAgent ends the agent at once, and its mysqld with it (parent-death signal). What the log was writing at
// that moment may be on the disk as a whole, in part, or not at all.
func (n *node) killAgent(why string) {
	if n.joiner != nil {
		n.cutWrites(nil)
	}
	n.endHealer()
	n.endJoiner()
	n.endOutsider()
	a := n.agent
	if a == nil {
		return
	}
	n.log("agent", "ends: %s", why)
	a.disk.cutAppend(nil)
	n.cutWrites(nil)
	n.endAgent()
	for _, peer := range n.w.nodes {
		n.w.disconnect(peer, n, true)
	}
}

// endAgent drops the ended process. The calls of an unfinished append were already made by cutAppend.
func (n *node) endAgent() {
	a := n.agent
	n.agent = nil
	a.life.end()
	n.writes = nil
	n.w.load.closeSessions(n)
	if a.process != nil {
		a.process.die("its agent has ended")
	}
	_ = a.log.Close() // everything for which Append has returned is on the disk
}

// losePower ends everything on the machine. The seed decides which part of the unsynced data stays.
func (n *node) losePower() {
	if !n.powered {
		return
	}
	n.log("power", "lost")
	n.endHealer()
	n.endJoiner()
	n.endOutsider()
	if a := n.agent; a != nil {
		crashed := false
		crash := func() {
			n.disk.losePower()
			crashed = true
		}
		a.disk.cutAppend(crash)
		if !crashed {
			n.cutWrites(crash)
		}
		n.endAgent()
		if !crashed {
			n.disk.losePower()
		}
	} else {
		n.disk.losePower()
	}
	n.mysqlDisk.PowerLoss(n.rng)
	n.powered = false
	n.visit()
	for _, peer := range n.w.nodes {
		n.w.disconnect(peer, n, false)
	}
}

// powerOn boots the machine. Its agent starts a little later. Until then dials are refused.
func (n *node) powerOn() {
	if n.powered || n.off {
		return
	}
	n.log("power", "on")
	n.powered, n.bootedAt, n.stalledUntil = true, n.w.sched.now-around(n.rng, time.Second), 0
	if chance(n.rng, 50) {
		for _, peer := range n.w.nodes {
			n.w.disconnect(peer, n, true)
		}
	}
	n.w.sched.after(20*time.Millisecond+around(n.rng, 300*time.Millisecond), n.startAgent)
}

// stall freezes the machine for d: nothing runs on it, but its clock goes on.
func (n *node) stall(d time.Duration) {
	n.log("stall", "for %v", d)
	if now := n.w.sched.now; n.stalledUntil <= now {
		n.stalledAt = now
	}
	n.stalledUntil = max(n.stalledUntil, n.w.sched.now+d)
}

// visit reads the node's data directory, as each starting process does.
func (n *node) visit() {
	home, err := datadir.Visit(n.disk.files(), datadir.Identity{
		Format: datadir.FormatFirst, Cluster: clusterName, Node: n.member.Name, NodeID: uint64(n.id), Instance: n.newInstance(), Joining: n.spare,
	})
	if err != nil {
		n.w.fail("start", "n%d: %v", n.id, err)
	}
	n.home = home
}

// empty tells whether the node has lost its disk and has not written a new identity since.
func (n *node) empty() bool { return n.lost && !n.home.Has(datadir.IdentityFile) }

// blank tells whether the node holds no data that counts: it has lost its disk, or has not finished joining.
func (n *node) blank() bool { return n.empty() || n.home.Life() == datadir.Joining }

func (n *node) removed() bool { return n.home.Life() == datadir.Removed }

// instance returns the instance name of the data directory.
func (n *node) instance() string { return n.home.Own().Instance }
