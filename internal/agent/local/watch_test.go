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
