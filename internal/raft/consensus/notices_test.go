package consensus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/entry"
)

// writing is a group of three whose node 1 leads, with an epoch; next is the next number.
type writing struct {
	*world
	next uint64
	kind map[pb.MessageType]int
}

func newWriting(t *testing.T) *writing {
	t.Helper()
	w := &writing{world: newWorld(t, 3), next: 1, kind: map[pb.MessageType]int{}}
	w.node(1).g.campaign()
	w.settle()
	w.run(200 * time.Millisecond)
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
	w.run(200 * time.Millisecond)
	w.carries = func(m *pb.Message) bool {
		w.kind[m.GetType()]++
		return true
	}
	return w
}

// commit proposes a transaction and runs everything that follows, without letting time pass.
func (w *writing) commit() {
	w.node(1).g.Propose(transactionsEntry(entry.Header{Term: 1, Number: w.next, Count: 1}, w.next))
	w.next++
	for w.turn() {
	}
}

// sent says which messages nodes have sent since the last call.
func (w *writing) sent() string {
	var texts []string
	for _, k := range slices.Sorted(maps.Keys(w.kind)) {
		texts = append(texts, fmt.Sprintf("%d %s", w.kind[k], k))
	}
	clear(w.kind)
	return strings.Join(texts, ", ")
}

// TestCommitTakesFourMessages: an append to each follower, and its answer. The next append brings the commit
// index. If none comes, a notice brings it, which is not answered.
func TestCommitTakesFourMessages(t *testing.T) {
	w := newWriting(t)
	w.sent()
	for range 3 {
		before := w.committed(1)
		w.commit()
		if got, want := w.sent(), "2 MsgApp, 2 MsgAppResp"; got != want {
			t.Fatalf("a commit sends %s, want %s", got, want)
		}
		if w.committed(1) != before+1 || w.committed(2) != before || w.committed(3) != before {
			t.Fatalf("committed on the leader: %d, on the others: %d, %d", w.committed(1), w.committed(2), w.committed(3))
		}
		if at := w.node(1).g.NoticeAt(); at != w.now+noticeAfter {
			t.Fatalf("a notice is due at %v, want %v after %v", at, noticeAfter, w.now)
		}
	}
	w.notify()
	for w.turn() {
	}
	if got, want := w.sent(), "2 MsgHeartbeat"; got != want {
		t.Errorf("an idle leader sends %s, want %s", got, want)
	}
	if w.committed(2) != w.committed(1) || w.committed(3) != w.committed(1) {
		t.Errorf("committed on the leader: %d, behind a notice: %d, %d", w.committed(1), w.committed(2), w.committed(3))
	}
	if at := w.node(1).g.NoticeAt(); at != 0 {
		t.Errorf("another notice is due at %v", at)
	}
}

// TestIdleGroupSendsARound: in each heartbeat interval, one question to each node and its answer.
func TestIdleGroupSendsARound(t *testing.T) {
	w := newWriting(t)
	w.run(time.Second)
	w.sent()
	interval := w.node(1).g.cfg.Tick * time.Duration(w.node(1).g.cfg.HeartbeatTicks)
	w.run(10 * interval)
	if got, want := w.sent(), "20 MsgHeartbeat, 20 MsgHeartbeatResp"; got != want {
		t.Errorf("ten heartbeat intervals: %s, want %s", got, want)
	}
}

// TestNoticeComesWhenDue: not earlier, and counted from the commit that needs a notice.
func TestNoticeComesWhenDue(t *testing.T) {
	w := newWriting(t)
	w.commit()
	due := w.node(1).g.NoticeAt()
	w.now += noticeAfter - 1
	w.node(1).g.Notify(w.now)
	w.sent()
	for w.turn() {
	}
	if got := w.sent(); got != "" || w.node(1).g.NoticeAt() != due {
		t.Errorf("too early: sent %q, due at %v, was %v", got, w.node(1).g.NoticeAt(), due)
	}
	w.commit() // its appends bring the commit index of the commit before
	if at := w.node(1).g.NoticeAt(); at != w.now+noticeAfter {
		t.Errorf("after another commit a notice is due at %v, want %v", at, w.now+noticeAfter)
	}
}

// TestNoticeGoesAtOnceWhereSomebodyWaits: after a commit of anything except transactions, for a node that asks
// for the commit index, and at a hand-over.
func TestNoticeGoesAtOnceWhereSomebodyWaits(t *testing.T) {
	for name, act := range map[string]func(*writing){
		"change": func(w *writing) {
			if err := w.node(1).g.ProposeState(w.now, testChange("c", "n2", 7)); err != nil {
				w.t.Fatal(err)
			}
		},
		"barrier": func(w *writing) {
			w.commit()
			w.node(2).g.StartBarrier(7)
		},
		"barrier before the answer": func(w *writing) {
			lost := w.carries
			var answers []*pb.Message
			w.carries = func(m *pb.Message) bool { // those to node 1 of its append come late
				late := m.GetType() == pb.MsgAppResp && m.GetFrom() == 2
				if late {
					answers = append(answers, m)
				}
				return !late
			}
			w.commit()
			w.carries = lost
			w.node(2).g.StartBarrier(7)
			for w.turn() {
			}
			w.node(1).inbox = append(w.node(1).inbox, answers...)
		},
		"transfer": func(w *writing) {
			w.commit()
			told := false
			w.carries = func(m *pb.Message) bool {
				told = told || m.GetTo() == 2 && isNotice(m)
				if m.GetType() == pb.MsgTimeoutNow && !told {
					w.t.Error("node 2 is to stand for election, and was not told what is committed")
				}
				return m.GetType() != pb.MsgTimeoutNow
			}
			w.node(1).g.TransferTo(1, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriting(t)
			act(w)
			for w.turn() {
			}
			if w.committed(2) != w.committed(1) {
				t.Errorf("node 2 has %d committed, the leader %d", w.committed(2), w.committed(1))
			}
		})
	}
}

// TestLostAppendIsFoundWhileIdle: nothing reports the loss, and nothing more is proposed. The leader notices it
// at the follower's next answer to a heartbeat.
func TestLostAppendIsFoundWhileIdle(t *testing.T) {
	w := newWriting(t)
	carries := w.carries
	w.carries = func(m *pb.Message) bool { return m.GetType() != pb.MsgApp || m.GetTo() != 3 }
	w.commit()
	w.carries = carries
	w.run(3 * testHeartbeat * testTick)
	if w.node(3).log.LastIndex() != w.node(1).log.LastIndex() || w.committed(3) != w.committed(1) {
		t.Errorf("node 3 has %d of %d entries, %d of %d committed",
			w.node(3).log.LastIndex(), w.node(1).log.LastIndex(), w.committed(3), w.committed(1))
	}
}

// TestOlderAgentAnswersNotice: such an answer changes nothing at the leader.
func TestOlderAgentAnswersNotice(t *testing.T) {
	w := newWriting(t)
	until := w.node(1).g.LeaseUntil()
	w.node(1).g.Step(w.now, &pb.Message{
		Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(1)), Context: noticeContext[:],
	})
	w.sent()
	for w.turn() {
	}
	if got := w.sent(); got != "" || w.node(1).g.LeaseUntil() != until {
		t.Errorf("sent %q; lease until %v, was %v", got, w.node(1).g.LeaseUntil(), until)
	}
}

// TestEverybodyLearnsOfEachCommit, whatever is lost: within noticeAfter while no message is lost, else as soon
// as two later heartbeats have come through.
func TestEverybodyLearnsOfEachCommit(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWriting(t)
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			lost := rapid.Float64Range(0, 0.7).Draw(r, "lost")
			rng := rapid.Custom(func(r *rapid.T) float64 { return rapid.Float64Range(0, 1).Draw(r, "fate") })
			w.carries = func(m *pb.Message) bool {
				gone := (m.GetType() == pb.MsgApp || m.GetType() == pb.MsgAppResp || isNotice(m)) && rng.Draw(r, "lose") < lost
				if gone && rapid.Bool().Draw(r, "seen") {
					w.node(m.GetFrom()).g.Unreachable(cluster.NodeID(m.GetTo()))
				}
				return !gone
			}
			for range rapid.IntRange(1, 4).Draw(r, "commits") {
				w.commit()
			}
			if rapid.Bool().Draw(r, "idle") {
				w.notify()
			}
		}
		w.carries = nil
		w.run(4 * testHeartbeat * testTick)
		w.commit()
		w.notify()
		for w.turn() {
		}
		for id := uint64(1); id <= 3; id++ {
			if w.committed(id) != w.node(1).log.LastIndex() {
				r.Fatalf("node %d has %d committed, the leader has %d entries", id, w.committed(id), w.node(1).log.LastIndex())
			}
		}
	})
}
