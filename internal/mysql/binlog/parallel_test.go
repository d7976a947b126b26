package binlog

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// TestLimitParallel: last committed rises to sequence number - workers, and nothing else
// of the event changes.
func TestLimitParallel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seq := rapid.Int64Range(1, 1<<40).Draw(t, "sequence")
		c := clock{n: 77, seq: seq, committed: rapid.Int64Range(min(rapid.Int64Range(0, 1).Draw(t, "least"), seq-1), seq-1).Draw(t, "committed"), immediate: 5, first: 6, length: 900, versions: []byte{0x50, 0x62, 1, 0}}
		workers := rapid.IntRange(0, 1100).Draw(t, "workers")
		e := gtidEvent(c)
		before := bytes.Clone(e)
		got := LimitParallel(nil, e, workers)
		if workers > 0 && c.committed > 0 {
			c.committed = max(c.committed, seq-int64(workers))
		}
		if want := gtidEvent(c); !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
		if !bytes.Equal(e, before) {
			t.Fatal("what it was given has changed: that is the log's")
		}
	})
}

// TestLimitParallelLeavesAlone: an event that it cannot rewrite is sent as it is.
func TestLimitParallelLeavesAlone(t *testing.T) {
	damaged := gtidEvent(clock{n: 1, committed: 1, seq: 1000})
	damaged[HeaderBytes+gtidN] ^= 1
	noClock := gtidEvent(clock{n: 1, seq: 1000})
	noClock[HeaderBytes+gtidClockType] = 0
	PutChecksum(noClock)
	behind := gtidEvent(clock{n: 1})
	binary.LittleEndian.PutUint64(behind[HeaderBytes+gtidSequence:], 1<<63)
	PutChecksum(behind)
	for name, e := range map[string]Event{
		"behind all": gtidEvent(clock{n: 1, seq: 1000}), "damaged": damaged, "without a clock": noClock, "a negative number": behind,
		"tagged": tagged("t", clock{n: 1, committed: 1, seq: 1000}), "no GTID": query("BEGIN"),
	} {
		if got := LimitParallel(nil, e, 4); &got[0] != &e[0] {
			t.Errorf("%s: %x became %x", name, e, got)
		}
	}
}
