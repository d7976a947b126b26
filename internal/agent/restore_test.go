package agent

import (
	"testing"

	"github.com/quorate/quorate/internal/backup/archive"
)

// TestRestoreNeedsRoom: a restore says at its begin, and not when the disk is full, that the disk is too small.
func TestRestoreNeedsRoom(t *testing.T) {
	m := archive.Manifest{Files: []archive.File{{Bytes: 1 << 20}, {Bytes: 3 << 20}}}
	for free, want := range map[uint64]string{4 << 20: "", 3 << 20: "they need 4MiB, and 3MiB are free"} {
		if got := noRoom(m, free); got != want {
			t.Errorf("%d bytes are free: %q, want %q", free, got, want)
		}
	}
}
