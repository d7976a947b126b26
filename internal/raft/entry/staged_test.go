package entry

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStagedRoundTrip(t *testing.T) {
	for _, want := range []Staged{
		{ID: StageID{Term: 7, Number: 42}, Bytes: 5 << 30, CRC: 0xdeadbeef, GTIDEvent: []byte("gtid"), EndEvent: []byte("xid"), Rows: true},
		{ID: StageID{Term: 1, Number: 1}, Bytes: 4, GTIDEvent: []byte("g"), EndEvent: []byte{}},
	} {
		h, body, err := Parse(EncodeStaged(want))
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != KindStaged || h.Count != 1 {
			t.Fatalf("header is %+v", h)
		}
		got, err := ParseStaged(h, body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("round trip (-want +got):\n%s", diff)
		}
	}
}

func TestParseStagedRefuses(t *testing.T) {
	good := EncodeStaged(Staged{ID: StageID{Term: 7, Number: 42}, Bytes: 100, GTIDEvent: []byte("gtid"), EndEvent: []byte("xid")})
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":           func(b []byte) []byte { return b[:HeaderBytes+10] },
		"no GTID event":   func(b []byte) []byte { b[HeaderBytes+16] = 0; return b },
		"long GTID":       func(b []byte) []byte { b[HeaderBytes+16] = 200; return b },
		"count 2":         func(b []byte) []byte { b[4] = 2; return b },
		"shorter than it": func(b []byte) []byte { b[HeaderBytes] = 3; return b },
	} {
		h, body, err := Parse(spoil(append([]byte(nil), good...)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseStaged(h, body); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
