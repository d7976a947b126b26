package consensus

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/seglog"
)

// TestVotesOvertake wants what waited for space on a full disk to take back
// neither a term nor a vote that was stored meanwhile: also not a vote in the
// very term that it is of, which a node gives that has forgotten a dead leader.
func TestVotesOvertake(t *testing.T) {
	for _, c := range []struct{ waited, stored, want seglog.HardState }{
		{seglog.HardState{Term: 2, Commit: 9}, seglog.HardState{Term: 1, Vote: 3, Commit: 7}, seglog.HardState{Term: 2, Commit: 9}},
		{seglog.HardState{Term: 2, Commit: 9}, seglog.HardState{Term: 3, Vote: 3, Commit: 7}, seglog.HardState{Term: 3, Vote: 3, Commit: 9}},
		{seglog.HardState{Term: 2, Commit: 9}, seglog.HardState{Term: 2, Vote: 3, Commit: 7}, seglog.HardState{Term: 2, Vote: 3, Commit: 9}},
		{seglog.HardState{Term: 2, Vote: 3, Commit: 9}, seglog.HardState{Term: 2, Commit: 7}, seglog.HardState{Term: 2, Vote: 3, Commit: 9}},
	} {
		if diff := cmp.Diff(&c.want, newest(&c.waited, c.stored)); diff != "" {
			t.Errorf("%+v after %+v (-want +got):\n%s", c.waited, c.stored, diff)
		}
	}
	if got := newest(nil, seglog.HardState{Term: 2}); got != nil {
		t.Errorf("a run without a hard state has %+v", got)
	}
}
