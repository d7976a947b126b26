package consensus

import (
	"log/slog"
	"testing"
	"time"
)

// TestClockStandsStillOverARound: the boot clock stands still while the answers of a round are on their way. If
// the wall clock is set right afterwards, the lease does not count, even before the next tick. Several short
// pauses since one round add up. The next round brings the lease back.
func TestClockStandsStillOverARound(t *testing.T) {
	w := newWorld(t, 3)
	w.node(1).g.campaign()
	w.settle()
	w.run(time.Second)
	g := w.node(1).g
	told := 0
	n := &Driver{cfg: Config{Logger: slog.New(slog.DiscardHandler), OnLease: func() { told++ }}, group: g}
	n.lease.Store(&clocks{})
	at := func(set time.Duration) clocks { return clocks{boot: w.now, wall: 1000*time.Hour + w.now + set} }
	tick := func(set time.Duration) {
		t.Helper()
		n.watchClocks(at(set))
		n.publishLease()
	}
	round := func(set time.Duration) {
		t.Helper()
		tick(set)
		w.run(testHeartbeat * testTick)
		n.publishLease()
	}
	wants := func(what string, set time.Duration, want bool) {
		t.Helper()
		if got := n.LeadsAt(at(set).boot, at(set).wall); got != want {
			t.Errorf("%s: leads is %t, want %t", what, got, want)
		}
	}
	round(0)
	left := g.LeaseUntil() - w.now
	wants("in order", 0, true)
	if boot, wall := n.Lease(); told == 0 || boot != g.LeaseUntil() || wall.UnixNano() != int64(at(0).wall+left) {
		t.Errorf("the lease ends at %v and %v, told %d times; it ends at %v", boot, wall, told, g.LeaseUntil())
	}
	wants("set back by an hour", -time.Hour, true)
	wants("set forward by less than the lease has left", left-1, true)
	wants("set forward by all that the lease has left", left, false)

	short := left * 5 / 9 // two of these pauses are too long
	tick(short)
	wants("after a short standstill", short, true)
	tick(2 * short)
	if boot, wall := n.Lease(); boot != 0 || !wall.IsZero() {
		t.Errorf("a lease that is not believed ends at %v and %v", boot, wall)
	}
	wants("after two, without a round in between", 2*short, false)
	round(2 * short)
	wants("after another round", 2*short, true)
	round(3 * short)
	wants("after two, with a round in between", 3*short, true)

	g.startRound() // then the machine is stopped for ten seconds
	const stood = 10 * time.Second
	wants("before the next tick", stood, false)
	w.settle() // delivers the old answers
	n.publishLease()
	wants("with the answers of before", stood, false)
	tick(stood)
	wants("after the tick", stood, false)
	round(stood)
	wants("after another round", stood, true)
}
