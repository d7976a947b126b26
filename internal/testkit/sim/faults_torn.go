package sim

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
)

// tearFile ends a machine inside of the next write of one of its small files.
const tearFile faultKind = "tear-small-file"

// tearMean is the mean time between two of these faults.
const tearMean = 3 * time.Second

// tornFiles are the small files whose writes are torn.
var tornFiles = [...]string{
	datadir.Peers, datadir.Met, datadir.Refused, datadir.Heard, datadir.IdentityFile, datadir.ClusterState, datadir.Durable, datadir.Promise,
}

// tears returns additional faults, in one of four worlds.
func (w *World) tears(from, until time.Duration) (faults []fault) {
	rng := w.random(streamTears)
	if !chance(rng, 25) {
		return nil
	}
	for at := from; at < until; at += around(rng, tearMean) {
		f := fault{at: at, kind: tearFile, target: cluster.NodeID(1 + rng.IntN(len(w.nodes))), size: rng.IntN(100)}
		f.lasts = 200*time.Millisecond + around(rng, time.Second)
		faults = append(faults, f)
	}
	return faults
}

// strikeTear arms the next write of a small file. The machine loses its power inside of it.
func (i *injector) strikeTear(f fault, n *node) {
	n.disk.tear = &tear{name: tornFiles[f.size%len(tornFiles)], begins: func(rng *rand.Rand) {
		i.w.struck.Torn++
		n.disk.callsLeft, n.disk.onCrash = rng.IntN(5), n.disk.losePower
		i.w.sched.after(0, func() { i.powerLoss(f, []*node{n}) })
	}}
}

// tear is a write that a disk waits for.
type tear struct {
	name   string
	begins func(*rand.Rand)
}

// of tells whether the write is to that file. Each file is first written under a name of its own, which begins
// with the file's name.
func (t *tear) of(path string) bool { return t != nil && strings.HasPrefix(path, t.name) }
