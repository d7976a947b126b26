// Package units has the one form in which quorate shows and reads sizes, durations
// and times, so that what a message says can be typed into a command: 2.1MiB, 2h,
// 30d, 1.6s, 2026-11-22 12:27:27 UTC. JSON has bytes, seconds or nanoseconds by the
// field's name, and RFC 3339. Line makes one safe line of any text.
//
// It is pure: it owns nothing.
package units
