package local

import (
	"strings"
	"testing"
	"time"
)

// TestCertificateEnds: a certificate that ends within 30 days is shown.
func TestCertificateEnds(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Time{}, ""},
		{now.Add(31 * 24 * time.Hour), ""},
		{now.Add(29 * 24 * time.Hour), "ends on 2026-05-30"},
		{now.Add(-time.Hour), "has ended on 2026-04-30"},
	} {
		if got := certificateEnds(c.at, now); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.at, got, c.want)
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
