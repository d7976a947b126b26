package commits

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster/status"
)

// TestCommitRates: rates are those of the last seconds, and of one epoch only.
func TestCommitRates(t *testing.T) {
	var r rates
	at := func(seconds float64, transactions uint64, sum float64, count uint64) commitsSample {
		m := meanSample{sum, count}
		return commitsSample{time.Unix(100, 0).Add(time.Duration(seconds * float64(time.Second))), transactions, [stages]meanSample{m, m, m, m, m}}
	}
	rate := func(perSecond, mean float64) *status.Commits {
		return &status.Commits{PerSecond: perSecond, ReceiveSeconds: mean, ProposeSeconds: mean, FsyncSeconds: mean, MajoritySeconds: mean, ReleaseSeconds: mean}
	}
	for _, c := range []struct {
		why  string
		s    commitsSample
		want *status.Commits
	}{
		{"nothing to compare with", at(0, 100, 1, 10), nil},
		{"too soon", at(1, 500, 2, 20), nil},
		{"two seconds", at(2, 300, 2, 20), rate(100, 0.1)},
		{"soon after: as before", at(3, 900, 9, 90), rate(100, 0.1)},
		{"nothing was committed", at(4, 300, 2, 20), rate(0, 0)},
		{"another epoch", at(5, 7, 2, 20), nil},
		{"its first seconds", at(7, 27, 4, 30), rate(10, 0.2)},
		{"nobody has asked for a minute", at(67, 1000, 5, 40), nil},
	} {
		if d := cmp.Diff(c.want, r.next(c.s)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, d)
		}
	}
}
