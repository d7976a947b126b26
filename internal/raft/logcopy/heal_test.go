package logcopy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/sys/clock"
)

// tails answers for the peers, one after the other: their logs begin at first. 0 = the peer does not answer.
type tails struct {
	Peers
	first []uint64
}

// AskTail implements Peers.
func (p *tails) AskTail(context.Context, cluster.NodeID) (bulk.Tail, error) {
	t := bulk.Tail{First: p.first[0]}
	if p.first = p.first[1:]; t.First == 0 {
		return t, errors.ErrUnsupported
	}
	return t, nil
}

// patient is the node whose log is healed. It has two peers, and no other node has tried to connect to it.
type patient struct{ HealNode }

func (patient) Others() []cluster.NodeID             { return []cluster.NodeID{2, 3} }
func (patient) Copies(_ cluster.NodeID, _, _ uint64) {}
func (patient) Waits(uint64)                         {}
func (patient) Failed(cluster.NodeID, uint64, error) {}

// damagedLog returns a log that was cut before damage in its middle. Its commit index, 3, is much too old, as after a
// loss of power: the commit index is not synced.
func damagedLog(t *testing.T) *seglog.Log {
	t.Helper()
	mem := vfs.NewMem()
	o := seglog.Options{FS: mem, Dir: "log", SegmentBytesMax: 1500}
	log, err := seglog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(60) {
		if err := log.Append([]seglog.Entry{{Index: i + 1, Term: 1}}, &seglog.HardState{Term: 1, Commit: min(i, 3)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List("log")
	if err != nil {
		t.Fatal(err)
	}
	var segments []string
	for _, name := range names {
		if strings.HasPrefix(name, "quorate.") {
			segments = append(segments, name)
		}
	}
	f, err := mem.OpenReadWrite("log/" + segments[len(segments)/2])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), 1000); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	o.Heal = true
	if log, err = seglog.Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	if last := log.LastIndex(); last < 10 || last > 50 || log.HardState().Commit != 3 {
		t.Fatalf("the log of %v ends at %d, with %+v: it is not what this test needs", segments, last, log.HardState())
	}
	return log
}

// TestHealBeginsBehindPurge: after a loss of power the commit index is too old, and the peers
// have purged the entries after it. The copy begins where their logs begin, if what is left of
// this log reaches that far.
func TestHealBeginsBehindPurge(t *testing.T) {
	log := damagedLog(t)
	last := log.LastIndex()
	for _, c := range []struct {
		first []uint64 // the first entries of the peers' logs
		want  uint64
	}{
		{[]uint64{1, 1}, 3},
		{[]uint64{3, 1}, 3},
		{[]uint64{last - 2, 1}, last - 3},
		{[]uint64{last + 1, last}, last},
		{[]uint64{last + 2, 5}, 4},
		{[]uint64{last + 2, last + 2}, 3},
		{[]uint64{0, 0}, 3}, // no answer
	} {
		h := &healing{Copy: Copy{Log: log, Peers: &tails{first: c.first}, Clock: clock.Machine{}, Copied: log.HardState().Commit}, node: patient{}}
		h.Others = func() []cluster.NodeID { return []cluster.NodeID{2, 3} }
		if _, _, ok := h.leader(t.Context()); ok || h.Copied != c.want {
			t.Errorf("the peers' logs begin at %d, this ends at %d: the copy begins behind %d, want %d (a leader: %t)", c.first, last, h.Copied, c.want, ok)
		}
	}
}
