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

	// rate is how fast its clock runs; bootedAt is when it began at 0.
	rate         float64
	bootedAt     time.Duration
	powered      bool
	stalledUntil time.Duration
	// wallAhead is by how much its wall clock is before its boot clock, paused for how long it
	// stood still with both, staleUntil when it takes no lease for its own any more that is over.
	wallAhead, paused, staleUntil time.Duration
	// pausedUntil is when it went on last, setBack when its wall clock was set back.
	pausedUntil, setBack time.Duration

	disk      *disk
	mysqlDisk *fakemysqld.Disk
	uuid      gtid.UUID
	// rotten: its log was damaged, and is not healed so far.
	rotten bool
	// changesBefore is how often the members had changed before that.
	changesBefore int
	// tampered: its mysqld ran without the agent. restored: its data directory is
	// an older copy.
	tampered, restored bool
	// home is its data directory as the newest process has found it, instances counts those
	// that it had.
	home      *datadir.Home
	instances int
	// spare: it is to be added. lost: its disk was, when the cluster state gave it the
	// instance lostSince. copied: its log is new, and it has not run over that so far.
	spare, lost, copied bool
	// oldFile: its configuration names none of the members that were added later.
	oldFile   bool
	lostSince string
	// timing is its agent's.
	timing    timing
	timingRNG *rand.Rand
	// older: until the faults end its agent says nothing of its timings, as agents did that promised no lease.
	older bool
	// incarnation is the counter in mysqld's directory.
	incarnation uint64

	agent *agent // nil while none runs
	// healer runs in its place while its log is damaged.
	healer *healer
	// joiner runs until it has joined.
	joiner *joiner
	// lastBinlog is where the newest incarnation has its binlog.
	lastBinlog struct{ dir, base string }
	// lastACK is the last one that a tap wrote.
	lastACK struct {
		incarnation uint64
		at          tap.Position
	}
	// applierBlocked counts the faults that stop the applier, applierLag slows it.
	applierBlocked int
	applierLag     time.Duration
	startDelay     time.Duration
	// fencing counts the operator's requests under way to fence it, or to let it in again.
	fencing int
	// poisoned: its applier stops with an error at what it takes next.
	poisoned bool

	durable durableLog
	// waiting are the tasks of its processes that wait for something but a time.
	waiting []*task
	// check judges the node: that of the cluster which it belongs to.
	check *checker
	losing
	// marked is the highest durable mark that there ever was: the peers may have purged up
	// to it.
	marked uint64
	// writes are those of small files that wait for the disk.
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

// runsMysqld tells whether the node has one: a logger has not.
func (n *node) runsMysqld() bool { return n.member.Kind != cluster.KindLogger }

// now is the machine's boot-time clock.
func (n *node) now() time.Duration {
	return time.Duration(float64(n.w.sched.now-n.bootedAt) * n.rate)
}

// globally is how long d of the machine's clock takes.
func (n *node) globally(d time.Duration) time.Duration {
	return time.Duration(float64(d)/n.rate) + 1
}

// hiccup is how long something that is ready waits for a processor.
func (n *node) hiccup() time.Duration {
	d := 2*time.Microsecond + around(n.rng, 10*time.Microsecond)
	if chance(n.rng, 1) {
		d += around(n.rng, 2*time.Millisecond)
	}
	return d
}

func (n *node) log(what, format string, args ...any) { n.w.log(n.id, what, format, args...) }

// startAgent starts a process, if its machine runs and none does.
func (n *node) startAgent() {
	if !n.powered || n.off || n.held || n.agent != nil || n.healer != nil || n.joiner != nil || n.out != nil {
		return
	}
	n.visit()
	n.live()
}

// live has the process go on by the life that the node is in.
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

// killAgent ends the agent at once, and its mysqld with it (parent-death
// signal). What its log was just writing may be written, or a part of it.
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

// endAgent forgets the process. The calls of an append under way were made.
func (n *node) endAgent() {
	a := n.agent
	n.agent = nil
	a.life.end()
	n.writes = nil
	n.w.load.closeSessions(n)
	if a.process != nil {
		a.process.die("its agent has ended")
	}
	_ = a.log.Close() // what Append returned for is on disk
}

// losePower ends everything on the machine. Of what was not synced, a part
// that the seed chooses stays.
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

// powerOn boots the machine. Its agent comes up a little later; until then a
// dial is refused.
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

// stall freezes the machine: nothing runs on it for a while, its clock does.
func (n *node) stall(d time.Duration) {
	n.log("stall", "for %v", d)
	n.stalledUntil = max(n.stalledUntil, n.w.sched.now+d)
}

// visit reads what the node is, as each process does that starts.
func (n *node) visit() {
	home, err := datadir.Visit(n.disk.files(), datadir.Identity{
		Format: datadir.FormatFirst, Cluster: clusterName, Node: n.member.Name, NodeID: uint64(n.id), Instance: n.newInstance(), Joining: n.spare,
	})
	if err != nil {
		n.w.fail("start", "n%d: %v", n.id, err)
	}
	n.home = home
}

// empty tells whether it has lost its disk, and has nothing since.
func (n *node) empty() bool { return n.lost && !n.home.Has(datadir.IdentityFile) }

// blank tells whether it has nothing that counts, or has lost that.
func (n *node) blank() bool { return n.empty() || n.home.Life() == datadir.Joining }

func (n *node) removed() bool { return n.home.Life() == datadir.Removed }

// instance names its data directory.
func (n *node) instance() string { return n.home.Own().Instance }
