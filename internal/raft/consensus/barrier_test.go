package consensus

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/raft/entry"
)

// TestBarrierOfASingleVoter: after a restart, such a node knows a lower commit index than its log holds. A
// barrier that is asked for as soon as the node leads, before it has committed an entry of its term, must not
// be answered with that index. That is true for its own barrier and for that of a learner, which raft would
// answer by itself.
func TestBarrierOfASingleVoter(t *testing.T) {
	w := newWorld(t, 1)
	w.node(1).g.campaign()
	w.settle()
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
	w.propose(1, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: 1})
	last := w.node(1).log.LastIndex()
	w.node(1).fs = w.node(1).fs.CrashClone(0)
	w.start(1, false)
	m := w.node(1)
	if commit := m.log.HardState().Commit; commit >= last || m.log.LastIndex() != last {
		t.Fatalf("entry %d is known to be committed, the log ends at %d: nothing is tested", commit, m.log.LastIndex())
	}
	m.g.campaign()
	var answers []Barrier
	asked := false
	for busy := true; busy; {
		inbox := m.inbox
		m.inbox = nil
		for _, msg := range inbox {
			m.g.Step(w.now, msg)
			if m.g.Role().Leading && !asked {
				asked = true
				m.g.StartBarrier(7)
				m.g.Step(w.now, &pb.Message{Type: pb.MsgReadIndex.Enum(), From: new(uint64(2)), To: new(uint64(1)),
					Entries: []*pb.Entry{{Data: readContext(contextBarrier, 2, 9)}}})
			}
		}
		out, ok := m.g.Ready()
		answers = append(answers, out.Barriers...)
		for _, sent := range out.Send {
			if sent.GetType() == pb.MsgReadIndexResp && sent.GetIndex() < last {
				t.Errorf("the learner is answered with entry %d, %d was committed", sent.GetIndex(), last)
			}
		}
		w.carryOut(m, out)
		busy = ok || len(m.inbox) > 0
	}
	if !asked {
		t.Fatal("it does not lead")
	}
	m.g.StartBarrier(8) // as a caller that got no answer does
	out, _ := m.g.Ready()
	answers = append(answers, out.Barriers...)
	if n := len(answers); n == 0 || answers[n-1].ID != 8 {
		t.Errorf("answers %+v, want one to the barrier that was asked for again", answers)
	}
	for _, b := range answers {
		if b.Index < last {
			t.Errorf("barrier %d is answered with entry %d, %d was committed", b.ID, b.Index, last)
		}
	}
}
