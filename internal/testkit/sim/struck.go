package sim

import "fmt"

// Struck counts what has come of faults that may miss.
type Struck struct {
	// Heals counts the damaged logs that were healed, HealsInChange those of them during whose
	// damage the members changed. Torn counts the writes of small files that were cut off.
	Heals, HealsInChange, Torn int
	// Pauses counts the machines that were paused with their clocks, ClockSteps the wall clocks
	// that were set, Rebuilds the mysqlds that were refused and got another one's data.
	Pauses, ClockSteps, Rebuilds int
}

// Add adds another run's.
func (s *Struck) Add(o Struck) {
	s.Heals, s.HealsInChange, s.Torn = s.Heals+o.Heals, s.HealsInChange+o.HealsInChange, s.Torn+o.Torn
	s.Pauses, s.ClockSteps, s.Rebuilds = s.Pauses+o.Pauses, s.ClockSteps+o.ClockSteps, s.Rebuilds+o.Rebuilds
}

// String names them all.
func (s Struck) String() string {
	return fmt.Sprintf("%d logs healed, %d while the members changed, %d small files torn, %d pauses, %d wall clocks set, %d mysqlds rebuilt",
		s.Heals, s.HealsInChange, s.Torn, s.Pauses, s.ClockSteps, s.Rebuilds)
}

// countHealed counts a log that was damaged.
func (w *World) countHealed(n *node) {
	w.struck.Heals++
	if w.memberChanges > n.changesBefore || w.check.joint {
		w.struck.HealsInChange++
	}
}
