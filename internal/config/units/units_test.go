package units

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 1600 * time.Millisecond: "1.6s", 62 * time.Millisecond: "62ms", time.Minute: "1m",
		2 * time.Hour: "2h", 90 * time.Minute: "1h30m", time.Hour + 5*time.Second: "1h5s", 10 * time.Minute: "10m", 100 * time.Second: "1m40s",
		20 * time.Minute: "20m", 10 * time.Hour: "10h", time.Hour + 10*time.Minute + 20*time.Second: "1h10m20s",
		30 * day: "30d", 36 * time.Hour: "1d12h", day + 5*time.Second: "1d5s", -90 * time.Minute: "-1h30m", 1500 * time.Microsecond: "1.5ms",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// TestDurationIsReadBack: a duration can be typed as it is shown.
func TestDurationIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		if rapid.Bool().Draw(t, "whole") {
			d = d.Truncate(time.Minute)
		}
		if got, err := ParseDuration(Duration(d)); err != nil || got != d {
			t.Errorf("%v is shown as %s and read as %v, %v", d, Duration(d), got, err)
		}
	})
	for _, text := range []string{"", "d", "1", "-1d", "1.5d", "1d-1h", "1d2d", "200000d", "99999999999d", "1dx", "2 h"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is read as %v", text, d)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 5: "5B", 1000: "1000B", 1 << 10: "1KiB", 1536: "1.5KiB", 2233435: "2.1MiB", 12 << 20: "12MiB", 12<<20 + 1: "12MiB",
		1500 << 20: "1500MiB", 1536 << 20: "1536MiB", 16 << 30: "16GiB", 1 << 40: "1TiB", 1 << 60: "1048576TiB", 100<<30 + 7: "100GiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestSizeIsReadBack: whole MiB are shown exactly. Other sizes are read back as closely as they are shown.
func TestSizeIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<50).Draw(t, "n")
		got, err := ParseSize(Size(n))
		if err != nil || math.Abs(float64(got-n)) > 0.051*float64(n) {
			t.Errorf("%d is shown as %s and read as %d, %v", n, Size(n), got, err)
		}
		n = n >> 20 << 20
		if got, err := ParseSize(Size(n)); n < 1<<40 && (err != nil || got != n) {
			t.Errorf("%d is shown as %s and read as %d, %v", n, Size(n), got, err)
		}
	})
	for text, want := range map[string]int64{"0": 0, "7": 7, "7B": 7, "1.5GiB": 3 << 29, "128 MiB": 128 << 20, "2TiB": 2 << 40} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5", "1.5B", "128MB", "16GB", "16G", "8388608TiB", "1e3MiB", ".5MiB", "1 2MiB", "9999999999999999999"} {
		if n, err := ParseSize(text); err == nil {
			t.Errorf("%q is read as %d", text, n)
		}
	}
}

func TestTime(t *testing.T) {
	at := time.Date(2026, 11, 22, 13, 27, 27, 5e8, time.FixedZone("", 3600))
	if got := Time(at); got != "2026-11-22 12:27:27 UTC" {
		t.Error(got)
	}
	if back, err := time.Parse(TimeLayout, Time(at)); err != nil || !back.Equal(at.Truncate(time.Second)) {
		t.Errorf("%v, %v", back, err)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 entries", 1: "1 entry", 2: "2 entries"} {
		if got := Count(n, "entry", "entries"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
