package strangers

import (
	"testing"
	"time"
)

// TestBurst: a thousand sessions at once get only as many lines as a burst may have. How many
// were left out is said.
func TestBurst(t *testing.T) {
	var b Burst
	now, lines := time.Now(), 0
	for range 1000 {
		if ok, _ := b.Take(now); ok {
			lines++
		}
	}
	if lines != BurstMax {
		t.Errorf("%d lines, want %d", lines, BurstMax)
	}
	if ok, left := b.Take(now.Add(burstEvery)); !ok || left != 1000-BurstMax {
		t.Errorf("the next line: %t, %d left out", ok, left)
	}
	if ok, _ := b.Take(now.Add(burstEvery)); ok {
		t.Error("two lines where one may be")
	}
}
