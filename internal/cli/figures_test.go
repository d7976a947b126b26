package cli

import (
	"strings"
	"testing"
	"time"
)

// TestMeasuredDurations: a measured duration of a second or more has one decimal at most, in every text.
func TestMeasuredDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		454_062_499 * time.Nanosecond:   "454ms",
		2_063_287_035 * time.Nanosecond: "2.1s",
		252_400 * time.Millisecond:      "4m12s",
	} {
		if text := (verified{}).text(d); !strings.HasSuffix(text, ", in "+want+"\n") {
			t.Errorf("%v: %q, want %s", d, text, want)
		}
	}
}
