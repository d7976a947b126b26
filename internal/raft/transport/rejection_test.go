package transport

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

const instanceText = "02000000000000000000000000000000"

// orders returns rejections with everything that they can say. The key is the body that agents
// of protocol version 2 know.
func orders() map[string]*RejectedError {
	recovery := &cluster.Recovery{Version: 1_000_000, Cluster: "shop", Node: "c", At: time.Unix(1000, 0).UTC(), GTIDs: "u:1-5"}
	return map[string]*RejectedError{
		`node "b" was removed`: {Code: CodeRemoved, Text: `node "b" was removed`},
		`node "b" was removed {"version":1000000,"cluster":"shop","node":"c","at":"1970-01-01T00:16:40Z","gtids":"u:1-5"}`: {
			Code: CodeRemoved, Text: `node "b" was removed`, Order: Order{Recovery: recovery}},
		`node "b" is to be rebuilt: 7/` + instanceText: {
			Code: CodeRebuild, Text: `node "b" is to be rebuilt`, Order: Order{StateVersion: 7, Instance: instanceText}},
		`node "b" is to be rebuilt {"version":1000000,"cluster":"shop","node":"c","at":"1970-01-01T00:16:40Z","gtids":"u:1-5"}: 1000001/` + instanceText: {
			Code: CodeRebuild, Text: `node "b" is to be rebuilt`, Order: Order{Recovery: recovery, StateVersion: 1_000_001, Instance: instanceText}},
		`you are out {"version":1000000,"cluster":"shop","node":"c","at":"1970-01-01T00:16:40Z","gtids":"u:1-5"}`: {
			Code: CodeRecovered, Text: "you are out", Order: Order{Recovery: recovery}},
		"its disk is empty: 7/" + instanceText: {
			Code: CodeReseed, Text: "its disk is empty", Order: Order{StateVersion: 7, Instance: instanceText}},
		"another data directory: 7/" + instanceText: {
			Code: CodePeer, Text: "another data directory", Order: Order{StateVersion: 7, Instance: instanceText}},
	}
}

// TestOrders: a node that is rejected can read its order in each protocol version. Agents of
// version 2 get the text that they know.
func TestOrders(t *testing.T) {
	for text, want := range orders() {
		for _, version := range []uint16{0, versionFirst, versionCall, versionOrder} {
			g := want.greeting(version)
			if version < versionOrder && string(g.body) != text {
				t.Errorf("version %d: it is told %q, want %q", version, g.body, text)
			}
			got, err := parseRejection(g)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("version %d: %v (-want +got):\n%s", version, err, diff)
			}
		}
	}
}

// TestNotAnOrder: a sentence for people is never read as an order, whatever is in it.
func TestNotAnOrder(t *testing.T) {
	for _, text := range []string{
		"", "x", "x {", `x {"version":0,"node":"a"}`, `x {"version":5}`, "x: 7/02", "x: a/" + instanceText, "x: 7/" + strings.Repeat("z", 32),
	} {
		for _, c := range []Code{CodeRemoved, CodeRecovered, CodePeer} {
			got, err := parseRejection(greeting{version: versionCall, word: uint8(c), body: []byte(text)})
			if diff := cmp.Diff(&RejectedError{Code: c, Text: text}, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		}
	}
}

// TestMalformedOrder: an order that makes no sense is refused as malformed.
func TestMalformedOrder(t *testing.T) {
	for body, code := range map[string]Code{
		"text": CodePeer, `{"text":"x","instance":"02"}`: CodeRebuild, `{"text":"x","state_version":-1}`: CodeRebuild,
		`{"text":"x","recovery":{"version":5}}`: CodeRecovered, `{"text":"x","recovery":{"version":5,"node":"c"}}`: CodePeer,
	} {
		if got, err := parseRejection(greeting{version: versionOrder, word: uint8(code), body: []byte(body)}); !errors.Is(err, errGreeting) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}

// TestLongRejection: a text that does not fit into a greeting loses its end. The order stays whole.
func TestLongRejection(t *testing.T) {
	e := &RejectedError{Code: CodeRebuild, Text: strings.Repeat("\"x\\ü", 2000), Order: Order{StateVersion: 7, Instance: instanceText}}
	got, err := parseRejection(e.greeting(versionOrder))
	if err != nil || got.Order != e.Order || !strings.HasPrefix(e.Text, got.Text) || len(got.Text) < 100 {
		t.Errorf("%d bytes of text, %+v, %v", len(got.Text), got.Order, err)
	}
	for _, version := range []uint16{versionCall, versionOrder} {
		if n := len(e.greeting(version).body); n > greetingBodyBytesMax {
			t.Errorf("version %d: a body of %d bytes", version, n)
		}
	}
}

// TestRejectionOfVersion3: a rejection is the same to the byte as that of an agent of protocol
// version 3. The golden file is never made again.
func TestRejectionOfVersion3(t *testing.T) {
	for _, e := range orders() {
		if e.Code != CodeRebuild || e.Order.Recovery == nil {
			continue
		}
		want, err := os.ReadFile(filepath.Join("testdata", "v3", "rejected.golden"))
		if err != nil {
			t.Fatal(err)
		}
		if got := appendGreeting(nil, e.greeting(versionOrder)); string(got) != string(want) {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
}
