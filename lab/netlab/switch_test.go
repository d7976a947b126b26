package netlab

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// idleSwitch is a switch without devices: what it accepts stays queued.
func idleSwitch(t *testing.T) *tunSwitch {
	t.Helper()
	p, err := Preset("two-city")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSwitch(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.closeFiles)
	return s
}

// frameTo is an IPv4 packet without content.
func frameTo(version byte, destination [4]byte) []byte {
	frame := make([]byte, vnetHeaderBytes+20)
	frame[vnetHeaderBytes] = version << 4
	copy(frame[vnetHeaderBytes+16:], destination[:])
	return frame
}

func TestSwitchQueuesByDestination(t *testing.T) {
	s := idleSwitch(t)
	s.accept(0, frameTo(4, [4]byte{10, 99, 0, 2}))
	s.accept(2, frameTo(4, [4]byte{10, 99, 0, 6}))
	for _, frame := range [][]byte{
		frameTo(6, [4]byte{10, 99, 0, 2}), frameTo(4, [4]byte{10, 99, 0, 1}), frameTo(4, [4]byte{10, 99, 0, 0}),
		frameTo(4, [4]byte{10, 99, 0, 8}), frameTo(4, [4]byte{10, 98, 0, 2}), {}, make([]byte, vnetHeaderBytes+19),
	} {
		s.accept(0, frame)
	}
	got := map[[2]int]int{}
	for from, row := range s.queues {
		for to, q := range row {
			if q != nil && q.packets.len() > 0 {
				got[[2]int{from, to}] = q.packets.len()
			}
		}
	}
	if diff := cmp.Diff(map[[2]int]int{{0, 1}: 1, {2, 5}: 1}, got); diff != "" {
		t.Errorf("queued packets (-want +got):\n%s", diff)
	}
}

func TestSwitchCutLosesWhatIsUnderWay(t *testing.T) {
	s := idleSwitch(t)
	for range 3 {
		s.accept(0, frameTo(4, [4]byte{10, 99, 0, 2}))
	}
	before := s.link(0, 1)
	s.setLink(0, 1, Link{Cut: true})
	s.setLink(0, 1, before)
	if n := s.queues[0][1].packets.len(); n != 0 {
		t.Errorf("%d packets have survived a cut", n)
	}
	s.setLink(1, 0, Link{Cut: true})
	s.accept(1, frameTo(4, [4]byte{10, 99, 0, 1}))
	if got := s.snapshot(); got.Cut != 4 || got.Packets != 0 {
		t.Errorf("stats %+v, want 4 cut off", got)
	}
}
