package consensus

import (
	"log/slog"
	"testing"
	"time"
)

// TestClockStandsStillOverARound: the boot clock stands still while a round's answers are
// on their way. Where the wall clock is set right afterwards the lease is not believed,
// also by what comes before the next tick; the next round brings it back.
func TestClockStandsStillOverARound(t *testing.T) {
	w := newWorld(t, 3)
	w.node(1).g.campaign()
	w.settle()
	w.run(time.Second)
	g := w.node(1).g
	n := &Node{cfg: Config{ElectionTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}, group: g}
	at := func(set time.Duration) clocks { return clocks{boot: w.now, wall: 1000*time.Hour + w.now + set} }
	tick := func(set time.Duration) {
		t.Helper()
		n.watchClocks(at(set))
		n.lease.Store(int64(g.LeaseUntil()))
	}
	wants := func(what string, set time.Duration, want bool) {
		t.Helper()
		if got := n.leads(at(set)); got != want {
			t.Errorf("%s: leads is %t, want %t", what, got, want)
		}
	}
	n.ahead.Store(int64(at(0).ahead()))
	tick(0)
	wants("in order", 0, true)
	wants("set back by an hour", -time.Hour, true)
	wants("set forward a little", 400*time.Millisecond, true)
	g.startRound() // then the machine is stopped for ten seconds
	const stood = 10 * time.Second
	wants("before the next tick", stood, false)
	tick(stood)
	wants("after it", stood, false)
	w.settle() // the answers of before
	n.lease.Store(int64(g.LeaseUntil()))
	wants("with the answers of before", stood, false)
	w.run(testHeartbeat * testTick)
	tick(stood)
	wants("after another round", stood, true)
}
