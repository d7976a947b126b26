package entry

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

func testStateChange(t testing.TB) cluster.StateChange {
	t.Helper()
	before := cluster.NewState([]cluster.Member{
		{ID: 1, Name: "a", Peer: "a:7400", Kind: cluster.KindFull, Weight: 5},
		{ID: 2, Name: "b", Peer: "b:7400", Kind: cluster.KindLogger, Weight: 5, Site: "x"},
	})
	c := cluster.Change{
		ID: "1f", By: "ann@db1", At: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC),
		Maintenance: &cluster.MaintenanceChange{On: true, Reason: "disks"},
	}
	after, err := before.With(c)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.StateChange{Change: c, State: after}
}

func TestStateRoundTrip(t *testing.T) {
	want := testStateChange(t)
	data, err := EncodeState(7, want)
	if err != nil {
		t.Fatal(err)
	}
	h, body, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if h != (Header{Kind: KindState, Term: 7}) {
		t.Errorf("header is %+v", h)
	}
	got, err := ParseState(h, body)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("round trip (-want +got):\n%s", d)
	}
}

// TestStateGolden: the layout must not change, because it is on disks and on the wire.
func TestStateGolden(t *testing.T) {
	data, err := EncodeState(7, testStateChange(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "state-v1.golden")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, want) {
		t.Errorf("the layout has changed: got\n%q\nwant\n%q", data, want)
	}
}

func TestParseStateRefuses(t *testing.T) {
	good, err := EncodeState(7, testStateChange(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(b []byte) []byte{
		"no body":    func(b []byte) []byte { return b[:HeaderBytes] },
		"cut":        func(b []byte) []byte { return b[:len(b)-1] },
		"count":      func(b []byte) []byte { b[4] = 1; return b },
		"number":     func(b []byte) []byte { b[16] = 1; return b },
		"version 0":  func(b []byte) []byte { return bytes.Replace(b, []byte(`"version":1`), []byte(`"version":0`), 1) },
		"no members": func(b []byte) []byte { return append(b[:HeaderBytes], `{"state":{"version":1}}`...) },
	} {
		h, body, err := Parse(spoil(bytes.Clone(good)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseState(h, body); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// TestUnknownKindIsRefused: an entry of a kind that only a newer quorate knows is not taken for
// another kind, and the error says that a newer one wrote it.
func TestUnknownKindIsRefused(t *testing.T) {
	_, _, err := Parse(AppendHeader(nil, Header{Kind: KindState + 1, Term: 1}))
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "a newer quorate wrote an entry of kind 6, this one knows up to 5: upgrade quorate") {
		t.Errorf("error is %v", err)
	}
}

func FuzzParseState(f *testing.F) {
	good, err := EncodeState(7, testStateChange(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:HeaderBytes])
	f.Fuzz(func(t *testing.T, data []byte) {
		h, body, err := Parse(data)
		if err != nil || h.Kind != KindState {
			return
		}
		c, err := ParseState(h, body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		again, err := EncodeState(h.Term, c)
		if err != nil {
			t.Skip() // a time beyond what JSON holds
		}
		h2, body, err := Parse(again)
		if err != nil || h2 != (Header{Kind: KindState, Term: h.Term}) {
			t.Fatalf("header %+v, %v", h2, err)
		}
		c2, err := ParseState(h2, body)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c, c2); d != "" {
			t.Fatalf("round trip (-first +second):\n%s", d)
		}
	})
}
