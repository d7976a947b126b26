package agent

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

// TestPurgeNamesWhatTheArchiveLacks: who purges the log is told what the archive has not stored.
func TestPurgeNamesWhatTheArchiveLacks(t *testing.T) {
	p := cluster.PurgePlan{UpTo: 20, Segments: []cluster.PurgeSegment{{First: 5, Last: 20, Purge: true}}}
	for _, c := range []struct {
		archived uint64
		known    bool
		want     string
	}{
		{20, true, ""},
		{0, false, ""},
		{10, true, "the archive has the log up to entry 10, and lacks entries 11-20: it gets them only if another node still has them"},
		{2, true, "the archive has the log up to entry 2, and lacks entries 5-20: it gets them only if another node still has them"},
	} {
		if got := archiveLacks(p, c.archived, c.known); got != c.want {
			t.Errorf("%d, %t: %q, want %q", c.archived, c.known, got, c.want)
		}
	}
}
