package consensus

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// sleeper is a keeper of a follower: it counts how often it wakes by itself.
type sleeper struct {
	*driven
	wakes int
}

// turnAt runs one turn, with everything that was left until then.
func (s *sleeper) turnAt(now time.Duration) {
	s.t.Helper()
	s.now = now
	s.in.Take(BootTime)
	s.d.Advance(now, now)
	for {
		w, err := s.d.Turn(s.now, &s.in)
		if err != nil {
			s.t.Fatal(err)
		}
		if w == nil {
			return
		}
		s.write(w)
	}
}

// sleep lets time pass, and wakes for the ticks that are due.
func (s *sleeper) sleep(until time.Duration) {
	s.t.Helper()
	for at := s.d.tickAt(); at <= until; at = s.d.tickAt() {
		s.wakes++
		s.turnAt(at)
	}
	s.now = until
}

func (s *sleeper) stands() bool {
	return slices.ContainsFunc(s.trace, func(line string) bool { return line == "MsgPreVote of 0" })
}

// TestIdleFollowerSleeps: a follower that hears its leader never wakes by itself. A follower that no longer
// hears it stands for election at the same time as if it had counted each tick.
func TestIdleFollowerSleeps(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := &sleeper{driven: newDriven(t)}
		s.sleep(s.now + time.Duration(rng.Int64N(int64(100*time.Millisecond))))
		s.in.Message(heartbeatOf(6))
		s.turnAt(s.now)
		s.wakes = 0
		for range 50 {
			s.sleep(s.now + 90*time.Millisecond + time.Duration(rng.Int64N(int64(20*time.Millisecond))))
			s.in.Message(heartbeatOf(6))
			s.turnAt(s.now)
		}
		if s.wakes > 0 || s.stands() {
			t.Fatalf("seed %d: it woke %d times in 50 heartbeats", seed, s.wakes)
		}
		heard := s.now
		for !s.stands() {
			g := s.d.Group()
			if n := g.spareTicks(); n > 0 && g.silence+n >= testElection {
				t.Fatalf("seed %d: it sleeps over %d ticks after %d", seed, n, g.silence)
			}
			s.sleep(s.d.tickAt())
		}
		tick, most := testTick, 2*testElection*testTick
		if silent := s.now - heard; silent < Promise(tick, testElection) || silent < (testElection-1)*tick || silent > most {
			t.Errorf("seed %d: it stands after %v", seed, silent)
		}
		if s.wakes > 3*testElection/2 {
			t.Errorf("seed %d: it woke %d times in silence", seed, s.wakes)
		}
	}
}

// TestTicksNeverReachBack: a turn that is held up counts no tick from before the messages that it takes,
// because the promise in their answers begins when they came.
func TestTicksNeverReachBack(t *testing.T) {
	s := &sleeper{driven: newDriven(t)}
	s.in.Message(heartbeatOf(6))
	if s.in.Take(func() time.Duration { s.in.Message(heartbeatOf(6)); return s.now }); len(s.in.taken) != 1 || !s.in.Left() {
		t.Errorf("%d messages are taken before the clock is read", len(s.in.taken))
	}
	s.turnAt(s.now)
	for range 20 {
		began := s.now // the turn waits for a processor, and a heartbeat comes meanwhile
		s.in.Message(heartbeatOf(6))
		s.turnAt(began + 170*time.Millisecond)
		if g := s.d.Group(); g.silence != 0 {
			t.Fatalf("%d ticks are counted at once", g.silence)
		}
		s.turnAt(s.now + testTick - 1)
		if g := s.d.Group(); g.silence > 1 {
			t.Fatalf("%d ticks are counted in less than one", g.silence)
		}
	}
}

// TestStoodStill: a node that stood still reads the messages that came before it counts the time.
func TestStoodStill(t *testing.T) {
	s := &sleeper{driven: newDriven(t)}
	s.in.Message(heartbeatOf(6))
	s.turnAt(s.now)
	s.turnAt(s.now + time.Minute)
	if n := s.d.Group().silence; s.stands() || n > spareTicksMax*testHeartbeat {
		t.Errorf("it counts %d ticks, and stands: %t", n, s.stands())
	}
}

// TestIdleLeaderWakesForItsHeartbeats: the leader wakes once in a heartbeat interval, for the lease. Its
// followers do not wake at all.
func TestIdleLeaderWakesForItsHeartbeats(t *testing.T) {
	w := newWorld(t, 3)
	w.node(1).g.campaign()
	w.run(time.Second)
	const seconds = 10
	wakes := make([]int, len(w.nodes))
	sent := 0
	w.carries = func(*pb.Message) bool { sent++; return true }
	for range seconds * int(time.Second/testTick) {
		for i, m := range w.nodes {
			if m.g.spareTicks() == 0 {
				wakes[i]++
			}
		}
		w.run(testTick)
	}
	if limit := seconds*int(time.Second/(testHeartbeat*testTick)) + 1; wakes[0] > limit || wakes[1]+wakes[2] > 0 || sent > 4*limit {
		t.Errorf("%d s: wakes %v, %d messages", seconds, wakes, sent)
	}
}
