package consensus

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/quorate/quorate/internal/cluster"
)

// lateWorld makes node 1 lead three nodes of these kinds and weights.
func lateWorld(t *testing.T, change func(members []cluster.Member)) *world {
	w := newWorld(t, 3)
	for _, m := range w.nodes {
		for i := range m.g.cfg.Members {
			m.g.cfg.Members[i].Kind, m.g.cfg.Members[i].Weight = cluster.KindFull, cluster.WeightDefault
		}
		change(m.g.cfg.Members)
	}
	w.node(1).g.campaign()
	w.settle()
	w.run(200 * time.Millisecond)
	if !w.node(1).g.Role().Leading {
		t.Fatalf("node 1 does not lead:\n%s", w.status())
	}
	return w
}

// TestBetterNodeStandsFirst: when the leader's process is gone, the best of the other nodes leads, whatever its
// id is.
func TestBetterNodeStandsFirst(t *testing.T) {
	for name, change := range map[string]func([]cluster.Member){
		"a logger is last":   func(m []cluster.Member) { m[1].Kind, m[1].Weight = cluster.KindLogger, cluster.WeightMax },
		"weight 0 is last":   func(m []cluster.Member) { m[1].Weight = 0; m[2].Weight = 1 },
		"the heavier stands": func(m []cluster.Member) { m[2].Weight = 6 },
	} {
		w := lateWorld(t, change)
		w.cut[1] = true
		for _, id := range []uint64{2, 3} {
			w.node(id).g.LeaderGone(w.now, 1)
		}
		w.settle()
		if !w.node(3).g.Role().Leading {
			t.Errorf("%s: node 3 does not lead at once:\n%s", name, w.status())
		}
	}
}

// TestLoggerStandsLater: a logger that hears nothing leaves half an election timeout to the other nodes. It
// votes for them meanwhile, and stands for election after that.
func TestLoggerStandsLater(t *testing.T) {
	const trials = 20
	early := 0
	for range trials {
		w := lateWorld(t, func(m []cluster.Member) { m[1].Kind = cluster.KindLogger })
		w.cut[1], w.cut[3] = true, true
		ticks := 0
		for w.node(2).g.rn.BasicStatus().RaftState == raft.StateFollower {
			w.run(testTick)
			if ticks++; ticks > 3*testElection {
				t.Fatal("it never stands")
			}
		}
		// Raft may draw the shortest timeout, which ends just when the silence counts as one.
		if ticks < testElection+testElection/2 {
			early++
		}
	}
	if early > trials/4 {
		t.Errorf("in %d of %d times the logger stood within one and a half election timeouts", early, trials)
	}
}

// TestLoggerVotesWhileItStandsBack: the logger skips ticks after its promise to the old leader has ended, not
// earlier.
func TestLoggerVotesWhileItStandsBack(t *testing.T) {
	w := lateWorld(t, func(m []cluster.Member) { m[1].Kind = cluster.KindLogger })
	for tries := 0; w.node(2).g.silence <= testElection; tries++ {
		w.cut[1], w.cut[3] = true, true
		for range testElection + 2 {
			w.now += testTick
			w.node(2).g.Tick(w.now)
			w.settle()
		}
		if w.node(2).g.rn.BasicStatus().RaftState != raft.StateFollower { // it drew the shortest timeout
			if tries > 5 {
				t.Fatal("the logger always stands at once")
			}
			w = lateWorld(t, func(m []cluster.Member) { m[1].Kind = cluster.KindLogger })
		}
	}
	w.cut[3] = false
	w.node(3).g.campaign()
	w.settle()
	if !w.node(3).g.Role().Leading {
		t.Errorf("the logger does not vote while it stands back:\n%s", w.status())
	}
}

// TestOnlyLoggersLeft: if no better node is there, no logger waits.
func TestOnlyLoggersLeft(t *testing.T) {
	w := lateWorld(t, func(m []cluster.Member) {
		for i := range m {
			m[i].Weight = 0
		}
	})
	for id := range uint64(3) {
		if w.node(id + 1).g.standsBack() {
			t.Errorf("node %d stands back, for nobody", id+1)
		}
	}
}
