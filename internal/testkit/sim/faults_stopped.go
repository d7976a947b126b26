package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

// transfer hands leadership over to any node. Half of the time the old leader does not hear of it. A leader
// that stays has given up its lease for the rest of its term, so it is made to resign later.
func (i *injector) transfer(f fault, n *node, a *agent) {
	term, to := a.Raft.Role().Term, cluster.NodeID(1+i.rng.IntN(len(i.w.nodes)))
	if to == n.id {
		return
	}
	a.life.Go(func() { a.Raft.TransferTo(context.Background(), term, to) })
	if f.size%2 == 0 {
		i.w.sched.after(around(i.rng, 200*time.Microsecond), func() {
			for _, o := range i.w.nodes {
				if o != n && !i.ended {
					i.until(time.Second, i.w.net.cutLink(o.id, n.id, true))
				}
			}
		})
	}
	a.life.after(3*electionTimeout, func() {
		a.life.Go(func() { a.Raft.Resign(context.Background(), term) })
	})
}

// strikeBehind kills the primary's mysqld while no other mysqld has applied all of the log.
func (i *injector) strikeBehind(n *node) {
	for _, o := range i.w.nodes {
		o.applierBlocked++
		i.until(1500*time.Millisecond, o.unblock)
	}
	i.w.sched.after(300*time.Millisecond, func() {
		if a := n.agent; a != nil && a.process != nil && !i.ended {
			a.process.kill("crashed")
		}
	})
}

func (n *node) unblock() {
	n.applierBlocked = max(0, n.applierBlocked-1)
	if n.agent != nil && n.agent.process != nil {
		n.agent.process.applySoon()
	}
}

// strikeStopped stops an agent, does something to its disk, and starts it again.
func (i *injector) strikeStopped(f fault, n *node) {
	if f.kind != rotLog && (i.foreign() || !n.runsMysqld()) {
		return // one node at a time: the others rebuild it
	}
	if f.kind == restore {
		copied, mark, uuid := n.mysqlDisk.Copy(n.uuid), n.durableMark(), n.uuid
		// Meanwhile the log is purged up to a mark that is later than the copy.
		after := 2*purgeEvery + f.lasts
		if f.size%2 == 0 {
			i.w.sched.after(after, func() {
				if n.uuid == uuid { // else the node was rebuilt meanwhile
					i.stopped(f, n, func() { n.restore(copied); n.replaceMark(mark) })
				}
			})
		} else {
			i.w.sched.after(after, func() {
				if n.uuid == uuid {
					i.stopped(f, n, func() { n.restore(copied) })
				}
			})
		}
		return
	}
	if f.kind == startByHand {
		if n.agent == nil || n.agent.process == nil || n.agent.process.dead {
			return
		}
		// The GTIDs of a binlog count as executed even if InnoDB has lost the transactions. The judge cannot
		// see that, so the engine is flushed here and loses nothing.
		n.agent.process.FlushEngineLogs()
	}
	i.stopped(f, n, func() {
		if f.kind == rotLog {
			i.rot(n)
		} else {
			n.startByHand()
		}
	})
}

// strikeTail stalls the leader's disk and others, until only just enough followers write for a majority. It
// damages the log of one of these followers.
func (i *injector) strikeTail(leader *node) {
	if i.foreign() {
		return
	}
	left, victim := len(i.w.nodes)/2, (*node)(nil)
	for _, k := range i.rng.Perm(len(i.w.nodes)) {
		n := i.w.nodes[k]
		if n != leader && left > 0 {
			left, victim = left-1, n
			continue
		}
		n.disk.stalledUntil = max(n.disk.stalledUntil, i.w.sched.now+950*time.Millisecond)
	}
	i.w.load.storm++
	i.until(200*time.Millisecond, func() { i.w.load.storm-- })
	i.w.sched.after(100*time.Millisecond+around(i.rng, 50*time.Millisecond), func() {
		i.stopped(fault{kind: rotLog, lasts: 20 * time.Millisecond}, victim, func() { i.rot(victim) })
	})
}

func (i *injector) stopped(f fault, n *node, do func()) {
	if i.ended || !n.powered || i.foreign() || n.blank() || n.removed() || f.kind != rotLog && !i.w.mayTamper(n) {
		return
	}
	n.killAgent("killed")
	do()
	i.w.sched.after(f.lasts/4, n.startAgent)
}

// foreign tells whether some mysqld has data that its agent did not leave there.
func (i *injector) foreign() bool {
	for _, n := range i.w.nodes {
		if n.tampered || n.restored {
			return true
		}
	}
	return false
}

// rot damages the durable part of a log, where the peers still have it: it is behind everything that they may have
// purged. It flips a byte, or has a sector that cannot be read. A byte is never in the last segment: only the next
// append proves that its end is durable. Only one log is damaged at a time.
func (i *injector) rot(n *node) {
	if !n.runsMysqld() {
		return // a logger has no mark that says what the others may have purged
	}
	for _, o := range i.w.nodes {
		if o.rotten || o.healer != nil {
			return
		}
	}
	names, err := n.disk.mem.List("log")
	if err != nil {
		return
	}
	var segments, fit []string
	for _, name := range names {
		var first uint64
		if _, err := fmt.Sscanf(name, "quorate.%d", &first); err != nil || name != fmt.Sprintf("quorate.%020d", first) {
			continue
		}
		segments = append(segments, name)
		if len(segments) > 1 && first > n.marked {
			fit = append(fit, name)
		}
	}
	if len(fit) < 2 {
		return
	}
	if !i.w.mayRot(n) {
		return
	}
	name, newest := "log/"+fit[i.rng.IntN(len(fit)-1)], "log/"+fit[len(fit)-1]
	at := i.rng.Int64N(n.disk.size(name))
	bit := byte(1) << i.rng.IntN(8)
	switch {
	case at%6 == 0: // a sector that cannot be read is damage wherever it is
		name, at = newest, at%n.disk.size(newest)
		fallthrough
	case at%6 == 3:
		n.disk.bad = &badSector{name, at}
	default:
		if err := n.disk.flip(name, at, bit); err != nil {
			i.w.fail("sim", "damage %s: %v", name, err)
		}
	}
	// So the start sees it. If it were found later, the peers might have purged what heals it, or need this node.
	_ = n.disk.mem.Remove(strings.Replace(name, "quorate.", "index.", 1))
	n.log("rot", "%s at %d, unreadable %t", name, at, n.disk.bad != nil)
	n.rotten, n.changesBefore = true, i.w.memberChanges
}

// startByHand starts mysqld without the agent and stops it again, as a person might do. mysqld finds its last
// binlog, so it commits the transactions that were prepared there.
func (n *node) startByHand() {
	if n.incarnation == 0 {
		return
	}
	n.log("mysqld", "started by hand")
	n.tampered = true
	fakemysqld.Start(n.mysqlDisk, fakemysqld.Options{
		BinlogDir: n.lastBinlog.dir, BinlogBase: n.lastBinlog.base, ServerID: uint32(n.id), Rand: n.rng,
		Now: func() time.Duration { return n.w.sched.now },
	}).StopGracefully()
}

// restore puts an older data directory in place.
func (n *node) restore(d *fakemysqld.Disk) {
	n.log("mysqld", "its data directory is replaced, was %d engine commits, is %d", len(n.mysqlDisk.EngineLog()), len(d.EngineLog()))
	n.mysqlDisk, n.restored = d, true
	delete(n.check.engines, n)
}

// rebuild replaces the data of a node, which the judge has refused, by a copy of another node's data.
func (n *node) rebuild() {
	var best *node
	for _, o := range n.w.nodes {
		a := o.agent
		if o == n || a == nil || a.process == nil || a.process.dead || o.tampered || n.agent != nil && n.agent.log.FirstIndex() > o.durableMark().Index+1 {
			continue
		}
		if best == nil || n.check.engines[o].place > n.check.engines[best].place {
			best = o
		}
	}
	if best == nil || n.agent == nil || best.stalledUntil > n.w.sched.now {
		n.w.sched.after(300*time.Millisecond, n.rebuild)
		return
	}
	best.agent.process.FlushEngineLogs()
	n.killAgent("rebuilt")
	n.restore(best.mysqlDisk.Copy(n.uuid))
	n.replaceMark(best.durableMark())
	n.tampered, n.restored = false, false
	n.w.struck.Rebuilds++
	n.startAgent()
}
