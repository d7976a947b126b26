package local

import (
	"testing"
	"time"
)

// TestCertificateEnds: a certificate that ends within 30 days is advice, and a certificate that has ended is not.
func TestCertificateEnds(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	const which, then = "the certificate that mysqld shows its clients ", `: put a new one in its place, then run "quorate restart-mysqld" for this node`
	for _, c := range []struct {
		at          time.Time
		soon, ended string
	}{
		{time.Time{}, "", ""},
		{now.Add(31 * 24 * time.Hour), "", ""},
		{now.Add(29 * 24 * time.Hour), which + "ends on 2026-05-30" + then, ""},
		{now.Add(-time.Hour), "", which + "has ended on 2026-04-30" + then},
	} {
		if soon, ended := certificateEnds(c.at, now); soon != c.soon || ended != c.ended {
			t.Errorf("%v: %q, %q", c.at, soon, ended)
		}
	}
}

// TestNextLook: looks at many accounts take at most a twentieth of the time; those at few are made at each poll.
func TestNextLook(t *testing.T) {
	for _, c := range []struct{ took, want time.Duration }{
		{5 * time.Millisecond, 100 * time.Millisecond}, // sooner than the next poll
		{2 * time.Second, 40 * time.Second},
	} {
		if got := nextLook(c.took); got != c.want {
			t.Errorf("after %v: %v, want %v", c.took, got, c.want)
		}
	}
}
