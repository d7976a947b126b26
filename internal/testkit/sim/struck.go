package sim

import "fmt"

// Struck counts the effects of faults that do not always have an effect.
type Struck struct {
	// Heals counts the damaged logs that were healed. HealsInChange counts those of them where the members
	// changed between the damage and the healing. Torn counts the writes of small files that were cut off.
	Heals, HealsInChange, Torn int
	// Pauses counts the machines that were paused with their clocks, ClockSteps the steps of wall clocks, and
	// Rebuilds the mysqlds that were refused and got the data of another one.
	Pauses, ClockSteps, Rebuilds int
	// Resets counts the connections between nodes that ended in one direction alone.
	Resets int
}

// String returns all counts as text.
func (s Struck) String() string {
	return fmt.Sprintf("%d logs healed, %d while the members changed, %d small files torn, %d pauses, %d wall clocks set, %d mysqlds rebuilt, %d connections reset",
		s.Heals, s.HealsInChange, s.Torn, s.Pauses, s.ClockSteps, s.Rebuilds, s.Resets)
}

// countHealed counts a damaged log that was healed.
func (w *World) countHealed(n *node) {
	w.struck.Heals++
	if w.memberChanges > n.changesBefore || w.check.joint {
		w.struck.HealsInChange++
	}
}
