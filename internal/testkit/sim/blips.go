package sim

import (
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

// blipEvery is the mean time between two blips.
const blipEvery = 4 * time.Second

// blips makes another list of faults than plan does. The faults depose the primary while sessions are in
// flight, and mostly lose nothing. Sometimes a further fault strikes while the primary is being settled.
func blips(rng *rand.Rand, nodes int, from, until time.Duration) (faults []fault) {
	add := func(f fault) {
		f.id, f.size = len(faults), rng.IntN(100)
		faults = append(faults, f)
	}
	deposing := []faultKind{deafen, deafen, isolate, stall, stall, transfer, transfer}
	between := []faultKind{
		deafen, stall, stall, transfer, isolate, killMysqld, killAgent, terminate, rotate, rotate, stallDisk, fillDisk, stopAgent,
		move, restartMysqld, fenceNode, losePower, blockApplier, slowNetwork, badNetwork,
	}
	for at := from; at < until; at += blipEvery/2 + around(rng, blipEvery/2) {
		if chance(rng, 60) {
			add(fault{at: at - 50*time.Millisecond, kind: storm, lasts: time.Duration(rng.IntN(4)) * time.Second})
		}
		blip := fault{at: at, kind: deposing[rng.IntN(len(deposing))], lasts: time.Second + time.Duration(rng.Int64N(int64(1500*time.Millisecond)))}
		if chance(rng, 50) { // at any time, or in the middle of a step
			blip.on = []point{pointAppending, pointAppended, pointAcked, pointRotated}[rng.IntN(4)]
		}
		add(blip)
		if !chance(rng, 50) {
			continue
		}
		f := fault{at: at + time.Duration(rng.Int64N(int64(3*time.Second))), kind: between[rng.IntN(len(between))]}
		f.lasts = time.Duration(rng.Int64N(int64(2 * time.Second)))
		if chance(rng, 60) {
			f.target = cluster.NodeID(1 + rng.IntN(nodes))
		}
		add(f)
	}
	return faults
}

// dbaEvery is the mean time between two statements of the DBA.
const dbaEvery = 20 * time.Millisecond

// dba is a session that bypasses the router. It goes to a mysqld that is the primary's or was so just before,
// and runs statements that super_read_only lets pass (ANALYZE TABLE).
func (w *World) dba() {
	rng := w.random(streamDBA)
	var next func()
	next = func() {
		for _, n := range w.nodes {
			a := n.agent
			if a == nil || a.process == nil || a.process.dead {
				continue
			}
			if phase := a.Role.Phase(); phase == role.PhaseSettling && chance(rng, 50) || phase == role.PhasePrimary && chance(rng, 1) {
				a.life.run(func() { w.load.pastRouter(n) })
			}
		}
		if !w.load.stopped {
			w.sched.after(around(rng, dbaEvery), next)
		}
	}
	w.sched.after(quietAtStart, next)
}

// pastRouter runs a statement in a node's mysqld, whether that node serves or not.
func (l *workload) pastRouter(n *node) {
	l.nextID++
	r := &request{kind: dropping, key: "never", transaction: l.nextID, done: func(*request) {}}
	l.sessions[r.transaction] = &session{r: r, serves: n, via: n}
	n.agent.process.begin(fakemysqld.Tx{ID: r.transaction, Kind: fakemysqld.NoOp, Key: r.key, Passes: true})
}
