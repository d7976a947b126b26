package consensus

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/seglog"
)

// TestHealTarget: the tail of a leader's log is copied if the leader may count on this node for it, and a vote
// never counts longer than its term.
func TestHealTarget(t *testing.T) {
	promised := seglog.HardState{Term: 5, Vote: 2, Commit: 40}
	for _, c := range []struct {
		name  string
		terms []uint64 // each asked with commit 50 and last 60, then 10 more each
		index uint64
		want  seglog.HardState
	}{
		{"an older leader", []uint64{4}, 60, seglog.HardState{Term: 5, Vote: 2, Commit: 70}},
		{"the leader it knew", []uint64{5}, 60, seglog.HardState{Term: 5, Vote: 2, Commit: 70}},
		{"the same, asked again", []uint64{5, 5}, 60, seglog.HardState{Term: 5, Vote: 2, Commit: 70}},
		{"a later leader", []uint64{6}, 50, seglog.HardState{Term: 6, Commit: 70}},
		{"one after the other", []uint64{5, 7}, 60, seglog.HardState{Term: 7, Commit: 70}},
	} {
		target := NewHealTarget(promised)
		for i, term := range c.terms {
			target.Aim(term, 50+10*uint64(i), 60+10*uint64(i))
		}
		if target.Index() != c.index {
			t.Errorf("%s: up to %d, want %d", c.name, target.Index(), c.index)
		}
		if diff := cmp.Diff(c.want, target.HardState(70)); diff != "" {
			t.Errorf("%s: hard state (-want +got):\n%s", c.name, diff)
		}
	}
}
