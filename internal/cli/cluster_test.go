package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// TestAckLines: a plain cluster says nothing of ACKs; what is asked for is said,
// and what is not as it should be is red.
func TestAckLines(t *testing.T) {
	st := sampleStatus()
	st.Durability = cluster.DurabilityMajority
	if text := ackLines(st, true); text != "" {
		t.Errorf("majority: %q", text)
	}
	st.Nodes[2].RequireAck = "drop-after=2s"
	st.Nodes[0].AcksWait = []cluster.AckWait{{Node: "c", Entries: 1, Seconds: 0.2}}
	if d := cmp.Diff("durability majority, require-ack of c (drop-after=2s)\n", ackLines(st, true)); d != "" {
		t.Errorf("all is well (-want +got):\n%s", d)
	}
	if one := st.Nodes[0].AcksWait[0].Lacks(); one != "1 entry" {
		t.Errorf("one: %q", one)
	}
	st.Nodes[0].AcksWait = []cluster.AckWait{{Node: "c", Entries: 12, Seconds: 1.25}}
	st.Nodes[0].AcksDropped = []cluster.AckWait{{Node: "d", Unknown: true, Seconds: 61}}
	want := `durability majority, require-ack of c (drop-after=2s)
WRITES WAIT for c: it lacks 12 entries, for 1.2 s
REQUIRE-ACK DROPPED: writes do not wait for d, which lacks an unknown number of entries, for 61.0 s
`
	if d := cmp.Diff(want, ackLines(st, false)); d != "" {
		t.Errorf("alarms (-want +got):\n%s", d)
	}
	if text := statusTable(st, true); !strings.Contains(text, "\x1b["+ansiRed+"mREQUIRE-ACK DROPPED") || !strings.Contains(text, "\x1b[1mNODE") {
		t.Errorf("%q", text)
	}
	st.Nodes[0].Reachable = false
	if strings.Contains(ackLines(st, false), "DROPPED") {
		t.Error("what an old status says is shown as of now")
	}
}
