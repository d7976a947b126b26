package binlog

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestParseGTIDLayouts has the layouts of the versions, from 5.7 on.
func TestParseGTIDLayouts(t *testing.T) {
	want := GTIDInfo{GTID: gtid.GTID{UUID: testUUID(), N: 77}, LastCommitted: 5, SequenceNumber: 9}
	c := clock{n: 77, committed: 5, seq: 9}
	check := func(name string) {
		t.Helper()
		got, err := ParseGTID(gtidEvent(c))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	check("5.7: no timestamps")
	c.immediate, c.first = 1<<55-1, 1<<55-1
	want.ImmediateCommit, want.OriginalCommit = c.immediate, c.first
	check("8.0.1: one timestamp")
	c.first = 1234
	want.OriginalCommit = 1234
	check("8.0.1: two timestamps")
	for _, length := range []uint64{1, 250, 251, 65535, 65536, 1 << 24, math.MaxUint32, math.MaxUint64} {
		c.length, want.TransactionLength = length, length
		c.versions = nil
		check("8.0.2: length")
		c.versions = []byte{0x50, 0x62, 1, 0}
		check("8.0.14: version")
		c.versions = []byte{0x50, 0x62, 1, 0x80, 0x50, 0x62, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8}
		check("9.x: two versions, ticket")
	}
}

func TestParseGTIDMalformed(t *testing.T) {
	for _, n := range []uint64{0, gtid.MaxN + 1, math.MaxUint64} {
		if _, err := ParseGTID(simpleGTID(n)); !errors.Is(err, ErrMalformed) || !errors.Is(err, gtid.ErrRange) {
			t.Errorf("number %d: %v", n, err)
		}
		if _, err := ParseGTID(tagged("t", clock{n: n})); !errors.Is(err, ErrMalformed) {
			t.Errorf("tagged, number %d: %v", n, err)
		}
	}
	body := gtidEvent(clock{n: 1, immediate: 2, first: 3, length: 70000}).Body()
	for n := range body {
		// An event that is cut between fields has an older layout; cut elsewhere it is
		// malformed.
		_, err := ParseGTID(event(TypeGTID, body[:n]...))
		whole := n == gtidTimestamps || n == gtidTimestamps+2*timestampBytes
		older := n > gtidTimestamps && n < gtidTimestamps+timestampBytes // ignored, as mysqld does
		if (err == nil) != (whole || older) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	noClock := slices.Clone(body)
	noClock[gtidClockType] = 1
	if _, err := ParseGTID(event(TypeGTID, noClock...)); !errors.Is(err, ErrMalformed) {
		t.Errorf("other clock type: %v", err)
	}
	if _, err := ParseGTID(event(TypeAnonymousGTID, body...)); !errors.Is(err, ErrMalformed) {
		t.Errorf("anonymous: %v", err)
	}
}

func TestParseTagged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := clock{
			n:         rapid.Uint64Range(1, gtid.MaxN).Draw(t, "n"),
			committed: rapid.Int64().Draw(t, "committed") >> rapid.IntRange(0, 63).Draw(t, "shift"),
			seq:       rapid.Int64().Draw(t, "seq"),
			immediate: rapid.Uint64().Draw(t, "immediate"), first: rapid.Uint64().Draw(t, "first"),
			length: rapid.Uint64().Draw(t, "length") >> rapid.IntRange(0, 63).Draw(t, "shift"),
		}
		tag := rapid.StringMatching(`[a-z_][a-z0-9_]{0,31}`).Draw(t, "tag")
		want := GTIDInfo{GTID: gtid.GTID{UUID: testUUID(), Tag: gtid.Tag(tag), N: c.n}, LastCommitted: c.committed,
			SequenceNumber: c.seq, ImmediateCommit: c.immediate, OriginalCommit: c.first, TransactionLength: c.length}
		got, err := ParseGTID(tagged(tag, c))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		// The optional fields.
		want.OriginalCommit = c.immediate
		got, err = ParseGTID(taggedEvent(taggedFields(tag, c), 9, 0, 1, 2, 3, 4, 5, 6, 8, 9))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

func TestParseTaggedMalformed(t *testing.T) {
	fields := taggedFields("t", clock{n: 1, length: 100})
	fields = append(fields, []byte{0x02})
	for _, c := range []struct {
		name  string
		known uint64
		ids   []int
		ok    bool
	}{
		{"all", 10, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, true},
		{"newer field that may be ignored", 10, []int{0, 1, 2, 3, 4, 5, 12}, true},
		{"newer field that may not", 12, []int{0, 1, 2, 3, 4, 5, 12}, false},
		{"no number", 10, []int{0, 1, 3, 4, 5}, false},
		{"no UUID", 10, []int{0, 2, 3, 4, 5}, false},
		{"no clock", 10, []int{0, 1, 2, 3}, false},
		{"field twice", 10, []int{0, 1, 2, 3, 4, 5, 5}, false},
		{"out of order", 10, []int{1, 0, 2, 3, 4, 5}, false},
	} {
		if _, err := ParseGTID(taggedEvent(fields, c.known, c.ids...)); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := ParseGTID(tagged("no-tag", clock{n: 1})); !errors.Is(err, ErrMalformed) {
		t.Errorf("bad tag: %v", err)
	}
	body := slices.Clone(tagged("t", clock{n: 1}).Body())
	body[0] = 4 // version 2
	if _, err := ParseGTID(event(TypeGTIDTagged, body...)); !errors.Is(err, ErrMalformed) {
		t.Errorf("version 2: %v", err)
	}
}
